"""A learning task: data, split, network and the settings of local training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fl_edge_env.checks import is_integer, is_real
from fl_edge_env.typing import FloatArray, IntArray
from train_fl.datasets import DATASETS, Dataset
from train_fl.models import DigitsCNN
from train_fl.partition import dirichlet_equal, label_histogram


@dataclass(frozen=True, eq=False)
class Task:
    """What the devices learn, and how.

    Attributes
    ----------
    dataset : Dataset
        Images and labels.
    parts : list of ndarray of int, length N
        Training samples of each device.
    make_model : callable
        Makes the network; its random numbers come from torch's generator.
    batch_size : int
        Samples in a step of SGD.
    learning_rate : float
        Initial learning rate.
    momentum : float
        Momentum of SGD.
    """

    dataset: Dataset
    parts: list[IntArray]
    make_model: Callable[[], nn.Module]
    batch_size: int
    learning_rate: float
    momentum: float

    @cached_property
    def num_samples(self) -> FloatArray:
        """Number of training samples of each device, shape (N,)."""
        return np.array([len(part) for part in self.parts], dtype=np.float64)

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the network, d."""
        with torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in self.make_model().parameters())

    @cached_property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        labels = self.dataset.train_labels.cpu().numpy()
        return label_histogram(labels, self.parts, self.dataset.num_classes)


def make_task(
    name: str,
    *,
    num_devices: int = 40,
    concentration: float = 0.5,
    seed: int = 0,
    batch_size: int = 32,
    learning_rate: float = 0.02,
    momentum: float = 0.9,
) -> Task:
    """A task by the name of its data set, split evenly with a Dirichlet label mix.

    Parameters
    ----------
    name : str
        ``"digits"``.
    num_devices : int
        Number of devices N.
    concentration : float
        Of the label mix; see `train_fl.partition.dirichlet_equal`.
    seed : int
        Seed of the split.
    batch_size : int
        Samples in a step of SGD.
    learning_rate : float
        Initial learning rate.
    momentum : float
        Momentum of SGD.

    Returns
    -------
    Task

    Raises
    ------
    ValueError
        If there is no such data set or an argument is out of its range.
    """
    if name not in DATASETS:
        raise ValueError(f"data set must be one of {', '.join(DATASETS)}, got {name!r}")
    if not (is_integer(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size must be an integer of at least 1, got {batch_size!r}")
    if not (is_real(learning_rate) and 0 < learning_rate < math.inf):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate!r}")
    if not (is_real(momentum) and 0 <= momentum < 1):
        raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}")
    if not (is_integer(seed) and seed >= 0):
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    dataset = DATASETS[name]()
    parts = dirichlet_equal(
        dataset.train_labels.numpy(), num_devices, concentration, np.random.default_rng(seed)
    )
    return Task(dataset, parts, DigitsCNN, batch_size, learning_rate, momentum)

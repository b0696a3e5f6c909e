"""A learning task: data, split, network and the settings of local training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number, integer_at_least, is_real, positive_integer
from fl_edge_env.typing import FloatArray, IntArray
from train_fl.data.catalogue import DATASETS
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.partition import (
    by_place,
    by_writer,
    dirichlet_by_class,
    dirichlet_equal,
    iid,
    label_histogram,
)
from train_fl.local_sgd import check_network
from train_fl.models import DigitsCNN, FemnistCNN, SmallCNN, resnet18_group_norm


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
    upload_parameters : int, optional
        Size of an upload in parameters of 32 bits; that of the network by default. With another,
        a network trains in place of a larger one whose time and energy the system accounts for.
    """

    dataset: Dataset
    parts: list[IntArray]
    make_model: Callable[[], nn.Module]
    batch_size: int
    learning_rate: float
    momentum: float
    upload_parameters: int | None = None

    @cached_property
    def num_samples(self) -> FloatArray:
        """Number of training samples of each device, shape (N,)."""
        return np.array([len(part) for part in self.parts], dtype=np.float64)

    def fit(self, scenario: Scenario) -> Scenario:
        """The scenario with this task's upload size and sample counts.

        Parameters
        ----------
        scenario : Scenario
            With as many devices as the task.
        """
        return scenario.replace(model_bits=self.model_bits, num_samples=self.num_samples)

    @property
    def model_bits(self) -> float:
        """Size of an upload [bit]."""
        size = self.upload_parameters
        return 32.0 * (self.num_parameters if size is None else size)

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the network, d."""
        return _num_parameters(self.make_model)

    @cached_property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        labels = self.dataset.train_labels.numpy()
        return label_histogram(labels, self.parts, self.dataset.num_classes)


Partition = Literal["dirichlet", "dirichlet-by-class", "iid", "place", "writer"]


Network = Literal["own", "small"]


class _Defaults(NamedTuple):
    make_model: Callable[[], nn.Module]
    learning_rate: float
    num_devices: int = 120
    partition: Partition = "dirichlet"
    make_small: Callable[[], nn.Module] | None = None


# The network of each data set, and the paper's settings for its own.
_DEFAULTS = {
    "digits": _Defaults(DigitsCNN, 0.02, num_devices=40),
    "fashion_mnist": _Defaults(partial(FemnistCNN, num_classes=10), 0.01, make_small=SmallCNN),
    "cifar10": _Defaults(resnet18_group_norm, 0.05),
    "femnist": _Defaults(
        FemnistCNN, 0.1, partition="writer", make_small=partial(SmallCNN, num_classes=62)
    ),
}


def make_task(
    dataset: str | Dataset,
    *,
    num_devices: int | None = None,
    partition: Partition | None = None,
    concentration: float = 0.5,
    mean_gain: ArrayLike | None = None,
    seed: int = 0,
    batch_size: int = 32,
    learning_rate: float | None = None,
    momentum: float = 0.9,
    make_model: Callable[[], nn.Module] | None = None,
    network: Network = "own",
    data_dir: str | Path = "data",
    download: bool = False,
) -> Task:
    """A task from a data set, split over the devices.

    Parameters
    ----------
    dataset : str or Dataset
        ``"digits"``, ``"fashion_mnist"``, ``"cifar10"``, ``"femnist"``, or one's own data, which
        need `num_devices`, `learning_rate` and `make_model`.
    num_devices : int, optional
        Number of devices N: 40 for digits and 120 for the others by default.
    partition : {"dirichlet", "dirichlet-by-class", "iid", "place", "writer"}, optional
        How samples are split, see `train_fl.data.partition`: into equal sizes with a Dirichlet
        label mix, each class with Dirichlet shares, equally at random, into equal sizes with a
        label mix that near and far devices differ in, or by writer. By default FEMNIST is split
        by writer and the others by ``"dirichlet"``.
    concentration : float
        Of the Dirichlet distribution: small for devices that differ.
    mean_gain : ndarray, shape (N,), optional
        Mean gain of each device, such as `Scenario.mean_gain`, which the split by place needs.
    seed : int
        Seed of the split, and of the draw of writers.
    batch_size : int
        Samples in a step of SGD.
    learning_rate : float, optional
        Initial learning rate: by default the paper's for CIFAR-10 and FEMNIST, 0.02 for
        digits and 0.01 for Fashion-MNIST.
    momentum : float
        Momentum of SGD.
    make_model : callable, optional
        Makes the network, without batch norm or dropout: devices share parameters alone, and
        all random numbers come from the streams of the seed.
    network : {"own", "small"}
        The data set's own network or, for Fashion-MNIST and FEMNIST, a small one that trains
        faster in its place. An upload keeps the size of the own network, and so do times and
        energies.
    data_dir : str or Path
        Folder with the data set's files.
    download : bool
        Whether to fetch missing files from the internet.

    Returns
    -------
    Task

    Raises
    ------
    ValueError
        If there is no such data set, its files are missing or damaged, or an argument is out of
        its range.
    """
    if not isinstance(dataset, (str, Dataset)):
        raise ValueError(f"dataset must be a name or a Dataset, got {dataset!r}")
    if network not in get_args(Network):
        raise ValueError(f"network must be one of {', '.join(get_args(Network))}, got {network!r}")
    upload_parameters = None
    if isinstance(dataset, str):
        if dataset not in DATASETS:
            raise ValueError(f"data set must be one of {', '.join(DATASETS)}, got {dataset!r}")
        defaults = _DEFAULTS[dataset]
        num_devices = defaults.num_devices if num_devices is None else num_devices
        partition = defaults.partition if partition is None else partition
        learning_rate = defaults.learning_rate if learning_rate is None else learning_rate
        if network == "small":
            upload_parameters = _num_parameters(defaults.make_model)
            make_model = _small(dataset, make_model)
        make_model = defaults.make_model if make_model is None else make_model
    elif network == "small":
        raise ValueError("data of one's own have the network that make_model makes, got 'small'")
    elif num_devices is None or learning_rate is None or make_model is None:
        raise ValueError("data of one's own need num_devices, learning_rate and make_model")
    if partition is not None and partition not in get_args(Partition):
        names = ", ".join(get_args(Partition))
        raise ValueError(f"partition must be one of {names}, got {partition!r}")
    batch_size = positive_integer("batch_size", batch_size)
    finite_number("learning_rate", learning_rate)
    if not (is_real(momentum) and 0 <= momentum < 1):
        raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}")
    integer_at_least(0, "seed", seed)
    if isinstance(dataset, str):
        dataset = DATASETS[dataset](DataSource(Path(data_dir), download, num_devices, seed))
    parts = _split(dataset, num_devices, partition or "dirichlet", concentration, mean_gain, seed)
    return Task(dataset, parts, make_model, batch_size, learning_rate, momentum, upload_parameters)


def _small(dataset: str, make_model: Callable[[], nn.Module] | None) -> Callable[[], nn.Module]:
    """What makes the small network of a data set."""
    if make_model is not None:
        raise ValueError("make_model takes the place of a network: leave out network='small'")
    small = _DEFAULTS[dataset].make_small
    if small is None:
        known = ", ".join(name for name, defaults in _DEFAULTS.items() if defaults.make_small)
        raise ValueError(f"network 'small' is there for {known}, got data set {dataset!r}")
    return small


def _num_parameters(make_model: Callable[[], nn.Module]) -> int:
    with torch.random.fork_rng(devices=[]):
        model = make_model()
    check_network(model)
    return sum(p.numel() for p in model.parameters())


def _split(
    dataset: Dataset,
    num_devices: int,
    partition: Partition,
    concentration: float,
    mean_gain: ArrayLike | None,
    seed: int,
) -> list[IntArray]:
    labels, rng = dataset.train_labels.numpy(), np.random.default_rng(seed)
    if partition == "dirichlet":
        return dirichlet_equal(labels, num_devices, concentration, rng)
    if partition == "dirichlet-by-class":
        return dirichlet_by_class(labels, num_devices, concentration, rng)
    if partition == "iid":
        return iid(len(labels), num_devices, rng)
    if partition == "place":
        if mean_gain is None or np.asarray(mean_gain).shape != (num_devices,):
            raise ValueError(
                f"a split by place needs the mean_gain of each of {num_devices} devices, "
                f"got {mean_gain!r}"
            )
        return by_place(labels, mean_gain, concentration, rng)
    if dataset.train_writers is None:
        raise ValueError(f"the data set {dataset.name} does not say who its writers are")
    return by_writer(dataset.train_writers, num_devices)

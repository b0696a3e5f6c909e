"""A learning task: data, split, network and the settings of local training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from fl_edge_env import Scenario
from fl_edge_env.checks import one_of
from fl_edge_env.typing import FloatArray, IntArray
from policies.benchmark.training_options import TrainingOptions
from policies.own import load_own, names_own
from train_fl.data.catalogue import DATASETS, own_dataset
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.partition import (
    by_place,
    by_writer,
    dirichlet_by_class,
    dirichlet_equal,
    iid,
    label_histogram,
)
from train_fl.models import MODELS, check_maker
from train_fl.server import FedAvg, ServerOptimizer, make_server_optimizer

# Draws a split: the samples of each device.
Split: TypeAlias = Callable[[np.random.Generator], list[IntArray]]


@dataclass(frozen=True, eq=False)
class Task:
    """A learning task: data, split, network and the settings of local training.

    Attributes
    ----------
    dataset : Dataset
        Images and labels.
    parts : list of ndarray of int, length N
        Training samples of each device.
    make_model : callable
        Makes the network; its random numbers come from torch's generator.
    options : TrainingOptions
        Settings of local training; the learning rate is given.
    server : ServerOptimizer
        What the server does with the weighted sum of the updates.
    upload_parameters : int, optional
        Size of an upload in parameters of 32 bits; that of the network by default. With another,
        a network trains in place of a larger one whose time and energy the system accounts for.
    split : callable, optional
        Draws another split of the same sizes from a random generator. With it each episode has
        its own, and `parts` are an example; without it `parts` are those of every episode.
    """

    dataset: Dataset
    parts: list[IntArray]
    make_model: Callable[[], nn.Module]
    options: TrainingOptions
    server: ServerOptimizer = field(default_factory=FedAvg)
    upload_parameters: int | None = None
    split: Split | None = None

    def __repr__(self) -> str:
        names = ("batch_size", "learning_rate", "momentum", "weight_decay", "proximal")
        options = ", ".join(f"{name}={getattr(self.options, name)}" for name in names)
        return (
            f"Task({self.dataset.name}, {len(self.parts)} devices, {self.num_parameters} "
            f"parameters, {options}, server={self.server})"
        )

    def episode(self, seed: np.random.SeedSequence) -> Task:
        """The task with the split of an episode, by its `TrainingSeeds.split`.

        This one, where all episodes share a split.
        """
        if self.split is None:
            return self
        return replace(self, parts=self.split(np.random.default_rng(seed)), split=None)

    @cached_property
    def num_samples(self) -> FloatArray:
        """Number of training samples of each device, shape (N,)."""
        return np.array([len(part) for part in self.parts], dtype=np.float64)

    def fit(self, scenario: Scenario) -> Scenario:
        """The scenario, of as many devices, with this task's upload size and sample counts."""
        return scenario.replace(model_bits=self.model_bits, num_samples=self.num_samples)

    def check_fit(self, scenario: Scenario) -> None:
        """Refuse a scenario of other devices, upload size or sample counts with a `ValueError`."""
        if len(self.parts) != scenario.num_devices:
            raise ValueError(
                f"the task is split over {len(self.parts)} devices and the scenario has "
                f"{scenario.num_devices}: make the task with num_devices={scenario.num_devices}"
            )
        if scenario.model_bits != self.model_bits:
            raise ValueError(
                f"an upload of the task has {self.model_bits:.0f} bits and the scenario's "
                f"model_bits is {scenario.model_bits:g}: use "
                f"scenario.replace(model_bits={self.model_bits:.0f})"
            )
        # An even split may leave a scenario with a fraction of a sample.
        if np.any(np.abs(self.num_samples - scenario.num_samples) >= 1):
            raise ValueError(
                "the devices' sample counts differ between task and scenario: use "
                "scenario.replace(num_samples=task.num_samples)"
            )

    def initial_model(self, seed: np.random.SeedSequence) -> nn.Module:
        """The network of `TrainingSeeds.model`; torch's generators are left as they were."""
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed, which reseeds every GPU as well.
            torch.default_generator.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
            return self.make_model()

    def learning_rate(self, completed_rounds: int, num_rounds: int) -> float:
        """The learning rate of the coming round: halved at 50 % and at 75 % of the rounds."""
        halvings = (completed_rounds >= 0.5 * num_rounds) + (completed_rounds >= 0.75 * num_rounds)
        rate = self.options.learning_rate
        assert rate is not None  # make_task has put the data set's own in its place
        return rate * 0.5**halvings

    @property
    def model_bits(self) -> float:
        """Size of an upload [bit]."""
        size = self.upload_parameters
        return 32.0 * (self.num_parameters if size is None else size)

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the network, d."""
        return num_parameters(self.make_model)

    @cached_property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        labels = self.dataset.train_labels.numpy()
        return label_histogram(labels, self.parts, self.dataset.num_classes)


# Splits whose sizes do not depend on chance, so that each episode can have its own.
_SAME_SIZES = (None, "dirichlet", "iid", "place")


class _Defaults(NamedTuple):
    model: str
    learning_rate: float
    num_devices: int = 120
    partition: str = "dirichlet"


class TrainingSeeds(NamedTuple):
    """The streams of random numbers of training in an episode.

    Of the initial parameters, of the order in which devices see their samples (see `sample_order`)
    and of the split of the samples over the devices (see `Task.episode`).
    """

    model: np.random.SeedSequence
    order: np.random.SeedSequence
    split: np.random.SeedSequence

    @classmethod
    def of(cls, training: np.random.SeedSequence) -> TrainingSeeds:
        """Those of `FLEdgeEnv.training_seed`, which is not changed."""
        fresh = np.random.SeedSequence(training.entropy, spawn_key=training.spawn_key)
        return cls(*fresh.spawn(len(cls._fields)))

    def sample_order(self, completed_rounds: int, device: int) -> np.random.Generator:
        """The stream of a device's training in a round: who else takes part changes nothing."""
        key = (*self.order.spawn_key, completed_rounds, device)
        return np.random.default_rng(np.random.SeedSequence(self.order.entropy, spawn_key=key))


# The network of each data set, and the paper's settings for its own.
_DEFAULTS = {
    "digits": _Defaults("digits", 0.02, num_devices=40),
    "fashion_mnist": _Defaults("cnn", 0.01),
    "cifar10": _Defaults("resnet18", 0.05),
    "femnist": _Defaults("cnn", 0.1, partition="writer"),
}


def make_task(
    dataset: str | Dataset,
    options: TrainingOptions | None = None,
    *,
    num_devices: int | None = None,
    mean_gain: ArrayLike | None = None,
    seed: int | None = None,
    model: str | Callable[[], nn.Module] | None = None,
    server: str | ServerOptimizer | None = None,
    **changes: Any,
) -> Task:
    """A task from a data set, split over the devices.

    Parameters
    ----------
    dataset : str or Dataset
        ``"digits"``, ``"fashion_mnist"``, ``"cifar10"`` or ``"femnist"``. Or one's own data, as a
        `Dataset`, the name of a function or a folder (see `train_fl.data.catalogue.own_dataset`),
        which need `num_devices`, `learning_rate` and `model`.
    options : TrainingOptions, optional
        How models are trained, see `policies.benchmark.training_options.TrainingOptions`. By
        default FEMNIST is split by writer and the others by ``"dirichlet"``, and the learning rate
        is the paper's for CIFAR-10 and FEMNIST, 0.02 for digits and 0.01 for Fashion-MNIST.
    num_devices : int, optional
        Number of devices N: 40 for digits and 120 for the others by default.
    mean_gain : ndarray, shape (N,), optional
        Mean gain of each device, such as `Scenario.mean_gain`, which the split by place needs.
    seed : int, optional
        The option `split_seed`: seed of a split that all episodes share. By default each episode
        has a split of its own, from the stream of its seed, where the devices' numbers of samples
        do not depend on it; splits ``"dirichlet-by-class"`` and ``"writer"`` are then those of
        seed 0, as is the draw of FEMNIST's writers.
    model : str or callable, optional
        The network: the option `model`, or a class or function without arguments that makes one's
        own, as `train_fl.models.check_network` wants it. Its initial parameters come from torch's
        generator. By default that of the data set.
    server : str or ServerOptimizer, optional
        The option `server`, or a server optimiser; see `train_fl.server`.
    **changes
        Options in place of those in `options`, such as ``momentum=0.5``; see
        `train_fl.data.partition` for the splits.

    Returns
    -------
    Task

    Raises
    ------
    ValueError
        If there is no such data set or network, files are missing or damaged, the network does
        not fit the data, or an argument is out of its range.
    """
    if not isinstance(dataset, (str, Dataset)):
        raise ValueError(f"dataset must be a name or a Dataset, got {dataset!r}")
    if seed is not None:
        changes["split_seed"] = seed
    options = replace(options or TrainingOptions(), **changes)
    model = options.model if model is None else model
    if isinstance(dataset, str) and dataset not in DATASETS:
        dataset = own_dataset(dataset)
    if isinstance(dataset, str):
        defaults = _DEFAULTS[dataset]
        num_devices = defaults.num_devices if num_devices is None else num_devices
        model = defaults.model if model is None else model
        if options.learning_rate is None:
            options = replace(options, learning_rate=defaults.learning_rate)
        if options.partition is None:
            options = replace(options, partition=defaults.partition)
    elif num_devices is None or options.learning_rate is None or model is None:
        raise ValueError(
            "data of one's own need num_devices, learning_rate and model, got "
            f"{num_devices!r}, {options.learning_rate!r} and {model!r}"
        )
    options.check()
    server = make_server_optimizer(server or options.server, options.server_learning_rate)
    if isinstance(model, str) and names_own(model):
        model = load_own(model, kind="class or function that makes a network", fits=callable)
    for option, named in (("model", model), ("upload", options.upload)):
        if isinstance(named, str):
            one_of(option, named, list(MODELS))
    seed = options.split_seed
    if isinstance(dataset, str):
        source = DataSource(Path(options.data_dir), options.download, num_devices, seed or 0)
        dataset = DATASETS[dataset](source)
    split = partial(
        _split, dataset=dataset, options=options, num_devices=num_devices, mean_gain=mean_gain
    )
    parts = split(np.random.default_rng(seed or 0))
    classes = dataset.num_classes
    make_model = partial(MODELS[model], classes) if isinstance(model, str) else model
    check_maker(make_model, dataset.train_images[:2], dataset.train_labels[:2], classes)
    dataset.check_augment()
    upload = options.upload
    uploaded = None if upload is None else num_parameters(partial(MODELS[upload], classes))
    return Task(
        dataset,
        parts,
        make_model,
        options,
        server,
        uploaded,
        split if seed is None and options.partition in _SAME_SIZES else None,
    )


def new_model(make_model: Callable[[], nn.Module]) -> nn.Module:
    """A network whose initial parameters do not matter; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        return make_model()


def num_parameters(make_model: Callable[[], nn.Module]) -> int:
    """Number of parameters of a network; torch's generator is left as it was."""
    return sum(p.numel() for p in new_model(make_model).parameters())


def _split(
    rng: np.random.Generator,
    *,
    dataset: Dataset,
    options: TrainingOptions,
    num_devices: int,
    mean_gain: ArrayLike | None,
) -> list[IntArray]:
    """The samples of each device, drawn as the options say."""
    labels, concentration = dataset.train_labels.numpy(), options.concentration
    if options.partition == "iid":
        return iid(len(labels), num_devices, rng)
    if options.partition == "place":
        if mean_gain is None or np.asarray(mean_gain).shape != (num_devices,):
            raise ValueError(
                f"a split by place needs the mean_gain of each of {num_devices} devices, "
                f"got {mean_gain!r}"
            )
        return by_place(labels, mean_gain, concentration, rng)
    if options.partition == "writer":
        if dataset.train_writers is None:
            raise ValueError(f"the data set {dataset.name} does not say who its writers are")
        return by_writer(dataset.train_writers, num_devices)
    by_class = options.partition == "dirichlet-by-class"
    return (dirichlet_by_class if by_class else dirichlet_equal)(
        labels, num_devices, concentration, rng
    )

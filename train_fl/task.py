"""A learning task: data, split, network and the settings of local training."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import joblib
import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from fl_edge_env import Scenario
from fl_edge_env.checks import one_of, positive_integer
from fl_edge_env.typing import FloatArray, IntArray
from policies.user_code import load_own, names_own
from train_fl.compression import (
    Compressor,
    Shape,
    Uploads,
    load_compressor,
    make_compressor,
    upload_bytes,
)
from train_fl.data.catalogue import DATASETS, own_dataset
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.partition import label_histogram, split
from train_fl.models import MODELS, check_maker, new_model
from train_fl.modes import default_modes
from train_fl.options import TrainingOptions
from train_fl.server import FedAvg, ServerOptimizer, make_server_optimizer

# Draws a split: the samples of each device.
Split: TypeAlias = Callable[[np.random.Generator], list[IntArray]]


@dataclass(frozen=True, eq=False)
class Task:
    """A learning task: data, split, network and the settings of local training.

    Attributes
    ----------
    dataset : Dataset
        Inputs and their classes.
    parts : list of ndarray of int, length N
        Training samples of each device.
    make_model : callable
        Makes the network; its random numbers come from torch's generator.
    options : TrainingOptions
        Settings of local training; the learning rate is given.
    server : ServerOptimizer
        What the server does with the weighted sum of the updates.
    upload_shapes : sequence of tuple of int, optional
        Shapes of the tensors of the model that is uploaded; those of the network by default. With
        others, a network trains in place of a larger one whose time and energy the system counts.
    split : callable, optional
        Draws another split of the same sizes from a random generator. With it each episode has
        its own, and `parts` are an example; without it `parts` are those of every episode.
    compression : Compressor, optional
        A user-defined compressor of the updates; by default they are compressed as the scenario
        says.
    """

    dataset: Dataset
    parts: list[IntArray] = field(repr=False)
    make_model: Callable[[], nn.Module]
    options: TrainingOptions
    server: ServerOptimizer = field(default_factory=FedAvg)
    upload_shapes: Sequence[Shape] | None = None
    split: Split | None = None
    compression: Compressor | None = None

    def episode(self, seed: np.random.SeedSequence) -> Task:
        """The task with the split of an episode, by its `TrainingSeeds.split`.

        This one, where all episodes share a split.
        """
        if self.split is None:
            return self
        return replace(self, parts=self.split(np.random.default_rng(seed)), split=None)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the data, the split and the network's initial parameters for some seed.

        A network may read these from a file.
        """
        initial = self.initial_model(np.random.SeedSequence(0)).state_dict().values()
        parameters = [tensor.numpy() for tensor in initial]
        others = self.server, self.upload_shapes, self.split is None, self.compression
        return str(joblib.hash([self.dataset.fingerprint, self.parts, parameters, others]))

    @cached_property
    def num_samples(self) -> FloatArray:
        """Number of training samples of each device, shape (N,)."""
        return np.array([len(part) for part in self.parts], dtype=np.float64)

    def fit(self, scenario: Scenario, keep: Collection[str] = ()) -> Scenario:
        """The scenario, of as many devices, with what this task is in it.

        That is the model's size, the sample counts, and the compression if the task has one of its
        own; without the fields to `keep`.
        """
        fields = {name: value for name, value in self._fields.items() if name not in keep}
        return scenario.replace(**fields)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The fields of a scenario that follow from the task."""
        fields: dict[str, Any] = {
            "model_bits": self.model_bits,
            "model_tensors": len(self._uploaded),
            "num_samples": self.num_samples,
        }
        if self.compression is not None:
            size = 8 * upload_bytes(self.compression, self._uploaded)
            fields["compression"] = f"bits:{size}"
        return fields

    def uploads(self, scenario: Scenario) -> Uploads:
        """What happens to updates on their way in a scenario that this task fits."""
        return Uploads(self._shapes, self.compression or make_compressor(scenario.compression))

    def check_fit(self, scenario: Scenario) -> None:
        """Refuse a scenario of other devices, samples, uploads or costs with a `ValueError`."""
        if len(self.parts) != scenario.num_devices:
            raise ValueError(
                f"the task is split over {len(self.parts)} devices and the scenario has "
                f"{scenario.num_devices}: make the task with num_devices={scenario.num_devices}"
            )
        if self.compression is None and scenario.compression.startswith("bits:"):
            raise ValueError(
                f"the scenario's compression is {scenario.compression!r}, of a compressor of one's "
                "own: make the task with it, make_task(…, compression=…)"
            )
        counted = "qsgd" in scenario.compression + scenario.download_compression
        for name, value in self._fields.items():
            if name == "model_tensors" and not counted:
                continue
            given = getattr(scenario, name)
            # An even split may leave a scenario with a fraction of a sample.
            alike = np.all(np.abs(given - value) < 1) if name == "num_samples" else given == value
            if not alike:
                raise ValueError(
                    f"{name} of the scenario is {_shown(given)} and must be {_shown(value)} for "
                    f"{self.dataset.name} and the network: use task.fit(scenario), or the option "
                    "fit_scenario"
                )

    def initial_model(self, seed: np.random.SeedSequence) -> nn.Module:
        """The network of `TrainingSeeds.model`; torch's generators are left as they were."""
        return new_model(self.make_model, int(seed.generate_state(1, np.uint64)[0]))

    def learning_rate(self, completed_rounds: int, num_rounds: int) -> float:
        """The learning rate of the coming round: halved at 50 % and at 75 % of the rounds."""
        halvings = (completed_rounds >= 0.5 * num_rounds) + (completed_rounds >= 0.75 * num_rounds)
        rate = self.options.learning_rate
        assert rate is not None  # make_task has put the data set's own in its place
        return rate * 0.5**halvings

    @property
    def model_bits(self) -> float:
        """Size of an upload that is not compressed [bit]."""
        return 32.0 * sum(map(math.prod, self._uploaded))

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the network, d."""
        return sum(map(math.prod, self._shapes))

    @cached_property
    def _shapes(self) -> list[Shape]:
        """Shapes of the network's tensors."""
        return parameter_shapes(self.make_model)

    @property
    def _uploaded(self) -> Sequence[Shape]:
        return self._shapes if self.upload_shapes is None else self.upload_shapes

    @cached_property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        dataset = self.dataset
        return label_histogram(dataset.train_targets.numpy(), self.parts, dataset.num_classes)


class TrainingSeeds(NamedTuple):
    """The streams of random numbers of training in an episode.

    Of the initial parameters, of the order in which devices see their samples (see `sample_order`)
    and what comes after, and of the split of the samples over the devices (see `Task.episode`).
    """

    model: np.random.SeedSequence
    order: np.random.SeedSequence
    split: np.random.SeedSequence

    @classmethod
    def of(cls, training: np.random.SeedSequence) -> TrainingSeeds:
        """Those of `FLEdgeEnv.training_seed`, which is not changed."""
        fresh = np.random.SeedSequence(training.entropy, spawn_key=training.spawn_key)
        return cls(*fresh.spawn(len(cls._fields)))

    def upload(self, completed_rounds: int, device: int) -> np.random.Generator:
        """The stream of what happens to a device's update in a round."""
        return self._stream(completed_rounds, device, 1)

    def broadcast(self, completed_rounds: int) -> np.random.Generator:
        """The stream by which the model is compressed that the server sends in a round."""
        return self._stream(completed_rounds)

    def sample_order(self, completed_rounds: int, device: int) -> np.random.Generator:
        """The stream of a device's training in a round: who else takes part changes nothing."""
        return self._stream(completed_rounds, device)

    def _stream(self, *key: int) -> np.random.Generator:
        key = (*self.order.spawn_key, *key)
        return np.random.default_rng(np.random.SeedSequence(self.order.entropy, spawn_key=key))


@default_modes()
def make_task(
    dataset: str | Dataset,
    *,
    num_devices: int | None = None,
    merit: ArrayLike | None = None,
    model: str | Callable[[], nn.Module] | None = None,
    server: str | ServerOptimizer = "fedavg",
    compression: str | Compressor | None = None,
    **options: Any,
) -> Task:
    """A task from a data set, split over the devices.

    Parameters
    ----------
    dataset : str or Dataset
        ``"digits"``, ``"fashion_mnist"``, ``"cifar10"`` or ``"femnist"``. Or one's own data, as a
        `Dataset` or the name of a function (see `train_fl.data.catalogue.own_dataset`), which need
        `num_devices`, `learning_rate` and `model`.
    num_devices : int, optional
        Number of devices N: 40 for digits and 120 for the others by default.
    merit : ndarray, shape (N,), optional
        Ranks the devices in a split by place, such as `Scenario.mean_gain`, or by speed, such as
        `Scenario.f_max`.
    model : str or callable, optional
        The network: its name, or a class or function without arguments that makes one's own, as
        `train_fl.models.check_network` wants it. Its initial parameters come from torch's
        generator. By default that of the data set.
    server : str or ServerOptimizer
        The name of a server optimiser, or one itself; see `train_fl.server`.
    compression : str or Compressor, optional
        A user-defined compressor, or its name; by default updates are compressed as the scenario
        says. See `train_fl.compression`.
    **options
        Other options of `train_fl.options.TrainingOptions`, such as ``momentum=0.5``. By default
        FEMNIST is split by writer and the others by ``"dirichlet"``, and the learning rate is the
        paper's for CIFAR-10 and FEMNIST, 0.02 for digits and 0.01 for Fashion-MNIST. Without
        `split_seed` each episode has its own split (see `train_fl.data.partition`), if the devices'
        numbers of samples do not depend on it; a split by ``"writer"``, and the draw of FEMNIST's
        writers, are then those of seed 0.

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
    training = TrainingOptions(**options)
    known = DATASETS.get(dataset) if isinstance(dataset, str) else None
    if isinstance(dataset, str) and known is None:
        dataset = own_dataset(dataset)
    if known is not None:
        num_devices = known.num_devices if num_devices is None else num_devices
        model = known.model if model is None else model
        training = replace(
            training,
            learning_rate=training.learning_rate or known.learning_rate,
            partition=training.partition or known.partition,
        )
    elif num_devices is None or training.learning_rate is None or model is None:
        raise ValueError(
            "data of one's own need num_devices, learning_rate and model, got "
            f"{num_devices!r}, {training.learning_rate!r} and {model!r}"
        )
    num_devices = positive_integer("num_devices", num_devices)
    server = make_server_optimizer(server, training)
    if isinstance(model, str) and names_own(model):
        model = load_own(model, kind="class or function that makes a network", fits=callable)
    for option, named in (("model", model), ("upload", training.upload)):
        if isinstance(named, str):
            one_of(option, named, list(MODELS))
    if isinstance(compression, str):
        compression = load_compressor(compression)
    seed = training.split_seed
    if known is not None:
        folder = Path(training.data_dir)
        dataset = known.load(DataSource(folder, training.download, num_devices, seed or 0))
    assert isinstance(dataset, Dataset)
    draw = partial(split, dataset, training, num_devices, merit)
    classes, upload = dataset.num_classes, training.upload
    make_model = partial(MODELS[model], classes) if isinstance(model, str) else model
    task = Task(
        dataset,
        draw(np.random.default_rng(seed or 0)),
        make_model,
        training,
        server,
        None if upload is None else parameter_shapes(partial(MODELS[upload], classes)),
        # Each episode has its own split, unless numbers of samples depend on it.
        draw if seed is None and training.partition != "writer" else None,
        compression,
    )
    check_maker(make_model, *dataset.examples(), classes)
    dataset.check_augment()
    return task


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    low, high = np.min(value), np.max(value)
    return f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"


def parameter_shapes(make_model: Callable[[], nn.Module]) -> list[Shape]:
    """Shapes of the parameters of a network; torch's generator is left as it was."""
    return [tuple(p.shape) for p in new_model(make_model).parameters()]

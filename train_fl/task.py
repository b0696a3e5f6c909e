"""A learning task: data, split, network and training settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import joblib
import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import ArrayLike
from torch import nn

from fl_edge_env import Scenario
from fl_edge_env.checks import one_of, positive_integer, read_only
from fl_edge_env.files import user_path
from fl_edge_env.typing import FloatArray, IntArray
from policies.base import check_scenario
from policies.user_code import is_reference, load_reference
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
from train_fl.server import FedAvg, ServerOptimizer, make_server_optimizer
from train_fl.training_options import TrainingOptions

# Draws a split: the samples of each device.
Split: TypeAlias = Callable[[Generator], list[IntArray]]


@dataclass(frozen=True, eq=False)
class Task:
    """A learning task: data, split, network and training settings.

    Attributes
    ----------
    dataset : Dataset
        Inputs and their classes.
    parts : list of ndarray of int, length N
        Indices of each device's training samples.
    make_model : callable
        Makes the network; its initial parameters come from global generators.
    options : TrainingOptions
        Training settings; the learning rate must be set.
    server : ServerOptimizer
        Turns the weighted sum of the updates into the model's step.
    upload_shapes : sequence of tuple of int, optional
        Tensor shapes of the uploaded model, by default the network's. With other shapes, a small
        network trains while the system counts the uploads of a larger one.
    split : callable, optional
        Draws a split of the same sizes from a random generator, for each episode; `parts` is then
        only an example. By default all episodes use `parts`.
    compression : Compressor, optional
        A user-defined compressor of the updates; by default they are compressed as the scenario
        says.

    Raises
    ------
    ValueError
        If `parts` has indices that are not training samples, or there is no learning rate.
    """

    dataset: Dataset
    parts: list[IntArray] = field(repr=False)
    make_model: Callable[[], nn.Module]
    options: TrainingOptions
    server: ServerOptimizer = field(default_factory=FedAvg)
    upload_shapes: Sequence[Shape] | None = None
    split: Split | None = None
    compression: Compressor | None = None

    def __post_init__(self) -> None:
        last = len(self.dataset.train_targets) - 1
        indices = np.concatenate(self.parts)
        if indices.min() < 0 or indices.max() > last:
            raise ValueError(f"parts must hold indices from 0 to {last}, got {self.parts!r}")
        if self.options.learning_rate is None:
            raise ValueError("options must have a learning_rate, got None")

    def episode(self, seed: SeedSequence) -> Task:
        """The task with the split of an episode, drawn from its `TrainingSeeds.split`.

        Returns the task itself if all episodes share one split.
        """
        if self.split is None:
            return self
        return replace(self, parts=self.split(np.random.default_rng(seed)), split=None)

    @cached_property
    def identity(self) -> list[str]:
        """Hashes of the data, of the split and of the initial network for seed 0.

        The network may read its values from a file.
        """
        network = self.initial_model(SeedSequence(0))
        initial = [(name, value.numpy()) for name, value in network.state_dict().items()]
        return [self.dataset.fingerprint, joblib.hash(self.parts), joblib.hash(initial)]

    @cached_property
    def num_samples(self) -> FloatArray:
        """Number of training samples of each device, shape (N,)."""
        return read_only(np.array([len(part) for part in self.parts], dtype=np.float64))

    def fit(self, scenario: Scenario, keep: Collection[str] = ()) -> Scenario:
        """Fit a scenario, with the same number of devices, to this task.

        Sets the model's size, the sample counts and, if it is user-defined, the compression, except
        for the fields to `keep`.
        """
        check_scenario(scenario)
        fields = {name: value for name, value in self._fields.items() if name not in keep}
        return scenario.replace(**fields)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The scenario fields that the task determines."""
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
        """The uploads of updates in a scenario that this task fits."""
        return Uploads(self.shapes, self.compression or make_compressor(scenario.compression))

    def check_fit(self, scenario: Scenario) -> None:
        """Raise `ValueError` if a scenario has other devices, samples or uploads than the task."""
        check_scenario(scenario)
        if len(self.parts) != scenario.num_devices:
            raise ValueError(
                f"the task is split over {len(self.parts)} devices and the scenario has "
                f"{scenario.num_devices}: make the task with num_devices={scenario.num_devices}"
            )
        if self.compression is None and scenario.compression.startswith("bits:"):
            raise ValueError(
                f"the scenario's compression is {scenario.compression!r}, which needs a "
                "user-defined compressor: give it to make_task(…, compression=…)"
            )
        counted = "qsgd" in scenario.compression + scenario.download_compression
        for name, value in self._fields.items():
            if name == "model_tensors" and not counted:
                continue
            given = getattr(scenario, name)
            # An even split can give a scenario fractional sample counts.
            alike = np.all(np.abs(given - value) < 1) if name == "num_samples" else given == value
            if not alike:
                raise ValueError(
                    f"the scenario's {name} is {_shown(given)} and must be {_shown(value)} for "
                    f"{self.dataset.name} and the network: use task.fit(scenario), or the option "
                    "fit_scenario"
                )

    def initial_model(self, seed: SeedSequence) -> nn.Module:
        """The initial network for a `TrainingSeeds.model`; global generators do not change."""
        return new_model(self.make_model, int(seed.generate_state(1, np.uint64)[0]))

    def learning_rate(self, completed_rounds: int, num_rounds: int) -> float:
        """The learning rate of the coming round: halved at 50 % and at 75 % of the rounds."""
        halvings = (completed_rounds >= 0.5 * num_rounds) + (completed_rounds >= 0.75 * num_rounds)
        rate = self.options.learning_rate
        assert rate is not None  # make_task fills in the data set's
        return rate * 0.5**halvings

    @property
    def model_bits(self) -> float:
        """Size of an uncompressed upload [bit]."""
        return 32.0 * sum(map(math.prod, self._uploaded))

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the network, d."""
        return sum(map(math.prod, self.shapes))

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes of the network's parameter tensors."""
        return parameter_shapes(self.make_model)

    @property
    def _uploaded(self) -> Sequence[Shape]:
        return self.shapes if self.upload_shapes is None else self.upload_shapes

    @cached_property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        dataset = self.dataset
        targets = dataset.train_targets.numpy()
        return read_only(label_histogram(targets, self.parts, dataset.num_classes))


class TrainingSeeds(NamedTuple):
    """The random streams of an episode's training.

    `model` is for the initial parameters, `order` for the random draws of the rounds, such as the
    order of the samples, and `split` for the split of the samples over the devices.
    """

    model: SeedSequence
    order: SeedSequence
    split: SeedSequence

    @classmethod
    def of(cls, training: SeedSequence) -> TrainingSeeds:
        """The streams of a `FLEdgeEnv.training_seed`, which does not change."""
        fresh = SeedSequence(training.entropy, spawn_key=training.spawn_key)
        return cls(*fresh.spawn(len(cls._fields)))

    def upload(self, completed_rounds: int, device: int) -> Generator:
        """The stream that compresses a device's update in a round."""
        return self._stream(completed_rounds, device, 1)

    def broadcast(self, completed_rounds: int) -> Generator:
        """The stream that compresses the model that the server sends in a round."""
        return self._stream(completed_rounds)

    def sample_order(self, completed_rounds: int, device: int) -> Generator:
        """The stream of a device's training in a round, independent of the other participants."""
        return self._stream(completed_rounds, device)

    def _stream(self, *key: int) -> Generator:
        key = (*self.order.spawn_key, *key)
        return np.random.default_rng(SeedSequence(self.order.entropy, spawn_key=key))


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
    """Make a task from a data set, split over the devices.

    Parameters
    ----------
    dataset : str or Dataset
        ``"digits"``, ``"fashion_mnist"``, ``"cifar10"`` or ``"femnist"``, or user-defined data: a
        `Dataset`, or the name of a function or of a folder of images (see
        `train_fl.data.catalogue.own_dataset`). These also need `num_devices`, `learning_rate` and
        `model`.
    num_devices : int, optional
        Number of devices N: 40 for digits and 120 for the others by default.
    merit : ndarray, shape (N,), optional
        Ranks the devices, larger is better, in a split by place, such as `Scenario.mean_gain`, or
        by speed, such as `Scenario.f_max`.
    model : str or callable, optional
        The network's name, or a class or function without arguments that makes a network (see
        `train_fl.models.check_maker`), with initial parameters from global generators. By default
        the data set's network.
    server : str or ServerOptimizer
        A server optimiser or its name; see `train_fl.server`.
    compression : str or Compressor, optional
        A user-defined compressor, or its name; by default updates are compressed as the scenario
        says. See `train_fl.compression`.
    **options
        Other `train_fl.training_options.TrainingOptions`, such as ``momentum=0.5``. By default
        FEMNIST is split by writer and the others by ``"dirichlet"``, and the learning rate is the
        paper's for CIFAR-10 and FEMNIST, 0.02 for digits and 0.01 for Fashion-MNIST. Without
        `split_seed` each episode has its own split (see `train_fl.data.partition`). A split by
        ``"writer"`` and the draw of FEMNIST's writers change the sample counts, and therefore use
        seed 0 in all episodes.

    Returns
    -------
    Task

    Raises
    ------
    ValueError
        If there is no such data set or network, files are missing or damaged, the network does
        not fit the data, or an argument is out of range.
    TypeError
        If there is no such option.
    """
    if not isinstance(dataset, (str, Dataset)):
        raise ValueError(f"dataset must be a name or a Dataset, got {dataset!r}")
    training = TrainingOptions(**options)
    known = DATASETS.get(dataset) if isinstance(dataset, str) else None
    if isinstance(dataset, str) and known is None:
        dataset = own_dataset(dataset)
    if known is not None:
        num_devices = known.num_devices if num_devices is None else num_devices
        model = model or known.model
        training = replace(
            training,
            learning_rate=training.learning_rate or known.learning_rate,
            partition=training.partition or known.partition,
        )
    elif num_devices is None or training.learning_rate is None or model is None:
        raise ValueError(
            "user-defined data need num_devices, learning_rate and model, got "
            f"{num_devices!r}, {training.learning_rate!r} and {model!r}"
        )
    num_devices = positive_integer("num_devices", num_devices)
    server = make_server_optimizer(server, training)
    model = _found_model(model)
    upload = training.upload
    if upload is not None:
        one_of("upload", upload, list(MODELS))
    if isinstance(compression, str):
        compression = load_compressor(compression)
    seed = training.split_seed
    if known is not None:
        folder = user_path(training.data_dir)
        dataset = known.load(DataSource(folder, training.download, num_devices, seed or 0))
    assert isinstance(dataset, Dataset)
    draw = partial(split, dataset, training, num_devices, merit)
    classes = dataset.num_classes
    make_model = partial(MODELS[model], classes) if isinstance(model, str) else model
    task = Task(
        dataset,
        draw(np.random.default_rng(seed or 0)),
        make_model,
        training,
        server,
        None if upload is None else parameter_shapes(partial(MODELS[upload], classes)),
        # Each episode has its own split, unless sample counts depend on it.
        draw if seed is None and training.partition != "writer" else None,
        compression,
    )
    check_maker(make_model, dataset.train_inputs[:2], classes)
    dataset.check_augment()
    return task


def _found_model(model: Any) -> Any:
    """The name of a network of FLEdge, or a function that makes one, loaded if it has a file."""
    if not isinstance(model, str):
        return model
    if is_reference(model):
        return load_reference(model, kind="class or function that makes a network")
    return one_of("model", model, list(MODELS))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    low = np.min(value)
    high = np.max(value)
    return f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"


def parameter_shapes(make_model: Callable[[], nn.Module]) -> list[Shape]:
    """Shapes of a network's parameters; global generators do not change."""
    return [tuple(p.shape) for p in new_model(make_model).parameters()]

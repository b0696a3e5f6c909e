"""A data set: inputs and targets, perhaps of one's own, and where its files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torchvision.datasets import CIFAR10, FashionMNIST

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import as_value_error
from fl_edge_env.typing import IntArray
from policies.own import running_own
from train_fl.objective import ACCURACY, Loss, Metric, cross_entropies, make_loss, make_metric

# One wrong label must not fill the memory with classes that have no sample.
_MOST_CLASSES = 1_000_000
# Changes a batch of inputs at random, such as images of shape (batch, channels, height, width).
Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets for training and for testing, the loss and the metric.

    Data of one's own come `from_arrays` or `from_torch`.

    Attributes
    ----------
    name : str
        Its name.
    train_inputs, test_inputs : Tensor of float32 or int64, shape (samples, ...)
        What the network is given, such as normalised images of shape (samples, channels, height,
        width), rows of a table or tokens.
    train_targets, test_targets : Tensor
        Classes from 0 on, int64 of shape (samples,); or numbers, float32 of shape
        (samples, outputs).
    num_classes : int
        Number of classes C, 0 where targets are numbers.
    train_writers : ndarray of int, shape (samples,), optional
        Who made each training sample, counted from 0, in data that come from several people.
    augment : callable, optional
        Random changes of the inputs of a training batch: ``augment(inputs, rng)`` gives inputs of
        the same shape, and draws its random numbers from the NumPy generator ``rng`` alone.
    loss : callable
        ``loss(outputs, targets)`` gives the loss of each sample of a batch, shape (batch,), which
        is finite and differentiable; its mean is what local training makes small.
    metric : Metric
        By which models are judged on the test set.
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    num_classes: int
    train_writers: IntArray | None = None
    augment: Augmentation | None = None
    loss: Loss = cross_entropies
    metric: Metric = ACCURACY

    def __repr__(self) -> str:
        targets = f"{self.num_classes} classes" if self.num_classes else "targets are numbers"
        return (
            f"Dataset({self.name}, {len(self.train_targets)} training and {len(self.test_targets)} "
            f"test samples of shape {tuple(self.train_inputs.shape[1:])}, {targets})"
        )

    @property
    def num_outputs(self) -> int:
        """Numbers that a network gives for a sample: one for each class, or for each target."""
        return self.num_classes or self.train_targets.shape[1]

    def examples(self) -> tuple[Tensor, Tensor]:
        """A few inputs and targets on which networks and losses are tried.

        Where inputs are integers, these are samples with the least and the largest at each place,
        such as the largest token, of which an embedding might have no row.
        """
        if self.train_inputs.is_floating_point():
            return self.train_inputs[:2], self.train_targets[:2]
        inputs = torch.cat([self.train_inputs, self.test_inputs])
        places = inputs.flatten(1).numpy()
        rows = np.unique([places.argmin(axis=0), places.argmax(axis=0)])
        return inputs[rows], torch.cat([self.train_targets, self.test_targets])[rows]

    def judged(self, loss: str | Loss | None, metric: str | Metric | None) -> Dataset:
        """The same data with another loss and metric, where these are given, by name or as such.

        Raises
        ------
        ValueError
            If there is no such loss or metric for these targets.
        """
        classes = self.num_classes > 0
        return replace(
            self,
            loss=self.loss if loss is None else make_loss(loss, classes=classes),
            metric=self.metric if metric is None else make_metric(metric, classes=classes),
        )

    def check_metric(self) -> None:
        """Refuse a metric that does not work for the targets of the test set."""
        if self.metric != ACCURACY:
            shape = len(self.test_targets), self.num_outputs
            outputs = torch.rand(shape, generator=torch.Generator().manual_seed(0))
            self.metric.of(outputs, self.test_targets)

    def check_augment(self) -> None:
        """Refuse an `augment` that fails, changes shape or type or draws other random numbers."""
        if self.augment is None:
            return
        inputs = self.train_inputs[:64]
        with torch.random.fork_rng(devices=[]):
            changed = []
            for _ in range(2):
                with running_own("augment must be called as augment(inputs, rng)"):
                    changed.append(self.augment(inputs.clone(), np.random.default_rng(0)))
        for result in changed:
            if not isinstance(result, Tensor) or result.shape != inputs.shape:
                got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
                raise ValueError(
                    f"augment must give inputs of the shape of its own, {tuple(inputs.shape)}, "
                    f"got {got}"
                )
            if result.dtype != inputs.dtype:
                raise ValueError(f"augment must give inputs of {inputs.dtype}, got {result.dtype}")
            if not (finite := torch.isfinite(result)).all():
                raise ValueError(
                    f"augment must give finite inputs, got {float(result[~finite][0])}"
                )
        if not torch.equal(*changed):
            raise ValueError(
                "augment must draw its random numbers from the generator it is given, as no seed "
                "names others: twice the same inputs and generator gave different inputs"
            )

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_inputs: ArrayLike,
        train_targets: ArrayLike,
        test_inputs: ArrayLike,
        test_targets: ArrayLike,
        *,
        train_writers: ArrayLike | None = None,
        augment: Augmentation | None = None,
        loss: str | Loss | None = None,
        metric: str | Metric | None = None,
    ) -> Dataset:
        """A data set of one's own; the arrays are copied.

        Parameters
        ----------
        name, train_writers, augment
            The attributes of `Dataset`.
        train_inputs, test_inputs : array_like, shape (samples, ...)
            They are taken as they are, not normalised. Integers stay integers, as tokens must,
            but for images, of shape (samples, channels, height, width).
        train_targets, test_targets : array_like
            Integers from 0 on are classes, shape (samples,). Floats are numbers to predict, shape
            (samples,) or (samples, outputs).
        loss : str or callable, optional
            ``"cross_entropy"`` for classes; ``"mse"``, the default, or ``"mae"``, each a mean over
            outputs, for numbers; or one's own, see `Dataset`.
        metric : str or Metric, optional
            ``"accuracy"`` for classes; ``"rmse"``, the default, or ``"mae"`` for numbers; or one's
            own.

        Raises
        ------
        ValueError
            If shapes do not fit, a value is not finite, a target is no class, or there is no such
            loss or metric.
        """
        parts: list[Tensor] = []
        for split, given, wanted in (
            ("train", train_inputs, train_targets),
            ("test", test_inputs, test_targets),
        ):
            inputs = _inputs(f"{split}_inputs", given)
            targets = _targets(f"{split}_targets", wanted, len(inputs))
            if split == "train" and not targets.is_floating_point() and targets.min() > 0:
                raise ValueError(
                    "train_targets must be counted from 0, each class with a sample, and the least "
                    f"is {targets.min()}: subtract it"
                )
            parts += [inputs, targets]
        for what, (train, test) in (("inputs", parts[::2]), ("targets", parts[1::2])):
            if train.dtype != test.dtype:
                raise ValueError(
                    f"train_{what} and test_{what} must both be integers or both be floats, "
                    f"got {train.dtype} and {test.dtype}"
                )
            if train.shape[1:] != test.shape[1:]:
                raise ValueError(
                    f"train_{what} and test_{what} must be of one shape, "
                    f"got {tuple(train.shape[1:])} and {tuple(test.shape[1:])}"
                )
        writers = None
        if train_writers is not None:
            writers = _integers("train_writers", train_writers, len(parts[1]))
        classes = not parts[1].is_floating_point()
        return cls(
            name,
            parts[0],
            parts[1],
            parts[2],
            parts[3],
            num_classes=1 + int(max(parts[1].max(), parts[3].max())) if classes else 0,
            train_writers=writers,
            augment=augment,
            loss=make_loss(loss, classes=classes),
            metric=make_metric(metric, classes=classes),
        )

    @classmethod
    def from_torch(
        cls,
        name: str,
        train: torch.utils.data.Dataset[Any],
        test: torch.utils.data.Dataset[Any],
        **options: Any,
    ) -> Dataset:
        """A data set out of two of torch's, such as those of torchvision.

        Every sample is read once and kept in memory.

        Parameters
        ----------
        name
            As of a `Dataset`.
        train, test : torch.utils.data.Dataset
            With a length, and pairs of an input and its target. All inputs are tensors or arrays
            of one shape, such as (channels, height, width) after torchvision's ``ToTensor``;
            targets are classes, numbers or arrays of numbers.
        **options
            `augment`, `loss` and `metric`, as of `from_arrays`.

        Raises
        ------
        ValueError
            If a sample is something else; see also `from_arrays`.
        """
        return cls.from_arrays(name, *_read(train, "train"), *_read(test, "test"), **options)


@dataclass(frozen=True)
class DataSource:
    """The folder of a data set's files, if missing ones are fetched, and the people to draw.

    `num_devices` is their number, in data that come from people, and `seed` that of the draw and of
    the samples held out for testing.
    """

    folder: Path = Path("data")
    download: bool = False
    num_devices: int = 120
    seed: int = 0

    def __post_init__(self) -> None:
        integer_at_least(1, "num_devices", self.num_devices)

    def fetch(self, dataset: type[FashionMNIST | CIFAR10]) -> None:
        """Let torchvision fetch missing files of a data set that it knows, or a `ValueError`."""
        with as_value_error(f"cannot download {dataset.__name__} to {str(self.folder)!r}: "):
            dataset(self.folder, download=True)


def standardise(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Images (samples, channels, height, width) less the training mean, over its deviation."""
    deviation, mean = torch.std_mean(train, dim=(0, 2, 3), keepdim=True)
    deviation = torch.where(deviation > 0, deviation, 1.0)  # of a channel that is the same all over
    return (train - mean) / deviation, (test - mean) / deviation


def _inputs(name: str, given: ArrayLike) -> Tensor:
    """A copy of inputs, float32 or, as tokens are, int64."""
    array = _array(name, given)
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be numbers, got {array.dtype}: turn words into tokens, and categories "
            "into columns"
        )
    if array.ndim < 2 or len(array) == 0:
        raise ValueError(
            f"{name} must have shape (samples, ...), with a sample and an axis of its own, "
            f"got {array.shape}: a single column is array[:, None]"
        )
    if array.dtype.kind in "iu" and array.ndim != 4:
        return torch.from_numpy(_below_2_63(name, array))
    with np.errstate(over="ignore"):  # it is refused here
        values = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    if not torch.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    return values


def _targets(name: str, given: ArrayLike, size: int) -> Tensor:
    """A copy of targets, classes or numbers."""
    array = _array(name, given)
    if array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be integers, which are classes, or floats, which are numbers to predict, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if array.dtype.kind == "f":
        if array.ndim not in (1, 2) or len(array) != size or array.size == 0:
            raise ValueError(
                f"{name} must have shape ({size},) or ({size}, outputs), a row for each sample, "
                f"got {array.shape}"
            )
        with np.errstate(over="ignore"):
            values = torch.from_numpy(np.array(array.reshape(size, -1), dtype=np.float32))
        if not torch.isfinite(values).all():
            raise ValueError(f"{name} must be finite numbers below 3.4e38, got NaN or larger ones")
        return values
    classes = _integers(name, array, size)
    for label in (classes.min(), classes.max()):
        if not 0 <= label < _MOST_CLASSES:
            raise ValueError(
                f"{name} must be at least 0 and below {_MOST_CLASSES}, got {label}: numbers to "
                "predict that are no classes are given as floats"
            )
    return torch.from_numpy(classes)


def _array(name: str, given: ArrayLike) -> NDArray[Any]:
    with as_value_error(f"{name} must make an array: "):
        return np.asarray(given)


def _integers(name: str, values: ArrayLike, size: int) -> IntArray:
    """A copy of one integer for each sample."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != (size,):
        raise ValueError(
            f"{name} must be {size} integers of 64 bits, one for each sample, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return _below_2_63(name, array)


def _below_2_63(name: str, array: NDArray[Any]) -> IntArray:
    if array.size and (largest := array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be integers below 2**63, got {largest}")
    return np.array(array, dtype=np.int64, order="C")


def _read(samples: Any, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets of one of torch's data sets."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise ValueError(f"{split} must be a torch Dataset with a length, got {samples!r}")
    read: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for index in range(len(samples)):
        sample = samples[index]
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            raise ValueError(
                f"{split} must hold pairs of an input and its target, sample {index} is a "
                f"{type(sample).__name__}"
            )
        given, target = sample
        if not isinstance(given, (Tensor, np.ndarray)):
            raise ValueError(
                f"{split} must hold inputs as tensors, that of sample {index} is a "
                f"{type(given).__name__}: give a data set of images transform=ToTensor()"
            )
        pair = np.asarray(given), np.asarray(target)
        if pair[1].dtype.kind not in "iuf":
            raise ValueError(
                f"{split} must hold classes as integers or numbers as floats, sample {index} has "
                f"{target!r}"
            )
        for what, one, first in zip(("inputs", "targets"), pair, (read or [pair])[0], strict=True):
            if one.shape != first.shape:
                raise ValueError(
                    f"{split} must hold {what} of one shape, that of sample 0 has {first.shape} "
                    f"and that of sample {index} {one.shape}: resize them"
                )
        read.append(pair)
    if not read:
        raise ValueError(f"{split} must hold samples, got none")
    inputs, targets = (np.stack(values) for values in zip(*read, strict=True))
    # Of torch's habit of one target in an array of shape (1,).
    return inputs, targets[:, 0] if targets.dtype.kind in "iu" and targets.shape[1:] == (
        1,
    ) else targets

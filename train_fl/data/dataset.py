"""Data sets for classification, and where their files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fl_edge_env.checks import is_line
from fl_edge_env.files import as_value_error
from fl_edge_env.typing import IntArray
from policies.user_code import user_errors
from train_fl.modes import default_modes

# Keeps one wrong label from filling the memory with empty classes.
_MOST_CLASSES = 1_000_000
# Changes a batch of inputs at random, such as images of shape (batch, channels, height, width).
Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and their classes for training and testing; see `from_arrays` and `from_torch`.

    Attributes
    ----------
    name : str
        Name in messages.
    train_inputs : Tensor of float32 or int64, shape (samples, ...)
        Inputs of the network, such as normalised images of shape (samples, channels, height,
        width), rows of a table or tokens.
    train_targets : Tensor of int64, shape (samples,)
        Class of each sample, counted from 0.
    test_inputs : Tensor
        Inputs of the test samples.
    test_targets : Tensor
        Classes of the test samples.
    num_classes : int
        Number of classes C; a network needs an output for each.
    train_writers : ndarray of int, shape (samples,), optional
        Writer of each training sample, counted from 0, if several people made the data.
    augment : callable, optional
        Augments a training batch: ``augment(inputs, rng)`` returns inputs of the same shape and
        draws random numbers only from the NumPy generator ``rng``.
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    num_classes: int
    train_writers: IntArray | None = None
    augment: Augmentation | None = None

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name}, {len(self.train_targets)} training and {len(self.test_targets)} "
            f"test samples of shape {tuple(self.train_inputs.shape[1:])}, "
            f"{self.num_classes} classes)"
        )

    def __deepcopy__(self, memo: object) -> Dataset:
        return self  # immutable, so copies of an environment share the data

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the arrays."""
        tensors = self.train_inputs, self.train_targets, self.test_inputs, self.test_targets
        arrays = [tensor.numpy() for tensor in tensors]
        return str(joblib.hash([*arrays, self.num_classes, self.train_writers]))

    @property
    def identity(self) -> tuple[str, str, Augmentation | None]:
        """Everything that distinguishes the data set: its name, arrays and augmentation."""
        return self.name, self.fingerprint, self.augment

    def examples(self) -> Tensor:
        """A few inputs for trying a network.

        Integer inputs include the smallest and the largest value at each position, such as the
        largest token, for which an embedding may lack a row.
        """
        if self.train_inputs.is_floating_point():
            return self.train_inputs[:2]
        inputs = torch.cat([self.train_inputs, self.test_inputs])
        values = inputs.flatten(1).numpy()
        rows = np.unique([values.argmin(axis=0), values.argmax(axis=0)])
        return inputs[rows]

    def check_augment(self) -> None:
        """Reject an `augment` that fails, changes shape or type, or ignores its generator."""
        if self.augment is None:
            return
        inputs = self.train_inputs[:64]
        with user_errors("augment(inputs, rng) fails"):
            one, other = (self.augment(inputs.clone(), np.random.default_rng(0)) for _ in range(2))
        if _kind(one) != _kind(inputs) or not torch.isfinite(one).all():
            raise ValueError(
                f"augment must return finite inputs of the same kind, {_kind(inputs)}, "
                f"got {_kind(one)}"
            )
        if not torch.equal(one, other):
            raise ValueError(
                "augment must draw random numbers only from the generator it is given: two calls "
                "with the same inputs and generator gave different results"
            )

    @classmethod
    @default_modes()
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
    ) -> Dataset:
        """Make a data set from arrays, which are copied.

        Parameters
        ----------
        name, train_writers, augment
            The attributes of `Dataset`.
        train_inputs, test_inputs : array_like, shape (samples, ...)
            Used without normalisation. Integers, such as tokens, stay integers unless they are
            images, of shape (samples, channels, height, width).
        train_targets, test_targets : array_like of int, shape (samples,)
            Classes, counted from 0.

        Raises
        ------
        ValueError
            If shapes do not match, a value is not finite, a target is not a class, or the name is
            not printable text.
        """
        if not is_line(name):
            raise ValueError(f"name must be printable text, got {name!r}")
        train = _inputs("train_inputs", train_inputs)
        test = _inputs("test_inputs", test_inputs)
        classes = _classes("train_targets", train_targets, len(train))
        test_classes = _classes("test_targets", test_targets, len(test))
        if classes.min() > 0:
            raise ValueError(
                f"train_targets must count classes from 0, but the smallest is {classes.min()}: "
                "subtract it"
            )
        if train.dtype != test.dtype:
            raise ValueError(
                "train_inputs and test_inputs must both be integers or both be floats, "
                f"got {train.dtype} and {test.dtype}"
            )
        if train.shape[1:] != test.shape[1:]:
            raise ValueError(
                "samples of train_inputs and test_inputs must have the same shape, "
                f"got {tuple(train.shape[1:])} and {tuple(test.shape[1:])}"
            )
        writers = None
        if train_writers is not None:
            writers = _integers("train_writers", train_writers, len(train))
            if writers.min() < 0:
                raise ValueError(f"train_writers must be at least 0, got {writers.min()}")
        return cls(
            name,
            train,
            classes,
            test,
            test_classes,
            num_classes=1 + int(max(classes.max(), test_classes.max())),
            train_writers=writers,
            augment=augment,
        )

    @classmethod
    def from_torch(
        cls,
        name: str,
        train: torch.utils.data.Dataset[Any],
        test: torch.utils.data.Dataset[Any],
        **options: Any,
    ) -> Dataset:
        """Make a data set from two torch data sets, such as torchvision's; see `from_arrays`.

        Both have a length and yield samples (input, class). All inputs are tensors or arrays of one
        shape, such as (channels, height, width) after torchvision's ``ToTensor``. Every sample is
        read once and kept in memory. Raises `ValueError` for any other sample.
        """
        return cls.from_arrays(name, *_read(train, "train"), *_read(test, "test"), **options)


@dataclass(frozen=True)
class DataSource:
    """The folder of a data set's files, and whether missing ones are downloaded.

    FEMNIST draws `num_devices` writers; `seed` determines this draw and the samples held out for
    testing.
    """

    folder: Path = Path("data")
    download: bool = False
    num_devices: int = 120
    seed: int = 0


def _kind(values: Any) -> str:
    kind = getattr(values, "dtype", type(values).__name__)
    return f"{kind} of shape {tuple(np.shape(values))}"


def _inputs(name: str, given: ArrayLike) -> Tensor:
    """A copy of inputs as float32, or as int64 if they are tokens."""
    wanted = "real numbers, such as tokens for words and columns for categories"
    array = _array(name, given, "fiub", wanted)
    if array.ndim < 2 or len(array) == 0:
        raise ValueError(
            f"{name} must have shape (samples, ...), with at least one sample and two axes, "
            f"got {array.shape}: write a single column as array[:, None]"
        )
    if array.dtype.kind in "iu" and array.ndim != 4:
        return torch.from_numpy(np.array(array, dtype=np.int64, order="C"))
    with np.errstate(over="ignore"):  # infinite values are rejected below
        values = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    if not torch.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    return values


def _classes(name: str, given: ArrayLike, size: int) -> Tensor:
    """A copy of the samples' classes."""
    classes = _integers(name, given, size)
    for label in (classes.min(), classes.max()):
        if not 0 <= label < _MOST_CLASSES:
            raise ValueError(f"{name} must be at least 0 and below {_MOST_CLASSES}, got {label}")
    return torch.from_numpy(classes)


def _integers(name: str, given: ArrayLike, size: int) -> IntArray:
    """A copy of integers, one for each sample."""
    array = _array(name, given, "iu", "64-bit integers, one for each sample")
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {array.shape}")
    return np.array(array, dtype=np.int64, order="C")


def _array(name: str, given: ArrayLike, kinds: str, wanted: str) -> NDArray[Any]:
    with as_value_error(f"{name} must convert to an array: "):
        array = np.asarray(given)
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} must hold {wanted}, got {array.dtype}")
    return array


def _read(samples: Any, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets of a torch data set."""
    with as_value_error(f"{split} must hold samples (input, class) with inputs of one shape: "):
        inputs, targets = zip(*(samples[index] for index in range(len(samples))), strict=True)
        wrong = [one for one in inputs if not isinstance(one, (Tensor, np.ndarray))]
        if wrong:
            raise TypeError(
                f"got a {type(wrong[0]).__name__}: pass transform=ToTensor() to an image data set"
            )
        classes = np.array([np.asarray(target) for target in targets])
        # Some data sets give each class in an array of shape (1,).
        return np.stack(inputs), classes.reshape(len(classes), -1)[:, 0]

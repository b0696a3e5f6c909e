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
from torch.utils.data import default_collate

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

    Raises
    ------
    ValueError
        If the arrays do not fit each other or `num_classes`, or the name is not printable text.
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    num_classes: int
    train_writers: IntArray | None = None
    augment: Augmentation | None = None

    def __post_init__(self) -> None:
        if not is_line(self.name):
            raise ValueError(
                f"name must be printable text without spaces around it, got {self.name!r}"
            )
        train = _checked_kind("train", self.train_inputs, self.train_targets, self.num_classes)
        test = _checked_kind("test", self.test_inputs, self.test_targets, self.num_classes)
        if train != test:
            raise ValueError(
                f"samples of train_inputs and test_inputs must be alike, got {train} and {test}"
            )
        writers = self.train_writers
        if writers is not None:
            if writers.shape != self.train_targets.shape:
                raise ValueError(
                    f"train_writers must have shape ({len(self.train_inputs)},), as many as "
                    f"train_inputs, got {writers.shape}"
                )
            if writers.min() < 0:
                raise ValueError(f"train_writers must be at least 0, got {writers.min()}")

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
        arrays = map(Tensor.numpy, tensors)
        return str(joblib.hash([*arrays, self.num_classes, self.train_writers]))

    def check_augment(self) -> None:
        """Reject an `augment` that fails or ignores its generator."""
        if self.augment is None:
            return
        inputs = self.train_inputs[:64]
        with user_errors("augment(inputs, rng) fails"):
            one, other = (self.augment(inputs.clone(), np.random.default_rng(0)) for _ in range(2))
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
            If a value is not finite, no training sample is of class 0, or `Dataset` rejects the
            arrays.
        """
        classes = _integers("train_targets", train_targets)
        test_classes = _integers("test_targets", test_targets)
        if classes.size and classes.min() > 0:
            raise ValueError(
                "train_targets must count classes from 0, but the smallest is "
                f"{classes.min()}: subtract it"
            )
        largest = max(each.max(initial=0) for each in (classes, test_classes))
        return cls(
            name,
            _inputs("train_inputs", train_inputs),
            torch.from_numpy(classes),
            _inputs("test_inputs", test_inputs),
            torch.from_numpy(test_classes),
            num_classes=min(1 + int(largest), _MOST_CLASSES),
            train_writers=None
            if train_writers is None
            else _integers("train_writers", train_writers),
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


def _checked_kind(split: str, inputs: Tensor, targets: Tensor, num_classes: int) -> str:
    """The kind of a split's inputs; `ValueError` unless each of them has a class."""
    if inputs.ndim < 2 or len(inputs) == 0:
        raise ValueError(
            f"{split}_inputs must have shape (samples, ...), with at least one sample and two "
            f"axes, got {tuple(inputs.shape)}: write a single column as array[:, None]"
        )
    if targets.dtype != torch.int64 or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"{split}_targets must be int64 of shape ({len(inputs)},), as many as {split}_inputs, "
            f"got {targets.dtype} of shape {tuple(targets.shape)}"
        )
    low, high = targets.aminmax()
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"{split}_targets must be from 0 to {num_classes - 1}, got {low} to {high}"
        )
    return f"{inputs.dtype} of shape {tuple(inputs.shape[1:])}"


def _inputs(name: str, given: ArrayLike) -> Tensor:
    """A copy of inputs as float32, or as int64 if they are tokens."""
    array = _array(
        name, given, "fiub", "real numbers, such as tokens for words and columns for categories"
    )
    tokens = array.dtype.kind in "iu" and array.ndim != 4
    with np.errstate(over="ignore"):  # infinite values are rejected below
        values = torch.from_numpy(np.array(array, np.int64 if tokens else np.float32, order="C"))
    if not torch.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    return values


def _integers(name: str, given: ArrayLike) -> IntArray:
    """A copy of integers, one for each sample."""
    array = _array(name, given, "iu", "64-bit integers, one for each sample")
    return np.array(array, np.int64, order="C")


def _array(name: str, given: ArrayLike, kinds: str, wanted: str) -> NDArray[Any]:
    with as_value_error(f"{name} must convert to an array: "):
        array = np.asarray(given)
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} must hold {wanted}, got {array.dtype}")
    return array


def _read(samples: Any, split: str) -> tuple[Any, NDArray[Any]]:
    """Inputs and targets of a torch data set."""
    with as_value_error(
        f"{split} must hold samples (input, class) with inputs of one shape, of images with "
        "transform=ToTensor(): "
    ):
        inputs, targets = default_collate([samples[index] for index in range(len(samples))])
        # Some data sets give each class in an array of shape (1,).
        return inputs, np.asarray(targets).reshape(len(targets), -1)[:, 0]

"""What a data set is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fl_edge_env.checks import integer_at_least
from fl_edge_env.typing import IntArray

# Changes a batch of images at random, shape (batch, channels, height, width).
Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels for training and for testing.

    Attributes
    ----------
    name : str
        Its name.
    train_images, test_images : Tensor of float32, shape (samples, channels, height, width)
        Normalised images.
    train_labels, test_labels : Tensor of int64, shape (samples,)
        Classes from 0 on.
    num_classes : int
        Number of classes C.
    train_writers : ndarray of int, shape (samples,), optional
        Who made each training sample, counted from 0, in data that come from several people.
    augment : callable, optional
        Random changes of the images of a training batch.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    num_classes: int
    train_writers: IntArray | None = None
    augment: Augmentation | None = None

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_images: ArrayLike,
        train_labels: ArrayLike,
        test_images: ArrayLike,
        test_labels: ArrayLike,
        *,
        train_writers: ArrayLike | None = None,
        augment: Augmentation | None = None,
    ) -> Dataset:
        """A data set of one's own; the arrays are copied.

        Parameters
        ----------
        name : str
            Its name.
        train_images, test_images : array_like, shape (samples, channels, height, width)
            Images as the network takes them; nothing is normalised.
        train_labels, test_labels : array_like of int, shape (samples,)
            Classes from 0 on.
        train_writers : array_like of int, shape (samples,), optional
            Who made each training sample, counted from 0.
        augment : callable, optional
            Random changes of the images of a training batch.

        Raises
        ------
        ValueError
            If shapes do not fit, a value is not finite or a label is not a class.
        """
        parts: list[Tensor] = []
        for split, images, labels in (
            ("train", train_images, train_labels),
            ("test", test_images, test_labels),
        ):
            pixels = torch.from_numpy(np.array(np.asarray(images), dtype=np.float32, order="C"))
            classes = np.asarray(labels)
            if pixels.ndim != 4 or len(pixels) == 0:
                raise ValueError(
                    f"{split}_images must have shape (samples, channels, height, width), "
                    f"got {tuple(pixels.shape)}"
                )
            if not torch.isfinite(pixels).all():
                raise ValueError(f"{split}_images must be finite")
            if classes.dtype.kind not in "iu" or classes.shape != pixels.shape[:1]:
                raise ValueError(
                    f"{split}_labels must be {len(pixels)} integers, one for each image, "
                    f"got {classes.dtype} of shape {classes.shape}"
                )
            if classes.min() < 0:
                raise ValueError(f"{split}_labels must be at least 0, got {classes.min()}")
            parts += [pixels, torch.as_tensor(classes.astype(np.int64))]
        if parts[0].shape[1:] != parts[2].shape[1:]:
            raise ValueError(
                "train_images and test_images must be of one shape, "
                f"got {tuple(parts[0].shape[1:])} and {tuple(parts[2].shape[1:])}"
            )
        writers = None
        if train_writers is not None:
            given = np.asarray(train_writers)
            if given.dtype.kind not in "iu" or given.shape != parts[1].shape:
                raise ValueError(
                    f"train_writers must be {len(parts[1])} integers, one for each image, "
                    f"got {given.dtype} of shape {given.shape}"
                )
            writers = given.astype(np.int64)
        num_classes = 1 + int(max(parts[1].max(), parts[3].max()))
        return cls(name, parts[0], parts[1], parts[2], parts[3], num_classes, writers, augment)


@dataclass(frozen=True)
class DataSource:
    """Where a data set's files are, and what to take from them.

    Parameters
    ----------
    folder : Path
        Folder with the files.
    download : bool
        Whether to fetch missing files from the internet.
    num_devices : int
        Number of people to draw, in data that come from people.
    seed : int
        Seed of that draw and of what is held out for testing.

    Raises
    ------
    ValueError
        If `num_devices` is not a positive integer.
    """

    folder: Path = Path("data")
    download: bool = False
    num_devices: int = 120
    seed: int = 0

    def __post_init__(self) -> None:
        integer_at_least(1, "num_devices", self.num_devices)


def standardise(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Shift and scale each channel by the training images' mean and deviation.

    Parameters
    ----------
    train, test : Tensor of float32, shape (samples, channels, height, width)

    Returns
    -------
    train, test : Tensor
    """
    deviation, mean = torch.std_mean(train, dim=(0, 2, 3), keepdim=True)
    return (train - mean) / deviation, (test - mean) / deviation

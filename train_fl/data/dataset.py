"""A data set: images and labels, perhaps of one's own, and where its files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor
from torchvision.datasets import CIFAR10, FashionMNIST, ImageFolder
from torchvision.transforms.functional import to_tensor

from fl_edge_env.checks import integer_at_least, is_integer
from fl_edge_env.files import as_value_error
from fl_edge_env.typing import IntArray
from policies.own import running_own

# Changes a batch of images at random, shape (batch, channels, height, width).
Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels for training and for testing.

    Data of one's own come `from_arrays`, `from_torch` or `from_folder`.

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
        Random changes of the images of a training batch: ``augment(images, rng)`` gives images of
        the same shape, and draws its random numbers from the NumPy generator ``rng`` alone.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    num_classes: int
    train_writers: IntArray | None = None
    augment: Augmentation | None = None

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name}, {len(self.train_labels)} training and {len(self.test_labels)} "
            f"test images of shape {tuple(self.train_images.shape[1:])}, {self.num_classes} "
            "classes)"
        )

    def check_augment(self) -> None:
        """Refuse an `augment` that fails, changes shape or type or draws other random numbers."""
        if self.augment is None:
            return
        images = self.train_images[:64]
        with torch.random.fork_rng(devices=[]):
            changed = []
            for _ in range(2):
                with running_own("augment must be called as augment(images, rng)"):
                    changed.append(self.augment(images.clone(), np.random.default_rng(0)))
        for result in changed:
            if not isinstance(result, Tensor) or result.shape != images.shape:
                got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
                raise ValueError(
                    f"augment must give images of the shape of its own, {tuple(images.shape)}, "
                    f"got {got}"
                )
            if result.dtype != images.dtype:
                raise ValueError(f"augment must give images of {images.dtype}, got {result.dtype}")
        if not torch.equal(*changed):
            raise ValueError(
                "augment must draw its random numbers from the generator it is given, as no seed "
                "names others: twice the same images and generator gave different images"
            )

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
        name, train_images, train_labels, test_images, test_labels, train_writers, augment
            The attributes of `Dataset`, as arrays; images are taken as they are, not normalised.

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
            if pixels.ndim != 4 or len(pixels) == 0:
                raise ValueError(
                    f"{split}_images must have shape (samples, channels, height, width), "
                    f"got {tuple(pixels.shape)}"
                )
            if not torch.isfinite(pixels).all():
                raise ValueError(f"{split}_images must be finite")
            classes = _integers(f"{split}_labels", labels, len(pixels))
            if classes.min() < 0:
                raise ValueError(f"{split}_labels must be at least 0, got {classes.min()}")
            if split == "train" and classes.min() > 0:
                raise ValueError(
                    "train_labels must be counted from 0, each class with a sample, and the least "
                    f"is {classes.min()}: subtract it"
                )
            parts += [pixels, torch.as_tensor(classes)]
        shapes = [tuple(pixels.shape[1:]) for pixels in parts[::2]]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "train_images and test_images must be of one shape, "
                f"got {shapes[0]} and {shapes[1]}"
            )
        writers = None
        if train_writers is not None:
            writers = _integers("train_writers", train_writers, len(parts[1]))
        num_classes = 1 + int(max(parts[1].max(), parts[3].max()))
        return cls(name, parts[0], parts[1], parts[2], parts[3], num_classes, writers, augment)

    @classmethod
    def from_torch(
        cls,
        name: str,
        train: torch.utils.data.Dataset[Any],
        test: torch.utils.data.Dataset[Any],
        *,
        augment: Augmentation | None = None,
    ) -> Dataset:
        """A data set out of two of torch's, such as those of torchvision.

        Every sample is read once and kept in memory.

        Parameters
        ----------
        name, augment
            As of a `Dataset`.
        train, test : torch.utils.data.Dataset
            With a length, and pairs of an image and its class. All images are tensors or arrays
            of one shape, (channels, height, width), as after torchvision's ``ToTensor``.

        Raises
        ------
        ValueError
            If a sample is something else; see also `from_arrays`.
        """
        return cls.from_arrays(name, *_read(train, "train"), *_read(test, "test"), augment=augment)

    @classmethod
    def from_folder(cls, path: str | Path, *, augment: Augmentation | None = None) -> Dataset:
        """A data set out of a folder of pictures, standardised as the others are.

        Parameters
        ----------
        path : str or Path
            Folder with ``train/<class>/<picture>`` and ``test/<class>/<picture>``. All pictures
            have one size and 8 bits a channel, and are read in colour. Classes are numbered by
            their names' order.
        augment : callable, optional
            As of a `Dataset`.

        Raises
        ------
        ValueError
            If a folder is missing, its classes differ or a picture cannot be read.
        """
        path = Path(path)
        splits = []
        for split in ("train", "test"):
            with as_value_error(f"cannot read the pictures in {str(path / split)!r}: "):
                splits.append(ImageFolder(path / split, to_tensor, loader=_picture))
        train, test = splits
        if train.classes != test.classes:
            other = sorted({*train.classes} ^ {*test.classes})
            raise ValueError(
                f"the folders train and test in {str(path)!r} must have the same classes, only one "
                f"of them has {', '.join(other)}"
            )
        with as_value_error(f"cannot read the pictures in {str(path)!r}: "):
            made = cls.from_torch(path.resolve().name, train, test, augment=augment)
        images = standardise(made.train_images, made.test_images)
        return replace(made, train_images=images[0], test_images=images[1])


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


def _integers(name: str, values: ArrayLike, size: int) -> IntArray:
    """A copy of one integer for each image."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != (size,):
        raise ValueError(
            f"{name} must be {size} integers, one for each image, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64)


def _picture(path: str) -> Image.Image:
    with Image.open(path) as picture:
        if picture.mode.startswith(("I", "F")):  # which convert would cut off at 255
            raise ValueError(f"{path} has more than 8 bits a channel: convert it to 8")
        colours: Image.Image = picture.convert("RGB")
    return colours


def _read(samples: Any, split: str) -> tuple[NDArray[np.float32], IntArray]:
    """Images and labels of one of torch's data sets."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise ValueError(f"{split} must be a torch Dataset with a length, got {samples!r}")
    images: list[NDArray[np.float32]] = []
    labels: list[int] = []
    for index in range(len(samples)):
        sample = samples[index]
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            raise ValueError(
                f"{split} must hold pairs of an image and its class, sample {index} is a "
                f"{type(sample).__name__}"
            )
        image, label = sample
        if not isinstance(image, (Tensor, np.ndarray)):
            raise ValueError(
                f"{split} must hold images as tensors, that of sample {index} is a "
                f"{type(image).__name__}: give the data set transform=ToTensor()"
            )
        label = label.item() if isinstance(label, (Tensor, np.ndarray)) else label
        if not is_integer(label):
            raise ValueError(f"{split} must hold classes as integers, sample {index} has {label!r}")
        image = np.asarray(image, dtype=np.float32)
        if images and image.shape != images[0].shape:
            raise ValueError(
                f"{split} must hold images of one shape, that of sample 0 has {images[0].shape} "
                f"and that of sample {index} {image.shape}: resize them"
            )
        images.append(image)
        labels.append(label)
    if not images:
        raise ValueError(f"{split} must hold samples, got none")
    return np.stack(images), np.array(labels, dtype=np.int64)

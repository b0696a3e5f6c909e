"""Image data sets: scikit-learn's digits, Fashion-MNIST and CIFAR-10."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import pad

from fl_edge_env.files import as_value_error
from train_fl.data.dataset import Dataset, DataSource


def digits(source: DataSource) -> Dataset:  # noqa: ARG001 - it comes with scikit-learn
    """Scikit-learn's handwritten digits of 8 by 8 pixels: 1440 to train, 357 to test.

    The split is a fixed shuffle. Pixels are standardised with the training images' mean and
    standard deviation.
    """
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = torch.from_numpy(bunch.images[order, None].astype(np.float32))
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    train_images, test_images = standardise(images[:1440], images[1440:])
    return Dataset("digits", train_images, labels[:1440], test_images, labels[1440:], 10)


def fashion_mnist(source: DataSource) -> Dataset:
    """Fashion-MNIST: 60,000 grey images of 28 by 28 pixels to train and 10,000 to test.

    Raises
    ------
    ValueError
        If a file in ``FashionMNIST/raw`` is missing or damaged.
    """
    from torchvision.datasets import FashionMNIST  # takes longer to import than torch

    splits = _read(source, FashionMNIST, "FashionMNIST/raw")
    train, test = standardise(*(split.data[:, None].float() / 255 for split in splits))
    labels = [split.targets for split in splits]
    return Dataset("fashion_mnist", train, labels[0], test, labels[1], num_classes=10)


def cifar10(source: DataSource) -> Dataset:
    """CIFAR-10: 50,000 colour images of 32 by 32 pixels to train and 10,000 to test.

    Training batches are augmented by random crops, after padding with four zeros on each side, and
    by random horizontal flips.

    Raises
    ------
    ValueError
        If a file in ``cifar-10-batches-py`` is missing or damaged.
    """
    from torchvision.datasets import CIFAR10

    splits = _read(source, CIFAR10, CIFAR10.base_folder)
    train, test = standardise(
        *(torch.from_numpy(s.data).permute(0, 3, 1, 2).float().contiguous() / 255 for s in splits)
    )
    labels = [torch.tensor(split.targets) for split in splits]
    return Dataset(
        "cifar10", train, labels[0], test, labels[1], num_classes=10, augment=random_crop_and_flip
    )


def _read(source: DataSource, kind: Any, place: str) -> tuple[Any, Any]:
    """The training and test split of a torchvision data set whose files are in `place`."""
    folder = source.folder / place
    name = kind.__name__
    remedy = "put its files there, give --download, or run without training (--no-train)"
    if not source.download and not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r} with the data of {name}: {remedy}")
    with as_value_error(f"cannot read {name} in {str(folder)!r} (", f"): {remedy}"):
        train = kind(source.folder, train=True, download=source.download)
        return train, kind(source.folder, train=False)


def standardise(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Standardise images (samples, channels, height, width) by each channel's training values."""
    deviation, mean = torch.std_mean(train, dim=(0, 2, 3), keepdim=True)
    deviation = torch.where(deviation > 0, deviation, 1.0)  # for a constant channel
    return (train - mean) / deviation, (test - mean) / deviation


def random_crop_and_flip(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Pad each image with four zeros, crop it at random, and flip it with probability 1/2."""
    count, _, height, width = images.shape
    margin = 4
    draws = torch.from_numpy(rng.integers([[2 * margin + 1] * 2 + [2]], size=(count, 3)))
    top, left, mirrored = draws.to(images.device).T[..., None]
    rows = top + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = left + torch.where(mirrored == 1, width - 1 - columns, columns)
    padded = pad(images, (margin, margin, margin, margin))
    batch = torch.arange(count, device=images.device)
    cropped: Tensor = padded[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).contiguous()

"""Image data sets: scikit-learn's digits, Fashion-MNIST, CIFAR-10 and class folders."""

from __future__ import annotations

import gzip
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import pad

from fl_edge_env.files import as_value_error
from train_fl.data.cache import kept_arrays
from train_fl.data.dataset import Dataset, DataSource

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")


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

    The four files, compressed or not, are in ``FashionMNIST/raw``, in the folder itself, or where
    Debian's package ``dataset-fashion-mnist`` installs them.

    Raises
    ------
    ValueError
        If a file is missing or damaged.
    """
    raw = source.folder / "FashionMNIST/raw"
    folders = [raw] if source.download else [raw, source.folder, _DEBIAN]
    folder = next((one for one in folders if [*one.glob(f"{_FILES[0]}*")]), raw)
    with _reading("FashionMNIST", folder, source):
        if source.download:
            from torchvision.datasets import FashionMNIST  # takes longer to import than torch

            FashionMNIST(source.folder, download=True)
        train, labels, test, test_labels = (_idx(folder / name) for name in _FILES)
    train, test = standardise(*(images[:, None].float() / 255 for images in (train, test)))
    return Dataset("fashion_mnist", train, labels.long(), test, test_labels.long(), num_classes=10)


def _idx(path: Path) -> Tensor:
    """The bytes of a file in the format IDX, which may be compressed: ``path`` or ``path.gz``."""
    packed = path.with_name(f"{path.name}.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + shape.nbytes)
    return torch.from_numpy(values.reshape(shape).copy())


def cifar10(source: DataSource) -> Dataset:
    """CIFAR-10: 50,000 colour images of 32 by 32 pixels to train and 10,000 to test.

    The folder holds ``cifar-10-batches-py``, or class folders as in `image_folder`. Training
    batches are augmented by random crops, after padding with four zeros on each side, and by random
    horizontal flips.

    Raises
    ------
    ValueError
        If a file is missing or damaged, or class folders hold other images.
    """
    from torchvision.datasets import CIFAR10

    batches = source.folder / CIFAR10.base_folder
    if not batches.is_dir() and [*source.folder.glob("train/*/")]:
        dataset = image_folder(source.folder)
        if (dataset.num_classes, *dataset.train_inputs.shape[1:]) != (10, 3, 32, 32):
            raise ValueError(
                f"CIFAR10 in {str(source.folder)!r} must have 10 classes and images of shape "
                f"(3, 32, 32), got {dataset}"
            )
        return replace(dataset, name="cifar10", augment=random_crop_and_flip)
    with _reading("CIFAR10", batches, source):
        splits = (
            CIFAR10(source.folder, download=source.download),
            CIFAR10(source.folder, train=False),
        )
    train, test = standardise(
        *(torch.from_numpy(s.data).permute(0, 3, 1, 2).float().contiguous() / 255 for s in splits)
    )
    labels = [torch.tensor(split.targets) for split in splits]
    return Dataset(
        "cifar10", train, labels[0], test, labels[1], num_classes=10, augment=random_crop_and_flip
    )


def image_folder(folder: Path) -> Dataset:
    """Images of one size in class folders: ``train/CLASS/*.png`` and ``test/CLASS/*.png``.

    Grey or colour images are standardised, and the user's cache keeps their pixels. Classes are
    numbered in the order of their names.

    Raises
    ------
    ValueError
        If an image is damaged or unlike the first, or a class is missing in one of the folders.
    """
    from torchvision.datasets import ImageFolder

    with as_value_error(f"cannot read images in {str(folder)!r} (", ")"):
        train, test = (ImageFolder(folder / split) for split in ("train", "test"))
    if train.classes != test.classes:
        raise ValueError(
            f"train and test in {str(folder)!r} must have the same classes, but only one has "
            f"{min({*train.classes} ^ {*test.classes})!r}"
        )
    paths = [path for path, _ in train.samples + test.samples]
    arrays = kept_arrays([__file__, *paths], lambda: {"images": _pixels(paths)})
    images = torch.from_numpy(arrays["images"]).float()
    inputs = standardise(images[: len(train)], images[len(train) :])
    return Dataset.from_arrays(
        folder.resolve().name, inputs[0], train.targets, inputs[1], test.targets
    )


def _pixels(paths: list[str]) -> NDArray[Any]:
    """The pixels of images of one size, shape (samples, channels, height, width)."""
    from torchvision.transforms.functional import pil_to_tensor

    images = []
    kinds: dict[str, str] = {}
    for path in paths:
        with as_value_error(f"cannot read {path!r} (", ")"), Image.open(path) as image:
            images.append(pil_to_tensor(image))
        kinds[f"{image.mode} of {image.width} by {image.height} pixels"] = path
        if len(kinds) > 1 or image.mode not in ("L", "RGB"):
            raise ValueError(f"images must all be RGB or all L (grey), of one size, got {kinds}")
    return torch.stack(images).numpy()


def _reading(name: str, folder: Path, source: DataSource) -> AbstractContextManager[None]:
    remedy = "put its files there, give --download, or run without training (--no-train)"
    if not source.download and not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r} with the data of {name}: {remedy}")
    return as_value_error(f"cannot read {name} in {str(folder)!r} (", f"): {remedy}")


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

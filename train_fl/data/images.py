"""Image data sets: scikit-learn's digits, Fashion-MNIST, CIFAR-10 and class folders."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import pad

from fl_edge_env.files import as_value_error
from train_fl.data.cache import kept_arrays
from train_fl.data.dataset import Augmentation, Dataset, DataSource

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
    order = np.random.default_rng(0).permutation(1797)
    images = torch.from_numpy(bunch.images[order, None].astype(np.float32))
    return _dataset(
        "digits", torch.split(images, [1440, 357]), np.split(bunch.target[order], [1440])
    )


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
    folder = next(
        (one for one in (raw, source.folder, _DEBIAN) if [*one.glob(f"{_FILES[0]}*")]), raw
    )
    with _reading("FashionMNIST", folder, f"{', '.join(_FILES)}, also as .gz,"):
        if source.download and folder == raw:
            from torchvision.datasets import FashionMNIST  # takes longer to import than torch

            FashionMNIST(source.folder, download=True)
        train, labels, test, test_labels = (_idx(folder / name) for name in _FILES)
        images = (split[:, None].float() / 255 for split in (train, test))
        return _dataset("fashion_mnist", images, (labels, test_labels))


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
        dataset = image_folder(source.folder, random_crop_and_flip)
        if (dataset.num_classes, *dataset.train_inputs.shape[1:]) != (10, 3, 32, 32):
            raise ValueError(f"CIFAR10 has 10 classes of shape (3, 32, 32), got {dataset}")
        return dataset
    with _reading("CIFAR10", batches):
        splits = [
            CIFAR10(source.folder, train, download=source.download) for train in (True, False)
        ]
    images = (
        torch.from_numpy(s.data).permute(0, 3, 1, 2).float().contiguous() / 255 for s in splits
    )
    return _dataset("cifar10", images, [s.targets for s in splits], random_crop_and_flip)


def image_folder(folder: Path, augment: Augmentation | None = None) -> Dataset:
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
                "only one of train and test has the class "
                f"{min({*train.classes} ^ {*test.classes})!r}"
            )
    paths = [path for path, _ in train.samples + test.samples]
    arrays = kept_arrays([__file__, *paths], lambda: {"images": _pixels(paths)})
    images = torch.split(torch.from_numpy(arrays["images"]).float(), [len(train), len(test)])
    return _dataset(str(folder), images, (train.targets, test.targets), augment)


def _pixels(paths: list[str]) -> NDArray[Any]:
    """The pixels of images of one size, shape (samples, channels, height, width)."""
    from torchvision.transforms.functional import pil_to_tensor

    images = []
    kinds = {}
    for path in paths:
        with as_value_error(f"cannot read {path!r} (", ")"), Image.open(path) as image:
            images.append(pil_to_tensor(image))
        kinds[f"{image.mode} {image.size}"] = path
        if len(kinds) > 1 or image.mode not in ("L", "RGB"):
            raise ValueError(f"images must all be RGB or all L (grey), of one size, got {kinds}")
    return torch.stack(images).numpy()


def _reading(name: str, folder: Path, files: str = "its files") -> AbstractContextManager[None]:
    return as_value_error(
        f"cannot read {name} in {str(folder)!r} (",
        f"): put {files} there, give --download, or run without training (--no-train)",
    )


def _dataset(
    name: str,
    images: Iterable[Tensor],
    classes: Sequence[ArrayLike],
    augment: Augmentation | None = None,
) -> Dataset:
    """A data set of images and their classes, both for training and testing, standardised."""
    train, test = standardise(*images)
    return Dataset.from_arrays(name, train, classes[0], test, classes[1], augment=augment)


def standardise(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Standardise images (samples, channels, height, width) by each channel's training values."""
    deviation, mean = torch.std_mean(train, dim=(0, 2, 3), keepdim=True)
    deviation = torch.where(deviation > 0, deviation, 1.0)  # for a constant channel
    return (train - mean) / deviation, (test - mean) / deviation


def random_crop_and_flip(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Pad each image with four zeros, crop it at random, and flip it with probability 1/2."""
    count, _, height, width = images.shape
    draws = rng.integers([[9, 9, 2]], size=(count, 3))
    top, left, mirrored = torch.from_numpy(draws).to(images.device).T
    windows = pad(images, (4, 4, 4, 4)).unfold(2, height, 1).unfold(3, width, 1)
    crops = windows[torch.arange(count, device=images.device), :, top, left]
    return torch.where(mirrored[:, None, None, None] == 1, crops.flip(-1), crops)

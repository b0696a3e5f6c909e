"""Fashion-MNIST from the IDX files in which it is distributed."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.datasets import FashionMNIST

from train_fl.data.dataset import Dataset, DataSource, standardise

_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


# Of a file in the IDX format; the largest of Fashion-MNIST has 47,040,000 in 3 axes.
_MOST_BYTES = 2**28
_MOST_AXES = 8


def fashion_mnist(source: DataSource) -> Dataset:
    """Fashion-MNIST: 60,000 grey images of 28 by 28 pixels to train and 10,000 to test.

    Its four files may lie in the folder itself or in torchvision's ``FashionMNIST/raw``, packed
    or not. Debian's package ``dataset-fashion-mnist`` puts them into
    ``/usr/share/datasets/fashion-mnist``.

    Raises
    ------
    ValueError
        If a file is missing or damaged.
    """
    if source.download and None in [_find_idx(source.folder, name) for name in _IDX_FILES]:
        source.fetch(FashionMNIST)
    arrays = []
    for name in _IDX_FILES:
        path = _find_idx(source.folder, name)
        if path is None:
            raise ValueError(
                f"there is no file {name} or {name}.gz in {str(source.folder)!r}: use the option "
                "--download, or --data-dir with the folder that has it, such as "
                "/usr/share/datasets/fashion-mnist with Debian's package dataset-fashion-mnist"
            )
        arrays.append(read_idx(path))
    for name, images, labels in zip(_IDX_FILES[::2], arrays[::2], arrays[1::2], strict=True):
        fits = images.shape[1:] == (28, 28) and labels.shape == images.shape[:1]
        if not fits or images.min() == images.max() or labels.max() > 9:
            raise ValueError(
                f"{name} or {name.replace('images-idx3', 'labels-idx1')} in "
                f"{str(source.folder)!r} is not Fashion-MNIST's: the images have shape "
                f"{images.shape}, the labels {labels.shape} and values up to {labels.max()}"
            )
    train, test = standardise(
        *(torch.from_numpy(a[:, None].astype(np.float32)) / 255 for a in arrays[::2])
    )
    train_labels, test_labels = (torch.from_numpy(a.astype(np.int64)) for a in arrays[1::2])
    return Dataset("fashion_mnist", train, train_labels, test, test_labels, num_classes=10)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of unsigned bytes in MNIST's IDX format, packed by gzip or not.

    A file of another format, or one that ends early, is a `ValueError` that names it.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # Two zeros, the type (8 is unsigned byte) and the number of axes, whose lengths follow.
            start = file.read(4)
            axes = start[3] if len(start) == 4 and start[:3] == b"\0\0\x08" else _MOST_AXES + 1
            lengths = file.read(4 * min(axes, _MOST_AXES))
            if len(lengths) != 4 * axes:
                raise ValueError(
                    f"{str(path)!r} is not an IDX file of unsigned bytes: get it again"
                )
            shape = tuple(np.frombuffer(lengths, dtype=">u4").tolist())
            size = math.prod(shape)
            # One more than announced, and of a file that announces too much nothing.
            data = file.read(size + 1) if size <= _MOST_BYTES else b""
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}): get it again") from None
    if len(data) != size or not data:
        follow = "more" if len(data) > size else len(data)
        raise ValueError(
            f"{str(path)!r} is damaged: its header announces {size} bytes and {follow} follow; "
            "get it again"
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _find_idx(folder: Path, name: str) -> Path | None:
    places = (folder, folder / "FashionMNIST" / "raw")
    paths = (place / f"{name}{suffix}" for place in places for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)

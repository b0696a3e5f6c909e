"""CIFAR-10 from the batches in which it is distributed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torchvision.datasets import CIFAR10
from torchvision.datasets.utils import check_integrity

from fl_edge_env.files import as_value_error
from train_fl.data.dataset import Dataset, DataSource, standardise


def cifar10(source: DataSource) -> Dataset:
    """CIFAR-10: 50,000 colour images of 32 by 32 pixels to train and 10,000 to test.

    The folder holds ``cifar-10-batches-py``, the version for Python. Training batches are
    augmented by a random crop out of four more pixels on each side, and by mirroring.

    Raises
    ------
    ValueError
        If a file is missing or damaged.
    """
    if source.download:
        source.fetch(CIFAR10)
    meta = (CIFAR10.meta["filename"], CIFAR10.meta["md5"])
    for name, checksum in [*CIFAR10.train_list, *CIFAR10.test_list, meta]:
        path = source.folder / CIFAR10.base_folder / name
        # Only a whole file is unpickled, which runs its code.
        with as_value_error(f"cannot read {str(path)!r}: "):
            whole = check_integrity(str(path), checksum)
        if not whole:
            without = "compare without training by --no-train; to train, "
            raise ValueError(
                f"{str(path)!r} is {'damaged: ' if path.exists() else f'missing: {without}'}"
                f"remove {CIFAR10.base_folder} and use the option --download, or unpack "
                f"cifar-10-python.tar.gz from {CIFAR10.url.rsplit('/', 1)[0]} in "
                f"{str(source.folder)!r}"
            )
    splits = [CIFAR10(source.folder, train=train) for train in (True, False)]
    train, test = standardise(
        *(torch.from_numpy(s.data).permute(0, 3, 1, 2).float().contiguous() / 255 for s in splits)
    )
    labels = [torch.tensor(split.targets) for split in splits]
    return Dataset(
        "cifar10", train, labels[0], test, labels[1], num_classes=10, augment=random_crop_and_flip
    )


def random_crop_and_flip(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Crop each image at random out of itself with four zero pixels around, and mirror half."""
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

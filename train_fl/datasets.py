"""Image data sets, one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits as sklearn_digits
from torch import Tensor


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
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    num_classes: int


def digits() -> Dataset:
    """Handwritten digits of 8 by 8 pixels that come with scikit-learn: 1440 to train, 357 to test.

    The split is a fixed shuffle. Pixels are standardised with the mean and the deviation of the
    training images.
    """
    bunch = sklearn_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = torch.from_numpy(bunch.images[order, None].astype(np.float32))
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    train_images, test_images = images[:1440], images[1440:]
    mean, deviation = train_images.mean(), train_images.std()
    return Dataset(
        name="digits",
        train_images=(train_images - mean) / deviation,
        train_labels=labels[:1440],
        test_images=(test_images - mean) / deviation,
        test_labels=labels[1440:],
        num_classes=10,
    )


DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits}

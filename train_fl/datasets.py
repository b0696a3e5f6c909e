"""The data sets by name, one function each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sklearn.datasets import load_digits

from train_fl.dataset import Dataset, DataSource, standardise
from train_fl.femnist import femnist
from train_fl.image_files import cifar10, fashion_mnist


def digits(source: DataSource) -> Dataset:  # noqa: ARG001 - it comes with scikit-learn
    """Handwritten digits of 8 by 8 pixels that come with scikit-learn: 1440 to train, 357 to test.

    The split is a fixed shuffle. Pixels are standardised with the mean and the deviation of the
    training images.

    Parameters
    ----------
    source : DataSource
        Not used.
    """
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = torch.from_numpy(bunch.images[order, None].astype(np.float32))
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    train_images, test_images = standardise(images[:1440], images[1440:])
    return Dataset("digits", train_images, labels[:1440], test_images, labels[1440:], 10)


DATASETS: dict[str, Callable[[DataSource], Dataset]] = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "femnist": femnist,
}

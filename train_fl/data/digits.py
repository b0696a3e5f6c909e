"""Handwritten digits, which come with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from train_fl.data.dataset import Dataset, DataSource, standardise


def digits(source: DataSource) -> Dataset:  # noqa: ARG001 - it comes with scikit-learn
    """Handwritten digits of 8 by 8 pixels that come with scikit-learn: 1440 to train, 357 to test.

    The split is a fixed shuffle. Pixels are standardised with the mean and the deviation of the
    training images.
    """
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = torch.from_numpy(bunch.images[order, None].astype(np.float32))
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    train_images, test_images = standardise(images[:1440], images[1440:])
    return Dataset("digits", train_images, labels[:1440], test_images, labels[1440:], 10)

"""How the training samples are split over the devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import is_integer, is_real
from fl_edge_env.typing import FloatArray, IntArray


def dirichlet_equal(
    labels: NDArray[np.integer],
    num_devices: int,
    concentration: float,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Split samples into parts of equal size with a Dirichlet label mix.

    Each device draws a distribution over classes and then its samples, one after the other and
    without replacement, from the classes that have samples left [1]_.

    Parameters
    ----------
    labels : ndarray of int, shape (samples,)
        Class of each sample.
    num_devices : int
        Number of parts N.
    concentration : float
        Of the symmetric Dirichlet distribution: small for devices with few classes, large for
        devices that are alike.
    rng : numpy.random.Generator
        The stream to draw from.

    Returns
    -------
    list of ndarray of int
        For each device its samples; every sample once, sizes apart by at most one.

    Raises
    ------
    ValueError
        If there are fewer samples than devices or `concentration` is not positive.

    References
    ----------
    .. [1] Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for
       Federated Visual Classification", 2019.
    """
    if not (is_integer(num_devices) and 1 <= num_devices <= len(labels)):
        raise ValueError(
            f"num_devices must be from 1 to the {len(labels)} samples, got {num_devices!r}"
        )
    if not (is_real(concentration) and 0 < concentration < np.inf):
        raise ValueError(f"concentration must be positive and finite, got {concentration!r}")
    classes = np.unique(labels)
    pools = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in classes]
    sizes = np.full(num_devices, len(labels) // num_devices)
    sizes[: len(labels) % num_devices] += 1
    parts = []
    for size in sizes:
        mix = rng.dirichlet(np.full(len(classes), concentration))
        part = [pools[_draw_class(mix, pools, rng)].pop() for _ in range(size)]
        parts.append(np.array(part, dtype=np.int64))
    return parts


def _draw_class(mix: FloatArray, pools: list[list[int]], rng: np.random.Generator) -> int:
    left = np.array([len(pool) for pool in pools])
    odds = np.where(left > 0, mix, 0.0)
    if odds.sum() == 0.0:  # of this device's classes nothing is left
        odds = left.astype(np.float64)
    cdf = np.cumsum(odds)
    return int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))


def label_histogram(
    labels: NDArray[np.integer], parts: Sequence[IntArray], num_classes: int
) -> FloatArray:
    """Share of each class in each part.

    Parameters
    ----------
    labels : ndarray of int, shape (samples,)
        Class of each sample.
    parts : sequence of ndarray of int, length N
        Samples of each device.
    num_classes : int
        Number of classes C.

    Returns
    -------
    ndarray, shape (N, C)
        Rows sum to one.
    """
    counts = [np.bincount(labels[part], minlength=num_classes) / len(part) for part in parts]
    return np.array(counts, dtype=np.float64)

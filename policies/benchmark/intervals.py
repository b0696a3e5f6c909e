"""Means over seeds with their 95 % intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit


class Interval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: ArrayLike) -> Interval:
    """Mean of independent values, one for each seed, with Student's 95 % interval.

    A single value says nothing about the spread: the ends of its interval are NaN.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"values must have shape (n,) with n >= 1, got {sample.shape}")
    mean = float(sample.mean())
    if sample.size == 1:
        return Interval(mean, math.nan, math.nan)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(stdtrit(sample.size - 1, 0.975)) * error
    return Interval(mean, mean - half, mean + half)


def relative_interval(values: ArrayLike, reference: ArrayLike) -> Interval:
    """Mean of ``values / reference - 1`` over seeds, with its 95 % interval.

    Under common random numbers a seed means the same luck for both, and much of it cancels in the
    ratio: the interval is that of the mean of the ratios, not of a ratio of means.
    """
    sample = np.asarray(values, dtype=np.float64)
    base = np.asarray(reference, dtype=np.float64)
    if sample.shape != base.shape:
        raise ValueError(f"reference must have shape {sample.shape}, got {base.shape}")
    if (base <= 0).any():
        raise ValueError(f"reference must be positive, got {base.min()}")
    return mean_interval(sample / base - 1.0)

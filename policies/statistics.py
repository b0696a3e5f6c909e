"""Intervals over seeds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class Interval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Mean of independent values with Student's t interval.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value for each seed.
    confidence : float
        Coverage, in (0, 1).

    Returns
    -------
    Interval
        With NaN ends for a single value, which says nothing about the spread.

    Raises
    ------
    ValueError
        If there are no values or `confidence` is outside (0, 1).
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"values must have shape (n,) with n >= 1, got {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    mean = float(sample.mean())
    if sample.size == 1:
        return Interval(mean, math.nan, math.nan)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(stats.t.ppf(0.5 + confidence / 2, sample.size - 1)) * error
    return Interval(mean, mean - half, mean + half)

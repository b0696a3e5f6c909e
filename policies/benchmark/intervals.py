"""Means over seeds with their 95 % intervals, as numbers and as text."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fl_edge_env.typing import FloatArray


class Interval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: ArrayLike) -> Interval:
    """Mean of independent values, one for each seed, with Student's 95 % interval.

    For a single value, both ends are NaN.
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    half = float(half_width(sample)) if sample.size > 1 else math.nan
    return Interval(mean, mean - half, mean + half)


def half_width(sample: FloatArray) -> FloatArray:
    """Half-width of Student's 95 % interval for the mean of n >= 2 samples along the last axis."""
    size = sample.shape[-1]
    error = sample.std(axis=-1, ddof=1) / math.sqrt(size)
    return stdtrit(size - 1, 0.975) * error


def relative_interval(values: ArrayLike, reference: ArrayLike) -> Interval:
    """Mean of ``values / reference - 1`` over seeds, with its 95 % interval.

    Under common random numbers, much of a seed's chance variation cancels in the ratio. The
    interval is therefore for the mean of the ratios, not the ratio of the means.
    """
    return mean_interval(np.asarray(values) / np.asarray(reference) - 1.0)


def rounded(interval: Interval, most_decimals: int) -> str:
    """A mean and the half-width of its interval: ``"102.0±5.0"``.

    The half-width is rounded up to two digits, and the mean to the same decimal place.
    """
    mean = interval.mean
    half = (interval.high - interval.low) / 2
    if not half > 1e-12 * abs(mean):  # all values are the same, except for rounding
        return digits(mean, most_decimals)
    up = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(half)
    unit = Decimal(1).scaleb(max(up.adjusted() - 1, -most_decimals))
    # Adding zero turns -0 into 0.
    return f"{Decimal(mean).quantize(unit) + 0:f}±{up.quantize(unit, ROUND_CEILING):f}"


def digits(value: float, most_decimals: int) -> str:
    """A number to four digits, or all digits before the point."""
    decimals = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, min(max(decimals, 0), most_decimals)) + 0.0:.15g}"

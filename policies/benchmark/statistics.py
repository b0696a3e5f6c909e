"""Intervals over seeds, and the statistics by which learning agents are compared.

Source of the latter: Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", NeurIPS 2021, and its library rliable. Scores are better when higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fl_edge_env.checks import integer_at_least
from fl_edge_env.typing import FloatArray


class Interval(NamedTuple):
    """A mean, or the statistic in its place, and its confidence interval."""

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
    _check_confidence(confidence)
    mean = float(sample.mean())
    if sample.size == 1:
        return Interval(mean, math.nan, math.nan)
    error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    half = float(stats.t.ppf(0.5 + confidence / 2, sample.size - 1)) * error
    return Interval(mean, mean - half, mean + half)


def relative_interval(values: ArrayLike, reference: ArrayLike) -> Interval:
    """How much larger values are than those they are paired with, relative, with its interval.

    Under common random numbers a seed means the same luck for both, and much of it cancels in the
    ratio: the interval is that of the mean of the ratios, not of a ratio of means.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value for each seed.
    reference : array_like, shape (n,)
        Positive values of the same seeds in the same order.

    Returns
    -------
    Interval
        Mean of ``values / reference - 1`` with Student's 95 % interval.

    Raises
    ------
    ValueError
        If the shapes differ or a reference is not positive.
    """
    sample = np.asarray(values, dtype=np.float64)
    base = np.asarray(reference, dtype=np.float64)
    if sample.shape != base.shape:
        raise ValueError(f"reference must have shape {sample.shape}, got {base.shape}")
    if (base <= 0).any():
        raise ValueError(f"reference must be positive, got {base.min()}")
    return mean_interval(sample / base - 1.0)


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half of all entries.

    Less moved by outliers than the mean, and less noisy than the median.

    Parameters
    ----------
    values : array_like
        n >= 1 entries of any shape. As in rliable, floor(n / 4) are left out at either end.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there are no values or one is not finite.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError(f"values must have at least one entry, got shape {sample.shape}")
    _check_finite("values", sample)
    return float(stats.trim_mean(sample, 0.25, axis=None))


def bootstrap_interval(
    scores: ArrayLike,
    rng: np.random.Generator,
    *,
    statistic: Callable[[FloatArray], float] = interquartile_mean,
    confidence: float = 0.95,
    num_resamples: int = 2000,
) -> Interval:
    """A statistic of an agent's scores with its percentile bootstrap interval.

    The agents of all training seeds meet the same evaluation seeds. Entries in a column share
    the luck of an evaluation seed, and entries in a row that of a training seed, so that they are
    not independent. A resample therefore draws rows and columns with replacement, independently
    of each other, and consists of all entries where they cross. Single entries drawn on their
    own, or runs drawn anew for each column as in rliable, would give too short an interval.

    Parameters
    ----------
    scores : array_like, shape (S, E)
        A row for each training seed and a column for each evaluation seed. A policy that is not
        trained has S = 1; its interval is over evaluation seeds only.
    rng : numpy.random.Generator
        Draws the resamples.
    statistic : callable
        Gives a number for an array of shape (S, E).
    confidence : float
        Coverage, in (0, 1).
    num_resamples : int
        Number of resamples.

    Returns
    -------
    Interval
        `mean` is the statistic of `scores`. The ends are NaN for a single score, which says
        nothing about the spread.

    Raises
    ------
    ValueError
        If `scores` is not of that shape, is empty or not finite, `confidence` is outside (0, 1)
        or `num_resamples` is less than one.

    Notes
    -----
    Noise of single entries, neither of a row nor of a column, counts about three times in the
    variance (Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007), so the
    interval is too long where it dominates. Few training seeds that differ much make it too
    short, as percentile intervals of small samples are: in simulations of the mean with normal
    effects, 95 % became about 90 % with S = 10, 85 % with S = 5 and 75 % with S = 3.
    """
    sample = _as_scores("scores", scores)
    num_rows, num_columns = sample.shape

    def resampled() -> list[float]:
        rows = rng.integers(num_rows, size=(num_resamples, num_rows, 1))
        columns = rng.integers(num_columns, size=(num_resamples, num_columns))
        return [statistic(sample[row, column]) for row, column in zip(rows, columns, strict=True)]

    return _percentile_interval(statistic, sample, resampled, confidence, num_resamples)


def probability_of_improvement(
    x: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
) -> Interval:
    """Probability that a run of one agent scores higher than a run of another.

    For an evaluation seed it is the share of pairs (a run of x, a run of y) in which x is
    higher, where ties count one half: the Mann-Whitney U divided by S1 S2. The mean over the
    evaluation seeds is returned. The interval is a percentile bootstrap: training seeds of x and
    of y are drawn independently, evaluation seeds once for both, since both met the same (see
    `bootstrap_interval`).

    Parameters
    ----------
    x : array_like, shape (S1, E)
        Scores of one agent: a row for each training seed, a column for each evaluation seed.
    y : array_like, shape (S2, E)
        Scores of the other with the same evaluation seeds in the same order.
    rng, confidence, num_resamples
        As in `bootstrap_interval`.

    Returns
    -------
    Interval
        `mean` is the probability. The ends are NaN if both have a single score, and have no
        length if all pairs of runs agree, as x always higher: no resample can then differ.

    Raises
    ------
    ValueError
        If `x` or `y` is not of that shape, is empty or not finite, they differ in E,
        `confidence` is outside (0, 1) or `num_resamples` is less than one.
    """
    x = _as_scores("x", x)
    y = _as_scores("y", y)
    num_x, num_y, num_columns = len(x), len(y), x.shape[1]
    if y.shape[1] != num_columns:
        raise ValueError(
            f"y must have as many evaluation seeds as x, shape (S, {num_columns}), got {y.shape}"
        )
    higher = (x[:, None] > y) + 0.5 * (x[:, None] == y)  # (S1, S2, E)

    def resampled() -> FloatArray:
        # How often each seed is drawn: shape (num_resamples, seeds).
        of_x, of_y, of_columns = (
            rng.multinomial(num, np.full(num, 1 / num), size=num_resamples).astype(np.float64)
            for num in (num_x, num_y, num_columns)
        )
        pairs = higher @ of_columns.T  # (S1, S2, num_resamples)
        means: FloatArray = np.einsum("ijr,ri,rj->r", pairs, of_x, of_y) / higher.size
        return means

    return _percentile_interval(np.mean, higher, resampled, confidence, num_resamples)


def _percentile_interval(
    statistic: Callable[[FloatArray], float],
    sample: FloatArray,
    resampled: Callable[[], ArrayLike],
    confidence: float,
    num_resamples: int,
) -> Interval:
    """A statistic of a sample between the percentiles of its resamples."""
    _check_confidence(confidence)
    integer_at_least(1, "num_resamples", num_resamples)
    value = float(statistic(sample))
    if sample.size == 1:
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(np.array(resampled()), [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(value, float(low), float(high))


def _as_scores(name: str, values: ArrayLike) -> FloatArray:
    """`values` as an array, if it is a matrix of scores; `name` is for the error."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 2 or scores.size == 0:
        raise ValueError(f"{name} must have shape (S, E) with S, E >= 1, got {scores.shape}")
    _check_finite(name, scores)
    return scores


def _check_finite(name: str, values: FloatArray) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values.min()} to {values.max()}")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")

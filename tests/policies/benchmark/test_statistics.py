"""Statistics of agents: cases by hand, exact bootstrap distributions, coverage, invariances."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from policies.benchmark.statistics import (
    bootstrap_interval,
    interquartile_mean,
    probability_of_improvement,
)

# Scores and results of rliable's own test of its metrics.
RLIABLE_X = [[1, 2], [2, 2], [1, 1], [2, 1]]
RLIABLE_Y = [[1, 1], [2, 2], [3, 3]]

# Whole numbers: ties occur, and adding a constant rounds nothing.
entries = st.integers(-20, 20).map(float)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=entries)
seeds = st.integers(0, 2**32 - 1)
few_examples = settings(max_examples=40)


def draws(size: int) -> list[list[int]]:
    """All equally likely draws of `size` out of `size` with replacement."""
    return [list(draw) for draw in itertools.product(range(size), repeat=size)]


def exact_ends(outcomes: Sequence[float], confidence: float) -> np.ndarray:
    """Percentiles of equally likely outcomes.

    The confidences of the tests are such that no tail is within four standard errors of a jump of
    the distribution: the resamples then give the same percentiles for nearly every seed.
    """
    tails = [0.5 - confidence / 2, 0.5 + confidence / 2]
    return np.quantile(outcomes, tails, method="inverted_cdf")


def pair_share(x: np.ndarray, y: np.ndarray) -> float:
    """Probability of improvement by a plain loop."""
    wins = [
        (a > b) + (a == b) / 2
        for column_x, column_y in zip(x.T, y.T, strict=True)
        for a, b in itertools.product(column_x, column_y)
    ]
    return sum(wins) / len(wins)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[100.0, 3.0, 5.0, 4.0], [6.0, -90.0, 0.0, 50.0]], 4.5),  # of 3, 4, 5, 6
        ([9.0, 1.0, 2.0, 4.0, 30.0], 5.0),  # floor(5 / 4) = 1 off each end: 2, 4, 9
        ([1.0, 2.0, 9.0], 4.0),  # too few to leave any out
        (7.0, 7.0),
        (RLIABLE_X, 1.5),
        (RLIABLE_Y, 2.0),
    ],
)
def test_interquartile_mean__by_hand(values, expected):
    assert interquartile_mean(values) == pytest.approx(expected, rel=1e-15)


@given(matrices, st.integers(-1000, 1000), seeds)
def test_interquartile_mean__shifts_with_the_scores_and_ignores_their_order(scores, shift, seed):
    shuffled = np.random.default_rng(seed).permutation(scores.ravel()).reshape(scores.shape)
    expected = interquartile_mean(scores) + shift
    assert interquartile_mean(shuffled + shift) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("statistic", "confidence"), [(interquartile_mean, 0.96), (np.max, 0.5)])
def test_bootstrap_interval__ends_are_those_of_all_possible_resamples(statistic, confidence):
    scores = np.array([[0.0, 1.0], [3.0, 7.0], [14.0, 30.0]])
    outcomes = [
        statistic(np.array([[scores[i, j] for j in columns] for i in rows]))
        for rows, columns in itertools.product(draws(3), draws(2))
    ]
    interval = bootstrap_interval(
        scores,
        np.random.default_rng(5),
        statistic=statistic,
        confidence=confidence,
        num_resamples=10_000,
    )
    assert interval.mean == pytest.approx(statistic(scores))
    assert interval[1:] == pytest.approx(exact_ends(outcomes, confidence))


def test_bootstrap_interval__covers_the_mean_of_crossed_random_effects():
    # Drawing only rows or only columns covers about 80 %, single entries 30 %, and runs anew for
    # each column 25 %.
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        of_row, of_column = rng.normal(size=(25, 1)), rng.normal(size=25)
        scores = 3.0 + of_row + of_column + 0.5 * rng.normal(size=(25, 25))
        _, low, high = bootstrap_interval(scores, rng, statistic=np.mean, num_resamples=300)
        covered.append(low <= 3.0 <= high)
    assert 0.9 < np.mean(covered) < 0.97


@pytest.mark.parametrize("shape", [(1, 8), (8, 1)])
def test_bootstrap_interval__one_row_or_one_column_leaves_the_other_to_draw(shape):
    scores = np.arange(8.0).reshape(shape)
    interval = bootstrap_interval(
        scores, np.random.default_rng(0), statistic=np.mean, num_resamples=10_000
    )
    # The usual bootstrap of a sample, by scipy.
    expected = stats.bootstrap(
        (np.arange(8.0),), np.mean, n_resamples=10_000, method="percentile", rng=1
    ).confidence_interval
    assert interval[1:] == pytest.approx((expected.low, expected.high), abs=0.15)


@pytest.mark.parametrize("confidence", [0.96])
def test_probability_of_improvement__ends_are_those_of_all_possible_resamples(confidence):
    x = np.array([[1.0, 5.0, 2.0], [4.0, 6.0, 0.0]])
    y = np.array([[1.0, 7.0, 1.0], [3.0, 5.5, 3.0]])
    outcomes = [
        pair_share(x[np.ix_(of_x, columns)], y[np.ix_(of_y, columns)])
        for of_x, of_y, columns in itertools.product(draws(2), draws(2), draws(3))
    ]
    interval = probability_of_improvement(
        x, y, np.random.default_rng(3), confidence=confidence, num_resamples=20_000
    )
    assert interval.mean == pytest.approx(pair_share(x, y))
    assert interval[1:] == pytest.approx(exact_ends(outcomes, confidence))


def test_probability_of_improvement__is_that_of_rliable():
    rng = np.random.default_rng(0)
    assert probability_of_improvement(RLIABLE_X, RLIABLE_Y, rng).mean == pytest.approx(1 / 3)


@given(arrays(np.float64, (6, 1), elements=entries), arrays(np.float64, (4, 1), elements=entries))
@few_examples
def test_probability_of_improvement__is_mann_whitneys_u_on_one_evaluation_seed(x, y):
    expected = stats.mannwhitneyu(x[:, 0], y[:, 0], method="asymptotic").statistic / (6 * 4)
    rng = np.random.default_rng(0)
    assert probability_of_improvement(x, y, rng, num_resamples=1).mean == pytest.approx(expected)


def test_probability_of_improvement__covers_that_of_crossed_random_effects():
    # Evaluation seeds move both agents (`common`) and one against the other (`favour`).
    rng = np.random.default_rng(0)
    truth = stats.norm.cdf(0.5 / np.sqrt(2 * (0.5**2 + 0.5**2) + 1))
    covered = []
    for _ in range(400):
        common, favour = 3 * rng.normal(size=25), rng.normal(size=25)
        x, y = (
            common + 0.5 * rng.normal(size=(num, 1)) + 0.5 * rng.normal(size=(num, 25))
            for num in (20, 15)
        )
        x += 0.5 + favour
        _, low, high = probability_of_improvement(x, y, rng, num_resamples=300)
        covered.append(low <= truth <= high)
    assert 0.9 < np.mean(covered) < 0.98


def test_probability_of_improvement__luck_of_the_evaluation_seed_is_common():
    # x is better by little on every evaluation seed, and these differ by much.
    y = np.linspace(0.0, 100.0, 12) * np.ones((3, 1))
    assert probability_of_improvement(y + 0.1, y, np.random.default_rng(0)) == (1, 1, 1)


@pytest.mark.parametrize(
    "interval",
    [
        lambda scores, rng: bootstrap_interval(scores, rng),
        lambda scores, rng: probability_of_improvement(scores, scores[::-1, ::-1], rng),
    ],
)
def test_intervals__are_repeated_by_a_generator_of_the_same_seed_only(interval):
    scores = np.random.default_rng(0).normal(size=(4, 9))
    first, second, other = (interval(scores, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == second
    assert first.mean == other.mean
    assert first[1:] != other[1:]


def test_intervals__single_scores_have_none():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(bootstrap_interval([[2.0]], rng), [2, np.nan, np.nan])
    np.testing.assert_array_equal(
        probability_of_improvement([[2.0]], [[1.0]], rng), [1, np.nan, np.nan]
    )
    # With two runs of one of them there is something to draw.
    assert probability_of_improvement([[2.0]], [[1.0], [3.0]], rng) == (0.5, 0, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"values must have at least one entry, got shape \(0,\)"),
        ([1.0, np.nan], "values must be finite, got nan to nan"),
        ([1.0, np.inf], "values must be finite, got 1.0 to inf"),
    ],
)
def test_interquartile_mean__refuses(values, message):
    with pytest.raises(ValueError, match=message):
        interquartile_mean(values)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, 2.0], r"must have shape \(S, E\) with S, E >= 1, got \(2,\)"),
        (np.zeros((2, 2, 2)), r"must have shape \(S, E\) with S, E >= 1, got \(2, 2, 2\)"),
        (np.zeros((0, 2)), r"must have shape \(S, E\) with S, E >= 1, got \(0, 2\)"),
        (np.zeros((2, 0)), r"must have shape \(S, E\) with S, E >= 1, got \(2, 0\)"),
        ([[1.0, -np.inf]], "must be finite, got -inf to 1.0"),
    ],
)
def test_intervals__refuse_what_is_no_matrix_of_scores(scores, message):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=f"^scores {message}"):
        bootstrap_interval(scores, rng)
    with pytest.raises(ValueError, match=f"^x {message}"):
        probability_of_improvement(scores, [[1.0, 2.0]], rng)
    with pytest.raises(ValueError, match=f"^y {message}"):
        probability_of_improvement([[1.0, 2.0]], scores, rng)


def test_probability_of_improvement__refuses_other_evaluation_seeds():
    with pytest.raises(ValueError, match=r"y must have .* as x, shape \(S, 3\), got \(4, 1\)"):
        probability_of_improvement(np.zeros((2, 3)), np.zeros((4, 1)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 0.0}, r"confidence must lie in \(0, 1\), got 0.0"),
        ({"confidence": 1.0}, r"confidence must lie in \(0, 1\), got 1.0"),
        ({"confidence": np.nan}, r"confidence must lie in \(0, 1\), got nan"),
        ({"num_resamples": 0}, "num_resamples must be an integer of at least 1, got 0"),
        ({"num_resamples": 2.5}, "num_resamples must be an integer of at least 1, got 2.5"),
    ],
)
def test_intervals__refuse_arguments_out_of_range(arguments, message):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=message):
        bootstrap_interval([[1.0, 2.0]], rng, **arguments)
    with pytest.raises(ValueError, match=message):
        probability_of_improvement([[1.0, 2.0]], [[1.0, 2.0]], rng, **arguments)

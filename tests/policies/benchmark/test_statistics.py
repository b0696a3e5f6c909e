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
    crossed_interval,
    mean_interval,
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


@pytest.mark.parametrize("num_training_seeds", [5, 10])
@pytest.mark.parametrize(
    ("of_training", "of_evaluation", "of_entries"),
    # Agents as good as LROA differ by the evaluation seed, those that learn badly by their own.
    [(0.1, 1.0, 0.1), (0.3, 1.0, 0.3), (1.0, 1.0, 0.5), (1.0, 0.3, 0.3), (1.0, 0.05, 0.05)],
)
def test_crossed_interval__covers_what_it_says(
    num_training_seeds, of_training, of_evaluation, of_entries
):
    # The percentile bootstrap covers 80 to 92 % with five training seeds, and a t interval of the
    # training seeds' means 44 % in the first case.
    rng = np.random.default_rng(0)
    count, covered = 2000, 0
    for _ in range(count):
        scores = 3.0 + of_training * rng.normal(size=(num_training_seeds, 1))
        scores = scores + of_evaluation * rng.normal(size=30)
        scores += of_entries * rng.normal(size=scores.shape)
        _, low, high = crossed_interval(scores)
        covered += low <= 3.0 <= high
    # Three standard errors of the share, and one per cent that the approximation may cost.
    assert covered / count == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / count) + 0.01)


@given(matrices, st.floats(0.5, 0.99))
def test_crossed_interval__of_one_row_or_column_is_students(scores, confidence):
    values = scores[0]
    for shape in ((1, -1), (-1, 1)):
        interval = crossed_interval(values.reshape(shape), confidence)
        np.testing.assert_allclose(interval, mean_interval(values, confidence), atol=1e-9)


@given(matrices, st.integers(-1000, 1000))
def test_crossed_interval__shifts_with_the_scores_and_ignores_which_seeds_are_rows(scores, shift):
    interval = crossed_interval(scores)
    np.testing.assert_allclose(crossed_interval(scores + shift), np.add(interval, shift), atol=1e-9)
    np.testing.assert_allclose(crossed_interval(scores.T), interval, atol=1e-9)


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


def test_probability_of_improvement__is_repeated_by_a_generator_of_the_same_seed_only():
    scores = np.random.default_rng(0).normal(size=(4, 9))
    first, second, other = (
        probability_of_improvement(scores, scores[::-1, ::-1], np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert first == second
    assert first.mean == other.mean
    assert first[1:] != other[1:]


def test_intervals__single_scores_have_none():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(crossed_interval([[2.0]]), [2, np.nan, np.nan])
    np.testing.assert_array_equal(
        probability_of_improvement([[2.0]], [[1.0]], rng), [1, np.nan, np.nan]
    )
    # With two runs of one of them there is something to draw.
    assert probability_of_improvement([[2.0]], [[1.0], [3.0]], rng) == (0.5, 0, 1)


def test_crossed_interval__scores_that_agree_have_no_spread():
    assert crossed_interval(np.zeros((3, 4))) == (0, 0, 0)


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
        crossed_interval(scores)
    with pytest.raises(ValueError, match=f"^x {message}"):
        probability_of_improvement(scores, [[1.0, 2.0]], rng)
    with pytest.raises(ValueError, match=f"^y {message}"):
        probability_of_improvement([[1.0, 2.0]], scores, rng)


def test_probability_of_improvement__refuses_other_evaluation_seeds():
    with pytest.raises(ValueError, match=r"y must have .* as x, shape \(S, 3\), got \(4, 1\)"):
        probability_of_improvement(np.zeros((2, 3)), np.zeros((4, 1)), np.random.default_rng(0))


@pytest.mark.parametrize("confidence", [0.0, 1.0, np.nan])
def test_intervals__refuse_a_confidence_out_of_range(confidence):
    message = rf"confidence must lie in \(0, 1\), got {confidence}"
    with pytest.raises(ValueError, match=message):
        crossed_interval([[1.0, 2.0]], confidence)
    with pytest.raises(ValueError, match=message):
        probability_of_improvement(
            [[1.0, 2.0]], [[1.0, 2.0]], np.random.default_rng(0), confidence=confidence
        )


@pytest.mark.parametrize("number", [0, 2.5])
def test_probability_of_improvement__refuses_a_number_of_resamples(number):
    message = f"num_resamples must be an integer of at least 1, got {number}"
    with pytest.raises(ValueError, match=message):
        probability_of_improvement(
            [[1.0, 2.0]], [[1.0, 2.0]], np.random.default_rng(0), num_resamples=number
        )

"""Statistics of agents: cases by hand, exact bootstrap distributions, coverage, invariances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from policies.benchmark.statistics import (
    crossed_interval,
    mean_interval,
    probability_of_improvement,
)

# Whole numbers: ties occur, and adding a constant rounds nothing.
entries = st.integers(-20, 20).map(float)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=entries)


@pytest.mark.parametrize("num_training_seeds", [5, 10])
@pytest.mark.parametrize(
    ("of_training", "of_evaluation", "of_entries"),
    # Agents as good as LROA differ by the evaluation seed, those that learn badly by their own.
    [(0.1, 1.0, 0.1), (0.3, 1.0, 0.3), (1.0, 1.0, 0.5), (1.0, 0.3, 0.3), (1.0, 0.05, 0.05)],
)
def test_crossed_interval__covers_what_it_says(
    num_training_seeds, of_training, of_evaluation, of_entries
):
    # The percentile bootstrap of the interquartile mean covers 87 to 89 % with five training seeds
    # in the cases (1, 1, 0.5) and (1, 0.05, 0.05), and a t interval of the training seeds' means
    # 44 % in the first case.
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


@pytest.mark.parametrize(("num_training_seeds", "share"), [(5, 0.67), (10, 0.89)])
def test_crossed_interval__covers_less_where_one_training_in_five_fails(num_training_seeds, share):
    # Where none has failed nothing tells that one might: 0.8**5 is a third, and 0.8**10 a ninth.
    rng = np.random.default_rng(0)
    count, covered = 2000, 0
    for _ in range(count):
        scores = 1.0 * (rng.random((num_training_seeds, 1)) > 0.2)
        scores = scores + 0.05 * rng.normal(size=30)
        _, low, high = crossed_interval(scores)
        covered += low <= 0.8 <= high
    assert covered / count == pytest.approx(share, abs=0.03)


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


def test_probability_of_improvement__ends_are_those_of_all_possible_resamples():
    x = np.array([[1.0, 5.0, 2.0], [4.0, 6.0, 0.0]])
    y = np.array([[1.0, 7.0, 1.0], [3.0, 5.5, 3.0]])

    def share(x: np.ndarray, y: np.ndarray) -> float:
        columns = zip(x.T, y.T, strict=True)
        pairs = [pair for column in columns for pair in itertools.product(*column)]
        return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)

    # All equally likely draws of two rows of each and three columns, with replacement.
    two, three = (list(itertools.product(range(n), repeat=n)) for n in (2, 3))
    outcomes = [
        share(x[np.ix_(of_x, columns)], y[np.ix_(of_y, columns)])
        for of_x, of_y, columns in itertools.product(two, two, three)
    ]
    # No tail of this confidence is within four standard errors of a jump of the distribution: the
    # resamples then give the same percentiles for nearly every seed.
    ends = np.quantile(outcomes, [0.02, 0.98], method="inverted_cdf")
    interval = probability_of_improvement(
        x, y, np.random.default_rng(3), confidence=0.96, num_resamples=20_000
    )
    assert interval.mean == pytest.approx(share(x, y))
    assert interval[1:] == pytest.approx(ends)


@given(arrays(np.float64, (6, 1), elements=entries), arrays(np.float64, (4, 1), elements=entries))
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


def test_mean_interval__is_students():
    sample = np.random.default_rng(0).normal(3.0, 2.0, size=5)
    expected = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert mean_interval(sample) == pytest.approx((sample.mean(), *expected))
    np.testing.assert_array_equal(mean_interval([2.0]), [2, np.nan, np.nan])


def test_intervals__single_scores_have_none():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(crossed_interval([[2.0]]), [2, np.nan, np.nan])
    single = probability_of_improvement([[2.0]], [[1.0]], rng)
    np.testing.assert_array_equal(single, [1, np.nan, np.nan])
    # With two runs of one of them there is something to draw.
    assert probability_of_improvement([[2.0]], [[1.0], [3.0]], rng) == (0.5, 0, 1)


@pytest.mark.parametrize("confidence", [0.0, np.nan])
def test_intervals__refuse_what_is_no_matrix_of_scores_and_no_confidence(confidence):
    rng, good = np.random.default_rng(0), [[1.0, 2.0]]
    for scores, message in (
        ([1.0, 2.0], r"must have shape \(S, E\) with S, E >= 1, got \(2,\)"),
        (np.zeros((0, 2)), r"must have shape \(S, E\) with S, E >= 1, got \(0, 2\)"),
        ([[1.0, -np.inf]], "must be finite, got -inf to 1.0"),
    ):
        with pytest.raises(ValueError, match=f"^scores {message}"):
            crossed_interval(scores)
        with pytest.raises(ValueError, match=f"^x {message}"):
            probability_of_improvement(scores, good, rng)
        with pytest.raises(ValueError, match=f"^y {message}"):
            probability_of_improvement(good, scores, rng)
    with pytest.raises(ValueError, match=r"y must have .* as x, shape \(S, 3\), got \(4, 1\)"):
        probability_of_improvement(np.zeros((2, 3)), np.zeros((4, 1)), rng)
    message = rf"confidence must lie in \(0, 1\), got {confidence}"
    with pytest.raises(ValueError, match=message):
        crossed_interval(good, confidence)
    with pytest.raises(ValueError, match=message):
        probability_of_improvement(good, good, rng, confidence=confidence)
    with pytest.raises(ValueError, match="num_resamples must be an integer of at least 1, got 0"):
        probability_of_improvement(good, good, rng, num_resamples=0)

"""The aggregated update is unbiased."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from train_fl.server import aggregation_weights

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))


SCENARIO = Scenario(num_devices=4, num_samples=WEIGHTS)
F, P = SCENARIO.f_mid, SCENARIO.p_mid


def aggregate(cohort: np.ndarray) -> np.ndarray:
    participants, coefficients = aggregation_weights(Allocation(F, P, Q), cohort, SCENARIO)
    return coefficients @ UPDATES[participants]


@pytest.mark.parametrize("cohort_size", [1, 2, 3])
def test_aggregation__mean_over_all_draws_is_the_update_of_all_devices(cohort_size):
    draws = itertools.product(range(4), repeat=cohort_size)
    mean = sum(np.prod(Q[list(d)]) * aggregate(np.array(d)) for d in draws)
    np.testing.assert_allclose(mean, WEIGHTS @ UPDATES, rtol=1e-12)


def test_aggregation__monte_carlo_mean_over_draws():
    rng = np.random.default_rng(1)
    samples = np.array([aggregate(rng.choice(4, 5, p=Q)) for _ in range(20_000)])
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - WEIGHTS @ UPDATES) < 4 * error)


def test_aggregation__a_device_drawn_twice_appears_once_and_counts_twice():
    draws = np.array([2, 0, 2])
    participants, coefficients = aggregation_weights(Allocation(F, P, Q), draws, SCENARIO)
    np.testing.assert_array_equal(participants, [0, 2])
    np.testing.assert_allclose(coefficients, [0.1 / (3 * 0.4), 2 * 0.3 / (3 * 0.05)])


@pytest.mark.parametrize("cohort", [[3, 1], [1, 3], [3, -1, 1]])
def test_chosen__is_averaged_by_the_data_or_by_the_weights_of_the_decision(cohort):
    cohort = np.array(cohort)
    plain = Allocation(F, P, cohort=cohort)
    participants, coefficients = aggregation_weights(plain, cohort, SCENARIO)
    np.testing.assert_array_equal(participants, [1, 3])
    np.testing.assert_allclose(coefficients, [0.2 / 0.6, 0.4 / 0.6])
    weighted = Allocation(F, P, cohort=cohort, weights=10.0 + cohort)
    participants, coefficients = aggregation_weights(weighted, cohort, SCENARIO)
    np.testing.assert_array_equal(participants, [1, 3])
    np.testing.assert_array_equal(coefficients, [11, 13])

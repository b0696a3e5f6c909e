"""The tolerance of feasibility, against its inequality and against runs of chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario
from policies.benchmark.feasibility import energy_tolerance, participation_target


@given(
    st.integers(1, 10**6), st.sampled_from([1, 2, 5, 200]), st.lists(st.floats(1, 1e4), min_size=1)
)
def test_tolerance__is_one_lump_and_the_luck_of_freedmans_inequality(rounds, cohort, samples):
    scenario = Scenario.digits(num_devices=len(samples), num_samples=samples, cohort_size=cohort)
    tolerance = energy_tolerance(scenario, rounds)
    cases = [(tolerance.mean, rounds * cohort, 0.05)]
    for device, weight in zip(tolerance.device, scenario.weights, strict=True):
        share = min(cohort * weight, cohort / len(samples), 1)
        cases.append((device, rounds * share, 0.05 / len(samples)))
    for value, lumps, probability in cases:
        luck = value * lumps - 1
        assert np.exp(-(luck**2) / (2 * lumps + 2 * luck / 3)) == pytest.approx(probability)


def test_tolerance__is_rarely_exceeded_by_policies_within_their_budgets():
    # K distinct devices at random, each of which spends budget / (K w) when it takes part.
    scenario = Scenario.digits(num_devices=20, cohort_size=3)
    rng = np.random.default_rng(0)
    for rounds in (20, 200):
        tolerance = energy_tolerance(scenario, rounds)
        order = rng.random((500, rounds, 20)).argsort(axis=-1)
        times = (order < 3).sum(axis=1)
        spent = times / (rounds * participation_target(scenario))
        alarms = (spent > 1 + tolerance.device).any(axis=1) | (
            spent.mean(axis=1) > 1 + tolerance.mean
        )
        assert alarms.mean() <= 0.05
        # A policy that spends twice as much is found out, at the latest by the mean.
        assert (2 * spent.mean(axis=1) > 1 + tolerance.mean).mean() >= 0.95


def test_participation_target__is_the_data_weight_of_k_places_and_at_most_one():
    scenario = Scenario(num_devices=3, cohort_size=2, num_samples=[6, 3, 1])
    np.testing.assert_allclose(participation_target(scenario), [1, 0.6, 0.2])

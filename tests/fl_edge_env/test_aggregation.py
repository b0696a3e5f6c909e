"""The contributions of a round make an unbiased update."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.aggregation import contributions

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))

SCENARIO = Scenario(num_devices=4, num_samples=WEIGHTS)
F, P = SCENARIO.f_mid, SCENARIO.p_mid


def aggregate(decision: Allocation, scenario: Scenario = SCENARIO, **info) -> np.ndarray:
    return contributions(decision, info, scenario).weight @ UPDATES


@pytest.mark.parametrize("cohort_size", [1, 2, 3])
def test_sampled__mean_over_all_draws_is_the_update_of_all_devices(cohort_size):
    draws = itertools.product(range(4), repeat=cohort_size)
    decision = Allocation(F, P, Q)
    mean = sum(np.prod(Q[list(d)]) * aggregate(decision, cohort=np.array(d)) for d in draws)
    np.testing.assert_allclose(mean, WEIGHTS @ UPDATES, rtol=1e-12)


@pytest.mark.parametrize("kind", ["sampled", "weighted", "averaged"])
def test_failures__leave_the_mean_of_the_aggregate_as_it_is(kind):
    failure = 0.3
    scenario = SCENARIO.replace(upload_failure=failure)
    cohort = np.array([2, 0, 2]) if kind == "sampled" else np.array([3, -1, 0, 2])
    fields = {"q": Q} if kind == "sampled" else {"cohort": cohort}
    if kind == "weighted":
        fields["weights"] = np.array([0.5, 9.0, 0.7, 0.1])
    decision = Allocation(F, P, **fields)
    mean = np.zeros(3)
    for failed in itertools.product([False, True], repeat=4):
        failed = np.array(failed)
        came = contributions(decision, {"cohort": cohort, "failed": failed}, scenario)
        assert set(came.participants) == set(cohort[cohort >= 0]) - set(np.flatnonzero(failed))
        chance = np.prod(np.where(failed, failure, 1 - failure))
        mean += chance * (came.weight @ UPDATES)
        if kind == "averaged" and came.arrived.any():  # shares of what arrived
            assert came.weight.sum() == pytest.approx(1)
    if kind != "averaged":
        np.testing.assert_allclose(mean, aggregate(decision, cohort=cohort), rtol=1e-12)


def test_contributions__of_rounds_of_the_environment_are_unbiased_over_draws_and_failures():
    """The mean over rounds with the same devices is the update of all that were available."""
    scenario = SCENARIO.replace(
        cohort_size=2, num_rounds=30_000, availability=0.6, upload_failure=0.4
    )
    simulator = Simulator(scenario)
    simulator.reset([0])
    decision = Allocation(F, P, Q)
    samples: dict[tuple, list] = {}
    for _ in range(scenario.num_rounds):
        info = simulator.advance(decision).info()
        update = aggregate(decision, scenario, **info)
        samples.setdefault(tuple(info["available"]), []).append(update)
    assert len(samples) == 15
    for there, updates in samples.items():
        mean = (WEIGHTS * np.array(there)) @ UPDATES
        error = np.std(updates, axis=0) / np.sqrt(len(updates))
        assert np.all(np.abs(np.mean(updates, axis=0) - mean) < 4.5 * error)

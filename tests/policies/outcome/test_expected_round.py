"""The outcome problem of expected times and energies against an enumeration of the cohorts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from fl_edge_env.channels import GainLaw
from policies.outcome import solve_round
from policies.p2 import solve_p2
from policies.resources import deadline_resources
from tests.policies.outcome.test_round import assert_best, golden, random_state, small_problems
from tests.support import expected_time_and_energy, random_law


def best_by_enumeration(scenario: Scenario, law: GainLaw, queue, participation) -> float:
    """Every cohort; for each its deadline, and each device's power, by sections: no price."""
    n, k = scenario.num_devices, min(scenario.cohort_size, scenario.num_devices)
    cohorts = [c for size in range(1, k + 1) for c in itertools.combinations(range(n), size)]
    member = np.array([np.isin(np.arange(n), c) for c in cohorts])
    rows = GainLaw(*(np.broadcast_to(part, (len(cohorts), *part.shape)) for part in law))
    least, slowest = (
        expected_time_and_energy(law, f, p, scenario)[0]
        for f, p in ((scenario.f_max, scenario.p_max), (scenario.f_min, scenario.p_min))
    )
    _, dearest = expected_time_and_energy(law, scenario.f_max, scenario.p_max, scenario)
    cycles, shortest = scenario.cycles_per_round, scenario.cycles_per_round / scenario.f_max

    def cost(tau: np.ndarray) -> np.ndarray:
        deadline = np.maximum(tau[:, None], least)

        def energy(log_p: np.ndarray) -> np.ndarray:
            p = np.exp(log_p)
            time, spent = expected_time_and_energy(rows, scenario.f_max, p, scenario)
            upload = time - shortest
            rest = deadline - upload
            f = np.clip(cycles / np.maximum(rest, 0.5 * shortest), scenario.f_min, scenario.f_max)
            fastest = physics.compute_energy(scenario.f_max, scenario)
            late = np.maximum(shortest - rest, 0.0) / deadline
            missed = np.where(late > 1e-13, 1e6 * (1 + late) * dearest, 0.0)
            return spent - fastest + physics.compute_energy(f, scenario) + missed

        low = np.log(scenario.p_min) + 0 * deadline
        costs = queue * golden(energy, low, np.log(scenario.p_max) + 0 * deadline) - participation
        return tau + np.where(member, costs, 0).sum(axis=1)

    first = np.where(member, least, 0).max(axis=1)
    last = np.where(member, slowest, 0).max(axis=1)
    return float(golden(cost, first, last).min())


@given(small_problems(4), st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_solve_round__of_a_law_finds_the_best_of_all_cohorts(problem, seed, nodes):
    scenario, gain, queue, participation = problem
    law = random_law(np.random.default_rng(seed), gain.shape, nodes)
    solution = solve_round(law, queue, participation, scenario, V=1.0)
    reference = best_by_enumeration(scenario, law, queue, participation)
    rounding = assert_best(solution, reference, participation)
    cohort = solution.participates
    time, energy = expected_time_and_energy(law, solution.f, solution.p, scenario)
    assert solution.deadline == pytest.approx(time[cohort].max(), rel=1e-9)
    own = time[cohort].max() + np.sum((queue * energy - participation)[cohort])
    assert solution.objective == pytest.approx(own, abs=rounding)


def test_deadline_resources__least_energy_of_a_law_is_convex_in_the_expected_time():
    # A price V of time buys the point of the curve where a second costs V: a convex curve's chords
    # then have slopes between the prices at their ends.
    scenario = Scenario(
        num_devices=1, cohort_size=1, cycles_per_sample=1e8, capacitance=2e-27, p_max=10.0
    )
    V = np.geomspace(1e-4, 1e3, 200)
    for seed in range(20):
        law = random_law(np.random.default_rng(seed), (1,), 4)
        points = []
        for price in V:
            f, p = deadline_resources(law, np.ones(1), np.ones(1, bool), scenario, V=price)
            points.append([part[0] for part in expected_time_and_energy(law, f, p, scenario)])
        time, energy = np.array(points).T
        moved = np.diff(time) < -1e-6 * time[:-1]
        assert moved.sum() > 50
        assert np.all(np.diff(time) <= 1e-9 * time[:-1])
        slope = -(np.diff(energy) / np.where(moved, np.diff(time), 1.0))[moved]
        assert np.all(slope >= V[:-1][moved] * (1 - 1e-4))
        assert np.all(slope <= V[1:][moved] * (1 + 1e-4))


def test_law__of_one_gain_is_that_gain():
    scenario = Scenario.femnist(num_devices=12, cohort_size=3)
    gain, queue, participation = random_state(scenario, 5)
    nodes = GainLaw(
        np.repeat(gain[:, None], 4, axis=1), np.random.default_rng(0).dirichlet(np.ones(4), 12)
    )
    for solve, names in (
        (lambda g: solve_round(g, queue, participation, scenario, V=1.0), ("deadline",)),
        (lambda g: solve_p2(g, queue * scenario.V / 50, scenario), ("q",)),
    ):
        known, single, equal = map(solve, (gain, GainLaw(gain[:, None], np.ones((12, 1))), nodes))
        for name in ("f", "p", "objective", "lower_bound", *names):
            np.testing.assert_array_equal(getattr(single, name), getattr(known, name))
            np.testing.assert_allclose(getattr(equal, name), getattr(known, name), rtol=1e-6)

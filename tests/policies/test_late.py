"""Policies where devices are late: who learns what, who waits for whom, and the records."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Scenario, physics
from fl_edge_env.aggregation import in_time
from policies import Opportunistic, evaluate, make_policy
from policies.outcome import outcome_prices
from policies.selection import OverSelection, Scheduler
from tests.support import played

# Devices that hardly ever, sometimes and always meet the deadline.
SPEEDS = np.repeat([0.3, 0.8, 1.0, 1.5], 5)
MIXED = Scenario.cifar10(
    num_devices=20,
    cohort_size=5,
    num_rounds=150,
    num_samples=400,
    f_max=2e9 * SPEEDS,
    f_min=1e9 * SPEEDS,
    capacitance=2e-28 / SPEEDS**3,
    energy_budget_j=300.0,
)


def waiting_for(first: int, scenario: Scenario, resources: str) -> Scheduler:
    """Over-selection that ends a round with another number than its own."""
    selector = OverSelection(scenario)
    selector.first = first
    return Scheduler(selector, resources)


@pytest.mark.parametrize(("cohort_size", "first"), [(1, 1), (4, 4), (5, 4), (13, 10), (39, 30)])
def test_over_selection__waits_for_ten_of_thirteen(cohort_size, first):
    assert OverSelection(MIXED.replace(cohort_size=cohort_size)).first == first


def test_over_selection__counts_the_first_of_a_random_cohort():
    policy = waiting_for(3, MIXED, "static")
    random = make_policy("random:static", MIXED)
    for info, other in zip(played(policy), played(random), strict=True):
        assert set(info["cohort"]) == set(other["cohort"])
        slowest = other["cohort"][other["device_time"][other["cohort"]].argsort()]
        assert set(np.flatnonzero(info["late"])) == set(slowest[3:])
        assert info["round_time"] == other["device_time"][slowest[2]]
    there = MIXED.replace(availability=0.05)  # in most rounds fewer than three are
    infos = played(waiting_for(3, there, "static"))
    assert min(in_time(info).sum() for info in infos) == 1


def test_dynamic_resources__make_nobody_late_by_rounding():
    scenario = MIXED.replace(f_min=1e8)  # all can take as long as the slowest
    policy = waiting_for(2, scenario, "dynamic")
    assert not any(info["late"].any() for info in played(policy)[20:])


def test_selectors__count_a_late_device_as_having_had_its_turn():
    scenario = MIXED.replace(deadline_s=4000.0)
    policy = make_policy("round-robin:static", scenario)
    infos = played(policy)
    late = sum(info["late"] for info in infos)
    assert late[:5].min() > 10
    turns = np.sum([np.bincount(info["cohort"], minlength=20) for info in infos], axis=0)
    assert turns.min() >= turns.max() - 1


def test_opportunistic__is_near_its_bound_with_a_deadline():
    fast = MIXED.replace(num_devices=20, f_max=2e9, f_min=1e9, capacitance=2e-28)
    scenario = fast.replace(deadline_s=3000.0)
    free = [info["round_time"] for info in played(Opportunistic(fast))]
    assert np.mean(np.array(free) > 3000.0) > 0.05
    infos = played(Opportunistic(scenario))
    assert np.mean([info["late"].any() for info in infos]) < 0.02
    assert max(info["round_time"] for info in infos) <= scenario.deadline_s
    table = evaluate([Opportunistic(scenario)], scenario, [0, 1])
    assert (table["status"] == "ok").all()
    assert table["outcome_gap"].between(0, 0.05).all()


def test_outcome_prices__meet_constraints_with_a_deadline():
    scenario = MIXED.replace(deadline_s=4000.0)
    least, _ = physics.time_and_energy(
        np.full(20, scenario.channel.gain_max), scenario.f_max, scenario.p_max, scenario
    )
    never = least > scenario.deadline_s
    assert 0 < never.sum() < 20
    prices = outcome_prices(scenario)
    assert np.isfinite(prices).all()
    infos = played(Opportunistic(scenario, prices=prices, step_scale=0.0))
    came = np.mean([in_time(info) for info in infos], axis=0)
    assert np.all(came[never] == 0)
    assert came[~never].min() > 0.1

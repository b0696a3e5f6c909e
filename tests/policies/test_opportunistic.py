"""Opportunistic: valid, fair in the long run and within its budgets."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import FLEdgeEnv, MarkovChannel, Scenario, lyapunov
from fl_edge_env.aggregation import contributions
from policies import Opportunistic, check_policy, evaluate, make_policy
from policies.outcome import DualPrices, outcome_prices
from tests.policies.outcome.test_prices import UNEVEN


def zero_prices(scenario: Scenario) -> DualPrices:
    return DualPrices(np.zeros(scenario.num_devices), np.zeros(scenario.num_devices))


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"cohort_size": 12}, {"start": "cold"}),  # with cohorts that are not full
        ({"csi": "delayed", "channel": MarkovChannel.correlated(0.8)}, {"participation": False}),
    ],
)
def test_opportunistic__is_a_valid_policy(fields, options):
    scenario = UNEVEN.replace(**fields)
    policy = Opportunistic(scenario, prices=zero_prices(scenario), **options)
    check_policy(policy)


def test_opportunistic__data_weigh_alike_in_the_long_run():
    scenario = UNEVEN.replace(num_rounds=1000)
    policy, env = Opportunistic(scenario, prices=outcome_prices(UNEVEN)), FLEdgeEnv(scenario)
    observation, _ = env.reset(seed=0)
    total, spent = np.zeros((2, 8))
    for _ in range(1000):
        allocation = policy.decide(observation)
        observation, *_, info = env.step(allocation)
        policy.feedback(info)
        total += contributions(allocation, info, scenario).weight
        spent += info["energy_spent"]
    np.testing.assert_allclose(total / 1000, scenario.weights, rtol=0.03)
    assert np.all(spent / 1000 <= 1.02 * scenario.energy_budget_j)


def test_opportunistic__is_ok_fair_and_near_the_bound():
    # Devices as in the CIFAR-10 system, of which each takes part in a tenth of the rounds.
    scenario = Scenario.cifar10(
        num_devices=20, num_samples=50_000 / 120, energy_budget_j=90.0, num_rounds=200
    )
    table = evaluate([Opportunistic(scenario)], scenario, [0, 1])
    assert (table.status == "ok").all()
    row = table.mean(numeric_only=True)
    assert row.spent_ratio <= 1.01
    assert row.worst_spent_ratio <= 1.08
    assert row.least_participation >= 0.9
    assert 0 <= row.outcome_gap <= 0.04


def test_opportunistic__prices_move_with_energy_and_participation():
    scenario = UNEVEN
    policy = Opportunistic(scenario, prices=zero_prices(scenario), start="cold")
    policy.reset([0, 1])
    spent = np.zeros((2, 8))
    spent[1, 3] = 10 * scenario.energy_budget_j[3]
    policy.feedback({"energy_spent": spent})
    assert np.all(policy._energy[0] == 0)  # prices are never negative
    assert np.flatnonzero(policy._energy[1]).tolist() == [3]
    assert np.argwhere(policy._participation < 0).tolist() == [[1, 3]]
    missed = policy._participation[0] / lyapunov.participation_target(scenario)
    np.testing.assert_allclose(missed, missed[0])
    policy.reset([0, 1])
    assert not np.any(policy._participation)
    of_energy = Opportunistic(scenario, prices=zero_prices(scenario), participation=False)
    of_energy.reset([0, 1])
    of_energy.feedback({"energy_spent": spent})
    assert not np.any(of_energy._participation)


@pytest.mark.parametrize("csi", ["delayed", "participants"])
@pytest.mark.parametrize("name", ["lroa", "uni-d", "uni-s", "opportunistic", "fastest:dynamic"])
def test_policies__take_the_gains_that_they_are_shown(name, csi):
    scenario = Scenario.cell(num_devices=8, num_rounds=40, energy_budget_j=225.0, csi=csi)
    check_policy(make_policy(name, scenario))

"""Rules that learn from participants: indices by hand, and what they find out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fl_edge_env import CellChannel, Scenario
from policies import make_policy
from policies.selection import Thompson, UpperConfidence
from tests.policies.selection.test_selectors import (
    candidates_of,
    cohorts_of,
    participations,
    started,
)

FOUR = Scenario.cifar10(num_devices=4, cohort_size=2, num_rounds=60)
CELL = Scenario.cell(num_devices=8, num_rounds=600, energy_budget_j=200.0, csi="participants")


def taught(selector, rounds):
    """A selector that has seen the times of participants, a dict for each round."""
    started(selector)
    for times in rounds:
        info = {"energy_spent": np.zeros(4), "device_time": np.full(4, np.nan)}
        for device, time in times.items():
            info["energy_spent"][device], info["device_time"][device] = 1.0, time
        selector.learn(info)
    return selector


def test_ucb__index_is_that_of_the_paper():
    rounds = [{0: 20.0, 1: 60.0}, {0: 40.0, 2: 250.0}]
    selector = taught(UpperConfidence(FOUR, fairness=0.0, longest=100.0), rounds)
    rewards, counts = np.array([0.7, 0.4, 0.0]), np.array([2, 1, 1])  # the last one too long
    expected = rewards + np.sqrt(3.0 * math.log(3) / counts)
    np.testing.assert_allclose(selector.index(3)[:3], expected)
    assert selector.select(candidates_of(FOUR, number=3)).tolist() == [3, 1]  # new, then widest
    fair = taught(UpperConfidence(FOUR, exploration=0.1, fairness=0.5, longest=100.0), rounds)
    expected = np.minimum(rewards + 0.1 * np.sqrt(2.0 * math.log(3) / counts), 1.0)
    np.testing.assert_allclose(fair.index(3), [*expected, 1.0])
    fair.learn({})  # a reset
    # Half a participation is owed in each round, and one is paid back by taking part.
    np.testing.assert_allclose(fair.memory["missing"], [0.0, 0.5, 0.0, 1.0])


@pytest.mark.parametrize("name", ["ucb", "thompson"])
@pytest.mark.parametrize("csi", ["full", "delayed", "participants"])
def test_bandits__find_the_near_and_with_fairness_serve_all(name, csi):
    scenario = CELL.replace(csi=csi)
    near = np.argsort(scenario.mean_gain)[-3:]
    options = {"exploration": 0.1} if name == "ucb" else {}
    greedy = make_policy(f"{name}:static", scenario, fairness=0.0, **options)
    counts = participations(cohorts_of(greedy, scenario), scenario)
    assert counts[near].sum() > 0.7 * counts.sum()
    fair = participations(cohorts_of(make_policy(f"{name}:static", scenario), scenario), scenario)
    assert fair.min() > 0.9 * fair.mean()


def test_thompson__draws_at_first_and_stays_with_a_gain_that_stays():
    scenario = CELL.replace(channel=CellChannel(persistence=0.9), cohort_size=1)
    selector = started(Thompson(scenario, fairness=0.0))
    gain, spent = np.full(8, 0.1), np.zeros(8)
    drawn = [selector.select(candidates_of(scenario, k, channel_gain=gain))[0] for k in range(20)]
    assert len(set(drawn)) > 4  # nothing is known yet
    first = selector.select(candidates_of(scenario, channel_gain=gain))[0]
    gain[first], spent[first] = 1.0, 1.0  # as good as hardly any new fading
    for seed in range(3):
        selector.learn({"energy_spent": spent})
        assert selector.select(candidates_of(scenario, seed, channel_gain=gain)) == [first]

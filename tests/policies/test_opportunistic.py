"""Opportunistic: valid, fair in the long run and within its budgets."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import (
    Allocation,
    CellChannel,
    ExponentialChannel,
    FLEdgeEnv,
    Scenario,
    Simulator,
)
from fl_edge_env.aggregation import contributions
from fl_edge_env.allocation import smallest
from fl_edge_env.lyapunov import participation_target
from policies import LROA, Opportunistic, check_policy, evaluate, make_policy
from policies.opportunistic import participation_jump
from policies.outcome import initial_prices, outcome_prices, solve_round
from tests.policies.outcome.test_prices import UNEVEN

# A tenth of the devices with ten times the budget: as scarce as in the whole system.
ALIKE = Scenario.cifar10(num_devices=12, num_rounds=60, energy_budget_j=150.0, num_samples=400.0)
CELL = ALIKE.replace(channel=CellChannel())
LATE = {"deadline_s": 27_000.0}


@pytest.mark.usefixtures("whole_searches")
def test_opportunistic__data_weigh_alike_in_the_long_run():
    scenario = UNEVEN.replace(num_rounds=1000)
    policy = Opportunistic(scenario, prices=outcome_prices(UNEVEN))
    env = FLEdgeEnv(scenario)
    observation, _ = env.reset(seed=0)
    total, spent = np.zeros((2, 8))
    for _ in range(1000):
        allocation = policy.decide(observation)
        observation, *_, info = env.step(allocation)
        policy.feedback(info)
        total += contributions(allocation, info, scenario).weight
        spent += info["energy_spent"]
    np.testing.assert_allclose(total / 1000, scenario.weights, rtol=0.03)
    assert np.max(spent / 1000 / scenario.energy_budget_j) <= 1.03


class OwnChannel(ExponentialChannel):
    """A channel outside the package: two gains, and nothing about devices or persistence."""

    def draw(self, rng, rounds, num_devices, **_):
        return np.where(rng.random((rounds, num_devices)) < 0.5, 0.02, 0.4)

    def sample(self, rng, count, num_devices):
        return self.draw(rng, count, num_devices)


OWN = {"csi": "participants", "channel": OwnChannel()}


@pytest.mark.parametrize(
    "fields", [{"csi": "delayed"}, {"csi": "participants"}, OWN, LATE], ids=str
)
@pytest.mark.parametrize(
    "name", ["lroa", "uni-d", "uni-s", "opportunistic", "fastest", "over-selection:static"]
)
def test_policies__take_any_gains_and_deadlines(name, fields):
    scenario = Scenario.cell(num_devices=8, num_rounds=40, energy_budget_j=225.0, **fields)
    check_policy(make_policy(name, scenario))


@pytest.mark.parametrize("scenario", [ALIKE, CELL], ids=["iid", "cell"])
def test_opportunistic__is_greedy_on_queues_at_equal_budgets(scenario):
    prices = initial_prices(scenario)
    jump = participation_jump(prices, scenario)
    # A participation at the energy that the budget allows moves either queue's cost by `jump`.
    allowed = scenario.energy_budget_j / participation_target(scenario)
    weight = float(np.mean(allowed**2))
    queues = scenario.replace(objective="outcome", V=weight / jump)
    plain = Simulator(scenario, 2)
    priced = Simulator(queues, 2)
    policy = Opportunistic(scenario)
    for each in (plain, priced, policy):
        each.reset([0, 1])
    priced.queue[:] = queues.V * (prices.energy + 0.5 * jump / allowed)
    priced.participation_queue[:] = prices.participation / jump
    for _ in range(scenario.num_rounds):
        one = plain.advance(policy.decide(plain.observe()))
        policy.feedback(one.info())
        state = priced.observe()
        greedy = solve_round(
            state["channel_gain"],
            state["queue"],
            weight * state["participation_queue"],
            queues,
            tolerance=1e-5,
        )
        cohort = smallest(np.zeros((2, 12)), greedy.participates, 2)
        other = priced.advance(Allocation(greedy.f, greedy.p, cohort=cohort))
        np.testing.assert_array_equal(one.cohort, other.cohort)
        np.testing.assert_allclose(one.energy_spent, other.energy_spent, rtol=1e-4)


def test_initial_prices__do_not_reveal_who_is_far():
    for price, known in zip(
        initial_prices(CELL.replace(csi="participants")), initial_prices(CELL), strict=True
    ):
        assert len(np.unique(price)) == 1
        assert len(np.unique(known)) == 12


@pytest.mark.slow
@pytest.mark.usefixtures("whole_searches")
@pytest.mark.parametrize(("channel", "least"), [("cell:0.9", 0.15), ("cell", 0.0)])
def test_opportunistic__learns_the_gains_of_participants(channel, least):
    scenario = Scenario.cell(channel=channel, csi="participants")
    runs = evaluate(
        [Opportunistic(scenario), LROA(scenario)], scenario, range(5000, 5005), gaps=False
    ).groupby("policy")
    mean = runs[["priced_time", "lack", "excess", "spent_ratio"]].mean()
    ours = mean.loc["Opportunistic"]
    assert ours["priced_time"] < (1.0 - least) * mean["priced_time"]["LROA"]
    assert ours["lack"] < 0.15
    assert ours["excess"] < 0.21
    assert ours["spent_ratio"] < 1.03

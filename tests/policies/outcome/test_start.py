"""Where Opportunistic's prices start, and that its decisions are greedy ones on virtual queues."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Allocation, CellChannel, Scenario, Simulator
from fl_edge_env.lyapunov import participation_target, participation_weight
from policies import Opportunistic
from policies.outcome import initial_prices, solve_round
from policies.outcome.start import energy_start, participation_jump

# A tenth of the devices with ten times the budget: as scarce as in the whole system.
ALIKE = Scenario.cifar10().replace(num_devices=12, num_rounds=60, energy_budget_j=150.0)
CELL = ALIKE.replace(channel=CellChannel())


@pytest.mark.parametrize("scenario", [ALIKE, CELL], ids=["iid", "cell"])
def test_opportunistic__at_equal_budgets_is_greedy_on_the_queues_of_the_outcome(scenario):
    prices = initial_prices(scenario)
    jump = participation_jump(prices, scenario)
    weight = participation_weight(scenario)
    # A participation at the energy that the budget allows moves either queue's cost by `jump`.
    queues = scenario.replace(objective="outcome", V=weight / jump)
    allowed = scenario.energy_budget_j / participation_target(scenario)
    np.testing.assert_allclose(allowed**2 / queues.V, jump)
    plain, priced = Simulator(scenario, 2), Simulator(queues, 2)
    policy = Opportunistic(scenario)
    for each in (plain, priced, policy):
        each.reset([0, 1])
    priced.queue[:] = queues.V * energy_start(prices, jump, scenario)
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
        order = np.argsort(~greedy.participates, axis=-1, kind="stable")[:, :2]
        cohort = np.where(np.take_along_axis(greedy.participates, order, axis=-1), order, -1)
        other = priced.advance(Allocation(greedy.f, greedy.p, cohort=cohort))
        np.testing.assert_array_equal(one.cohort, other.cohort)
        np.testing.assert_allclose(one.round_time, other.round_time, rtol=1e-5)
        np.testing.assert_allclose(one.energy_spent, other.energy_spent, rtol=1e-4)


def test_initial_prices__do_not_tell_who_is_far_where_participants_alone_are_known():
    for price, known in zip(
        initial_prices(CELL.replace(csi="participants")), initial_prices(CELL), strict=True
    ):
        assert len(np.unique(price)) == 1
        assert len(np.unique(known)) == 12

"""Priced scenarios: the greedy decision on their queues is Opportunistic's."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Allocation, CellChannel, Scenario, Simulator
from fl_edge_env.lyapunov import participation_target, participation_weight
from policies import Opportunistic
from policies.outcome import (
    DualPrices,
    outcome_prices,
    priced_scenario,
    solve_round,
)

# A tenth of the devices with ten times the budget: as scarce as in the whole system.
ALIKE = Scenario.cifar10().replace(num_devices=12, num_rounds=60, energy_budget_j=150.0)
CELL = ALIKE.replace(channel=CellChannel())


def play(scenario: Scenario, seeds: list[int]) -> tuple[list, list]:
    """Rounds of Opportunistic, and of the greedy decision in the settled scenario."""
    settled = priced_scenario(scenario)
    weight = participation_weight(settled)
    plain, priced = Simulator(scenario, len(seeds)), Simulator(settled, len(seeds))
    policy = Opportunistic(scenario)
    plain.reset(seeds)
    priced.reset(seeds)
    policy.reset(seeds)
    rounds: tuple[list, list] = ([], [])
    for _ in range(scenario.num_rounds):
        allocation = policy.decide(plain.observe())
        state = priced.observe()
        greedy = solve_round(
            state["channel_gain"],
            state["queue"],
            weight * state["participation_queue"],
            settled,
            tolerance=1e-5,
        )
        order = np.argsort(~greedy.participates, axis=-1, kind="stable")[:, :2]
        cohort = np.where(np.take_along_axis(greedy.participates, order, axis=-1), order, -1)
        rounds[0].append(plain.advance(allocation))
        rounds[1].append(priced.advance(Allocation(greedy.f, greedy.p, cohort=cohort)))
        policy.feedback(rounds[0][-1].info())
    return rounds


@pytest.mark.parametrize("scenario", [ALIKE, CELL], ids=["iid", "cell"])
def test_priced_scenario__greedy_decisions_at_equal_budgets_are_opportunistics(
    scenario,
):
    expected, greedy = play(scenario, [0, 1])
    for one, other in zip(expected, greedy, strict=True):
        np.testing.assert_array_equal(one.cohort, other.cohort)
        np.testing.assert_allclose(one.round_time, other.round_time, rtol=1e-5)
        np.testing.assert_allclose(one.energy_spent, other.energy_spent, rtol=1e-4)


def test_priced_scenario__queues_are_prices_and_a_participation_moves_both_costs_by_the_same():
    settled = priced_scenario(ALIKE)
    prices = outcome_prices(ALIKE)
    allowed = ALIKE.energy_budget_j / participation_target(ALIKE)
    jump = participation_weight(settled) / settled.V  # of Z: one round's worth
    np.testing.assert_allclose(allowed**2 / settled.V, jump)  # of Q: the energy allowed
    np.testing.assert_allclose(jump * settled.initial_participation_queue, prices.participation)
    np.testing.assert_allclose(
        settled.initial_queue / settled.V, prices.energy + 0.5 * jump / allowed
    )
    slower = priced_scenario(ALIKE, step_scale=0.5)
    np.testing.assert_allclose(slower.V, 2 * settled.V)
    # Settled already, it stays as it is.
    again = priced_scenario(settled)
    np.testing.assert_allclose(again.V, settled.V)
    np.testing.assert_allclose(again.initial_queue, settled.initial_queue)


def test_priced_scenario__where_participants_alone_are_known_no_start_tells_who_is_far():
    scenario = CELL.replace(csi="participants")
    settled = priced_scenario(scenario)
    for name in ("initial_queue", "initial_participation_queue"):
        assert len(np.unique(getattr(settled, name))) == 1
        assert len(np.unique(getattr(priced_scenario(CELL), name))) == 12


def test_priced_scenario__takes_prices_of_ones_own_and_refuses_a_wrong_step():
    prices = DualPrices(np.full(12, 0.5), np.linspace(100.0, 200.0, 12))
    settled = priced_scenario(ALIKE, prices=prices)
    jump = participation_weight(settled) / settled.V
    np.testing.assert_allclose(jump * settled.initial_participation_queue, prices.participation)
    with pytest.raises(ValueError, match="step_scale must be positive and finite, got 0"):
        priced_scenario(ALIKE, step_scale=0)

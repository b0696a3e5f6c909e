"""Priced scenarios: the greedy decision on their queues is Opportunistic's."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Allocation, CellChannel, MarkovChannel, Scenario, Simulator
from fl_edge_env.channels import conditional_law
from fl_edge_env.lyapunov import participation_target, participation_weight
from policies import Opportunistic, evaluate
from policies.outcome import (
    DualPrices,
    initial_prices,
    law_prices,
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


def test_initial_prices__are_those_of_laws_where_old_gains_say_nothing():
    forgotten = CELL.replace(csi="delayed")
    law = conditional_law(CELL.channel, np.full(12, 1.0))
    np.testing.assert_array_equal(initial_prices(forgotten), law_prices(law, CELL))
    lasting = ALIKE.replace(csi="delayed", channel=MarkovChannel.correlated(0.8))
    np.testing.assert_array_equal(initial_prices(lasting), outcome_prices(lasting))
    np.testing.assert_array_equal(initial_prices(CELL), outcome_prices(CELL))


def test_initial_prices__of_devices_that_are_too_far_are_bounded():
    # Without waiting for good rounds some of these users cannot keep within their budgets.
    scenario = Scenario.cell(csi="delayed")
    law = conditional_law(scenario.channel, scenario.mean_gain)
    wanted, prices = law_prices(law, scenario), initial_prices(scenario)
    typical = np.median(wanted.energy)
    near = wanted.energy <= 10 * typical
    assert wanted.energy.max() > 1e5 * typical
    # Those who cannot spend their budgets have no price, and count for nothing.
    rich = scenario.energy_budget_j * np.where(scenario.mean_gain > scenario.channel.mean, 9.0, 1.0)
    bounded = initial_prices(scenario.replace(energy_budget_j=rich)).energy
    assert bounded.max() <= 10 * np.median(bounded[bounded > 0]) * (1 + 1e-9)
    np.testing.assert_allclose(prices.energy[~near], 10 * typical)
    np.testing.assert_allclose(prices.energy[near], wanted.energy[near], rtol=1e-8)


def test_initial_prices__let_every_device_take_part_where_old_gains_say_nothing():
    scenario = CELL.replace(csi="delayed", num_rounds=200)
    row = evaluate([Opportunistic(scenario)], scenario, [0, 1]).mean(numeric_only=True)
    assert row.least_participation > 0.5
    assert row.spent_ratio == pytest.approx(1, rel=0.05)


def test_priced_scenario__takes_prices_of_ones_own_and_refuses_a_wrong_step():
    prices = DualPrices(np.full(12, 0.5), np.linspace(100.0, 200.0, 12))
    settled = priced_scenario(ALIKE, prices=prices)
    jump = participation_weight(settled) / settled.V
    np.testing.assert_allclose(jump * settled.initial_participation_queue, prices.participation)
    with pytest.raises(ValueError, match="step_scale must be positive and finite, got 0"):
        priced_scenario(ALIKE, step_scale=0)

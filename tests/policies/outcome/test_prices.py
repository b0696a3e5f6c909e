"""Prices of the outcome problem: settled where the constraints hold, and the dual is largest."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from fl_edge_env import CellChannel, MarkovChannel, Scenario, lyapunov, physics
from policies import Opportunistic, evaluate
from policies.outcome import DualPrices, bound_rounds, outcome_prices, solve_round
from policies.outcome import prices as prices_module

pytestmark = pytest.mark.usefixtures("whole_searches")
# Devices differ in their data and, in pairs, are alike.
UNEVEN = Scenario.digits(
    num_devices=8,
    cohort_size=2,
    num_samples=np.repeat([60.0, 80.0, 100.0, 160.0], 2),
    energy_budget_j=np.repeat([0.15, 0.2, 0.25, 0.4], 2),
)


def dual(scenario: Scenario, energy, participation, rounds: int = 1500) -> float:
    """The bound on the mean time of a round, on gains that no price was settled on [s]."""
    gains = scenario.channel.sample(np.random.default_rng(99), rounds, scenario.num_devices)
    bound = bound_rounds(gains, energy, participation, scenario, tolerance=1e-6)
    target = lyapunov.participation_target(scenario)
    return float(bound.mean() - energy @ scenario.energy_budget_j + participation @ target)


@functools.cache
def settled() -> DualPrices:
    return outcome_prices(UNEVEN)


@pytest.fixture
def prices() -> DualPrices:
    return settled()


def test_outcome_prices__meet_budgets_and_participations(prices):
    gains = UNEVEN.channel.sample(np.random.default_rng(7), 6000, 8)
    solution = solve_round(gains, *prices, UNEVEN, V=1.0)
    _, energy = physics.time_and_energy(gains, solution.f, solution.p, UNEVEN)
    spent = np.where(solution.participates, energy, 0.0).mean(axis=0)
    target = lyapunov.participation_target(UNEVEN)
    assert solution.participates.mean(axis=0) == pytest.approx(target, rel=0.1)
    assert np.all(spent <= 1.1 * UNEVEN.energy_budget_j)
    assert prices.energy @ (UNEVEN.energy_budget_j - spent) <= 0.02 * solution.deadline.mean()


def test_outcome_prices__no_other_prices_bound_much_better(prices):
    best = dual(UNEVEN, *prices)
    assert best > 1.2 * dual(UNEVEN, np.zeros(8), np.zeros(8))
    rng = np.random.default_rng(0)
    for size in (0.01, 0.03, 0.1):
        for _ in range(3):
            energy = prices.energy * np.exp(size * rng.standard_normal(8))
            participation = prices.participation + size * best * rng.standard_normal(8)
            assert dual(UNEVEN, energy, participation) <= 1.001 * best


def test_is_settled__not_if_all_devices_exceed_their_budgets():
    scenario = Scenario.cifar10()
    target = lyapunov.participation_target(scenario)
    noise = np.random.default_rng(0).standard_normal(120) * 0.05
    alone = np.arange(120)
    for excess, settled in ((noise - noise.mean(), True), (np.full(120, 0.05), False)):
        energy = (1 + excess) * scenario.energy_budget_j
        given = np.ones(120), target, energy, 1600, alone, scenario
        assert prices_module._is_settled(*given) == settled


def test_outcome_prices__of_old_gains_meet_budgets_with_new_ones():
    # Uploads take most of the energy, and so does what the server does not know.
    delayed = Scenario.cifar10(
        num_devices=12,
        num_samples=400.0,
        cycles_per_sample=3e8,
        energy_budget_j=18.0,
        channel=MarkovChannel.correlated(0.6),
        csi="delayed",
    )
    policy = Opportunistic(delayed, step_scale=0.0)
    table = evaluate([policy], delayed, seeds=range(3), gaps=False)
    assert table["spent_ratio"].mean() == pytest.approx(1.0, abs=0.03)


def test_outcome_prices__do_not_depend_on_the_horizon(prices):
    np.testing.assert_array_equal(outcome_prices(UNEVEN.replace(num_rounds=7)), prices)


def test_outcome_prices__are_equal_for_exchangeable_devices(prices):
    for price in prices:
        pairs = price.reshape(4, 2)
        assert np.all(pairs[:, 0] == pairs[:, 1])
        assert len(np.unique(price)) == 4
    # Devices at other places are not, and a participation of the farthest is worth most.
    cell = Scenario.digits(num_devices=8, energy_budget_j=2.0, channel=CellChannel())
    mean_gain = cell.channel.device_mean(8)
    assert outcome_prices(cell).participation.argmax() == mean_gain.argmin()


def test_outcome_prices__bound_as_well_with_few_rounds(prices, monkeypatch):
    monkeypatch.setattr(prices_module, "_BATCH_PARTICIPATIONS", 12)
    assert prices_module._sample_size(UNEVEN) == 6
    few = prices_module._ascend(UNEVEN)
    assert dual(UNEVEN, *few) == pytest.approx(dual(UNEVEN, *prices), rel=2e-3)


def test_outcome_prices__skip_a_stage_of_too_many_numbers(monkeypatch):
    stages = prices_module._STAGES
    monkeypatch.setattr(prices_module, "_STAGES", stages[:1])
    first = prices_module._ascend(UNEVEN)
    monkeypatch.setattr(prices_module, "_STAGES", stages)
    monkeypatch.setattr(prices_module, "_STAGE_NUMBERS", stages[0] * 64 * UNEVEN.num_devices)
    np.testing.assert_array_equal(prices_module._ascend(UNEVEN), first)

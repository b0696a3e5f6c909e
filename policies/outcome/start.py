"""Dual prices at the start of an episode, and how fast they move."""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import FloatArray
from policies.outcome.prices import (
    DualPrices,
    groups_alike,
    outcome_prices,
    pooled,
    solve_sample,
)

# How far a participation moves the cost of the device's next one, in times of a round, over the
# square root of the participations in an episode. Smaller steps keep to the constraints less well,
# larger ones cost time.
_STEP = 0.1


def initial_prices(scenario: Scenario) -> DualPrices:
    """Dual prices at which a server begins, from `outcome_prices`.

    A server that knows only the participants' gains cannot know which prices fit a device's mean
    gain: devices with the same fields begin at their mean price.
    """
    prices = outcome_prices(scenario)
    if scenario.csi == "participants":
        groups = groups_alike(scenario)
        prices = DualPrices(*(pooled(price, groups) for price in prices))
    return prices


def participation_jump(prices: DualPrices, scenario: Scenario) -> float:
    """Time [s] by which a participation within the budget moves the cost of a device's next one.

    It is a tenth of the mean round time at the prices, over the square root of a device's
    participations in an episode.
    """
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(1)[0])
    solution, _ = solve_sample(scenario, rng, *prices)
    participations = scenario.num_rounds * float(np.mean(participation_target(scenario)))
    return _STEP * float(np.mean(solution.deadline)) / math.sqrt(participations)


def energy_start(prices: DualPrices, jump: float, scenario: Scenario) -> FloatArray:
    """Prices of energy at which an episode begins [s/J], shape (N,).

    The price of energy jumps with a participation and falls until the next, which comes when it is
    low: its low end, not its mean, has to be the dual price.
    """
    allowed = scenario.energy_budget_j / participation_target(scenario)
    start: FloatArray = prices.energy + 0.5 * jump / allowed
    return start

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


def initial_prices(scenario: Scenario, *, seed: int = 0) -> DualPrices:
    """Dual prices at which a server begins, those of `outcome_prices`.

    A server that knows the gains of participants alone cannot know which prices fit a device's
    mean gain: devices whose fields are the same begin at the mean of theirs.

    Parameters
    ----------
    scenario : Scenario
        The system.
    seed : int
        Seed of the rounds that are tried.

    Returns
    -------
    DualPrices
    """
    prices = outcome_prices(scenario, seed=seed)
    if scenario.csi == "participants":
        groups = groups_alike(scenario)
        prices = DualPrices(*(pooled(price, groups) for price in prices))
    return prices


def participation_jump(prices: DualPrices, scenario: Scenario, *, seed: int = 0) -> float:
    """Distance [s] by which a participation at the energy the budget allows moves a device's cost.

    It is a tenth of the mean round time at the prices, over the square root of the participations
    that a device has in an episode.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
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

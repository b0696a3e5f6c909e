"""Dual prices at the start, how fast they move, and a scenario whose queues are such prices."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.channels import GainLaw, conditional_law
from fl_edge_env.channels.protocol import conditional_law_after, has_conditional
from fl_edge_env.checks import finite_number, read_only
from fl_edge_env.lyapunov import participation_target, participation_weight
from fl_edge_env.typing import FloatArray
from policies.estimate import GainEstimator
from policies.outcome.law_prices import law_prices
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
# Largest price of energy over the median one where the server knows each device's law alone: some
# devices are too far to keep within budget in any round, and theirs would have no bound.
_MOST_OVER_TYPICAL = 10.0


def initial_prices(scenario: Scenario, *, seed: int = 0) -> DualPrices:
    """Dual prices by what the server knows of the gains before anything was measured.

    A server that sees the gains of the round can wait for good ones, and the prices are those of
    `outcome_prices`. One that only knows laws cannot, and they are those of `law_prices`: where
    the gains of participants alone are known, and where those of the round before are and say
    nothing about the present ones. In the latter case no price of energy is above ten times the
    median one. Old gains that say something count as present ones here.

    Parameters
    ----------
    scenario : Scenario
        The system.
    seed : int
        Seed of the rounds that are tried; a server that knows laws alone needs none.

    Returns
    -------
    DualPrices
    """
    known = _prices_of_laws(scenario)
    return outcome_prices(scenario, seed=seed) if known is None else known


@lru_cache(maxsize=64)
def _prices_of_laws(scenario: Scenario) -> DualPrices | None:
    """`initial_prices` of a server that knows no more than laws."""
    known = _law_alone(scenario)
    if known is None:
        return None
    law, persistence = known
    prices = law_prices(law, scenario, persistence=persistence)
    if scenario.csi == "delayed" and np.any(prices.energy > 0):
        most = _MOST_OVER_TYPICAL * float(np.median(prices.energy[prices.energy > 0]))
        if np.any(prices.energy > most):
            prices = law_prices(law, scenario, persistence=persistence, most=most)
    return DualPrices(*(read_only(price) for price in prices))


def _law_alone(scenario: Scenario) -> tuple[GainLaw, float] | None:
    """The law of the gains, and how likely one stays that was measured, if no more is known."""
    channel, shape = scenario.channel, (scenario.num_devices,)
    if scenario.csi == "participants":
        if not hasattr(channel, "conditional_after"):
            estimator = GainEstimator(scenario)
            return estimator.long_run_law(), estimator.persistence
        mean, age = np.full(shape, channel.mean), np.full(shape, np.inf)
        return conditional_law_after(channel, mean, age), 0.0
    if scenario.csi == "delayed" and has_conditional(channel):
        low, high = (
            conditional_law(channel, np.full(shape, gain))
            for gain in (channel.gain_min, channel.gain_max)
        )
        possible = low.probability > 0
        if np.array_equal(low.probability, high.probability) and np.array_equal(
            low.gain[possible], high.gain[possible]
        ):
            return low, 0.0
    return None


def participation_jump(prices: DualPrices, scenario: Scenario, *, seed: int = 0) -> float:
    """Distance [s] by which a participation at the energy the budget allows moves a device's cost.

    It is a tenth of the mean round time at the prices, over the square root of the participations
    that a device has in an episode. For a server that knows no more than laws the time is that
    at `initial_prices`, whose dual value it is.
    """
    if (known := _prices_of_laws(scenario)) is not None:
        m, z = known
        value = np.sum(participation_target(scenario) * z - m * scenario.energy_budget_j)
    else:
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        solution, _ = solve_sample(scenario, rng, *prices)
        value = np.mean(solution.deadline)
    participations = scenario.num_rounds * float(np.mean(participation_target(scenario)))
    return _STEP * float(value) / math.sqrt(participations)


def energy_start(prices: DualPrices, jump: float, scenario: Scenario) -> FloatArray:
    """Prices of energy at which an episode begins [s/J], shape (N,).

    The price of energy jumps with a participation and falls until the next, which comes when it is
    low: its low end, not its mean, has to be the dual price.
    """
    allowed = scenario.energy_budget_j / participation_target(scenario)
    start: FloatArray = prices.energy + 0.5 * jump / allowed
    return start


def priced_scenario(
    scenario: Scenario, *, seed: int = 0, prices: DualPrices | None = None, step_scale: float = 1.0
) -> Scenario:
    """The scenario with the outcome as its objective, whose queues begin at dual prices.

    The greedy decision on its queues, `solve_round`, is that of `Opportunistic`: V is such that a
    participation at the energy that the budget allows moves the cost of the device's next one by
    `participation_jump`, through either queue. `Opportunistic` has that for every device, where V
    is one for all: where ``budget / target`` differs between devices, so do the steps of their
    prices of energy.

    Where the server knows the gains of participants alone, it cannot know the prices that fit a
    device's mean gain: devices whose fields are the same begin at the mean of those given.

    Parameters
    ----------
    scenario : Scenario
        The system, with any objective.
    seed : int
        Seed of the rounds from which the prices and the time of a round are found.
    prices : DualPrices, optional
        In place of `initial_prices`.
    step_scale : float
        Factor on the steps of the prices.

    Returns
    -------
    Scenario

    Raises
    ------
    ValueError
        If an argument is wrong.
    """
    step_scale = finite_number("step_scale", step_scale)
    prices = initial_prices(scenario, seed=seed) if prices is None else prices
    jump = step_scale * participation_jump(prices, scenario, seed=seed)
    if scenario.csi == "participants":
        groups = groups_alike(scenario)
        prices = DualPrices(*(pooled(price, groups) for price in prices))
    V = participation_weight(scenario) / jump
    return scenario.replace(
        objective="outcome",
        V=V,
        initial_queue=V * energy_start(prices, jump, scenario),
        initial_participation_queue=prices.participation / jump,
    )

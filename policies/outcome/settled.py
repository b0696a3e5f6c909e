"""How fast prices move, and a scenario whose queues are prices that begin where they settle."""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.availability import sample_presence
from fl_edge_env.checks import finite_number
from fl_edge_env.lyapunov import participation_target, participation_weight
from fl_edge_env.typing import FloatArray
from policies.outcome.prices import (
    OutcomePrices,
    groups_alike,
    pooled,
    price_rounds,
    settle_prices,
)
from policies.outcome.solver import solve_round

# How far a participation moves the cost of the device's next one, in times of a round, over the
# square root of the participations in an episode. Smaller steps keep to the constraints less well,
# larger ones cost time.
_STEP = 0.1


def participation_jump(prices: OutcomePrices, scenario: Scenario, *, seed: int = 0) -> float:
    """How far a participation at the energy that the budget allows moves the device's cost [s].

    It is a tenth of the mean round time at the prices, over the square root of the participations
    that a device has in an episode.

    Parameters
    ----------
    prices : OutcomePrices
        Settled prices.
    scenario : Scenario
        The system. Its number of rounds decides.
    seed : int
        Seed of the rounds that estimate the time of a round.

    Returns
    -------
    float
        In seconds; see `Opportunistic`.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    rounds = price_rounds(scenario)
    gains = scenario.channel.sample(rng, rounds, scenario.num_devices)
    m, z = (np.broadcast_to(price, gains.shape) for price in prices)
    there = None
    if scenario.drops_out:
        there = sample_presence(rng, rounds, scenario.availability)
    solution = solve_round(gains, m, z, scenario, V=1.0, available=there)
    return jump_at(float(np.mean(solution.deadline)), scenario)


def jump_at(round_time: float, scenario: Scenario) -> float:
    """`participation_jump` where the mean time of a round is known [s].

    Parameters
    ----------
    round_time : float
        The mean time [s].
    scenario : Scenario
        The system. Its number of rounds decides.
    """
    participations = scenario.num_rounds * float(np.mean(participation_target(scenario)))
    return _STEP * round_time / math.sqrt(participations)


def energy_start(prices: OutcomePrices, jump: float, scenario: Scenario) -> FloatArray:
    """Prices of energy at which an episode begins [s/J], shape (N,).

    The price of energy jumps with a participation and falls until the next, which comes when it is
    low: its low end, not its mean, has to be the settled price.

    Parameters
    ----------
    prices : OutcomePrices
        Settled prices.
    jump : float
        As `participation_jump` gives it [s].
    scenario : Scenario
        Supplies the budgets and the targets.
    """
    allowed = scenario.energy_budget_j / participation_target(scenario)
    start: FloatArray = prices.energy + 0.5 * jump / allowed
    return start


def settled_scenario(
    scenario: Scenario,
    *,
    seed: int = 0,
    prices: OutcomePrices | None = None,
    step_scale: float = 1.0,
) -> Scenario:
    """The scenario with the outcome as its objective, whose queues begin at the settled prices.

    The greedy decision on its queues, `solve_round`, is that of `Opportunistic`: V is such that a
    participation at the energy that the budget allows moves the cost of the device's next one by
    `participation_jump`, through either queue. `Opportunistic` has that for every device, where V
    is one for all: where ``budget / target`` differs between devices, so do the steps of their
    prices of energy.

    Where the server knows the gains of participants alone, it cannot know the prices that fit a
    device's mean gain: devices whose fields are the same begin at the mean of their prices.

    Parameters
    ----------
    scenario : Scenario
        The system, with any objective.
    seed : int
        Seed of the rounds that settle the prices, and of those that estimate the time of a round.
    prices : OutcomePrices, optional
        Settled prices, in place of those of `settle_prices`.
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
    prices = settle_prices(scenario, seed=seed) if prices is None else prices
    jump = step_scale * participation_jump(prices, scenario, seed=seed)
    if scenario.csi == "participants":
        groups = groups_alike(scenario)
        prices = OutcomePrices(*(pooled(price, groups) for price in prices))
    V = participation_weight(scenario) / jump
    return scenario.replace(
        objective="outcome",
        V=V,
        initial_queue=V * energy_start(prices, jump, scenario),
        initial_participation_queue=prices.participation / jump,
    )

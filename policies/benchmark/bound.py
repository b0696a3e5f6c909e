"""A lower bound on the time-average penalty of every policy that meets the energy budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fl_edge_env import Scenario, Simulator
from fl_edge_env.checks import integer_at_least
from fl_edge_env.typing import FloatArray
from policies.lroa import LROA
from policies.p2 import solve_p2


@dataclass(frozen=True, eq=False)
class LowerBound:
    """An estimate of the bound over sampled channels.

    Attributes
    ----------
    value : float
        Mean of the bound over the channel samples [s].
    standard_error : float
        Its standard error [s].
    multiplier : ndarray, shape (N,)
        Price of each device's energy [s/J] at which the dual function was evaluated.
    scenario : Scenario
        The system it holds for.
    """

    value: float
    standard_error: float
    multiplier: FloatArray
    scenario: Scenario


def lower_bound(scenario: Scenario, *, num_samples: int = 4096, seed: int = 0) -> LowerBound:
    """Bound the time-average penalty from below by weak duality.

    For any prices ``m >= 0`` of energy,

        g(m) = E_h [ min_{f,p,q} sum (q T + lambda w^2/q) + sum m (pi E - budget) ]

    is at most the time-average penalty of every policy whose average energy stays within the
    budgets. The minimum is P2 with queues V m, of which the certificate gives a lower bound.
    The prices come from LROA's queues, whose updates are subgradient steps on g: they are
    averaged over the second half of an episode long enough for them to settle.

    Parameters
    ----------
    scenario : Scenario
        The system. The bound holds for every stationary channel, also a correlated one: only
        the distribution of a round's gains matters. It holds, but is not tight, where the
        observed gains are delayed, which no policy gains by, or where the latency is the mean of
        the longest time in the cohort, which is at least the proxy.
    num_samples : int
        Channel samples for the estimate, independent of those that chose the prices.
    seed : int
        Seed of both.

    Returns
    -------
    LowerBound

    Raises
    ------
    ValueError
        If `num_samples` is less than two or `seed` no integer of at least zero.
    """
    integer_at_least(2, "num_samples", num_samples)
    integer_at_least(0, "seed", seed)
    price_seed, sample_seed = np.random.SeedSequence(seed).spawn(2)
    queue = _settled_queue(scenario, price_seed)
    rng = np.random.default_rng(sample_seed)
    gains = scenario.channel.sample(rng, num_samples, scenario.num_devices)
    solution = solve_p2(gains, np.broadcast_to(queue, gains.shape), scenario)
    samples = np.asarray(solution.lower_bound) / scenario.V
    return LowerBound(
        value=float(samples.mean()),
        standard_error=float(samples.std(ddof=1) / math.sqrt(num_samples)),
        multiplier=queue / scenario.V,
        scenario=scenario,
    )


def _settled_queue(scenario: Scenario, seed: np.random.SeedSequence) -> FloatArray:
    """Mean queue of LROA over the second half of an episode long enough for it to settle."""
    num_rounds = max(2000, 2 * scenario.num_rounds)
    simulator = Simulator(scenario.replace(num_rounds=num_rounds, delayed_csi=False))
    simulator.reset([int(seed.generate_state(1)[0])])
    policy = LROA(scenario)
    total = np.zeros(scenario.num_devices)
    for index in range(num_rounds):
        simulator.advance(policy.decide(simulator.observe()))
        if index >= num_rounds // 2:
            total += simulator.queue
    return total / (num_rounds - num_rounds // 2)

"""Lower bounds: the long-run bound in the mean over channels, and the bounds along a path.

All come from weak duality. For prices of energy ``m >= 0`` and gains h, let

    phi(h) = min over f, p, q of  sum (q T + lambda w^2/q) + sum m (pi E - budget),

which is P2 with queues ``V m``, and which the certificate of P2 bounds from below. It holds for
policies that sample, and counts the paper's objective. The bound of the outcome problem holds for
every policy and counts what a user pays: the time, the energy really spent and participation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fl_edge_env import Scenario, Simulator, physics
from fl_edge_env.aggregation import in_time
from fl_edge_env.checks import integer_at_least
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.streams import episode_gains, episode_states
from fl_edge_env.typing import FloatArray
from policies.lroa import LROA
from policies.outcome import DualPrices, bound_rounds, outcome_prices
from policies.p2 import solve_p2

# Rounds in the search for prices, of which the second half is averaged; and the numbers that they
# may have: of very many devices there are fewer rounds.
_PRICE_ROUNDS = 2000
_PRICE_NUMBERS = _PRICE_ROUNDS * 2000
_LEAST_PRICE_ROUNDS = 200
# Step of that search: V is this many times the mean squared budget over the nominal penalty. A
# budget is then within a few per cent of its price after some hundred rounds.
_PRICE_NU = 1e4
# Numbers in an array of gains for which P2 is solved at a time.
_BLOCK_NUMBERS = 1 << 18
# Relative distance to the optimum of a round up to which the outcome's bound is proven.
_OUTCOME_TOLERANCE = 1e-5


class Prices(NamedTuple):
    """The prices at which runs are measured against both bounds along their path.

    Those of expected energy, shape (N,) [s/J], are for policies that sample; those of the energy
    spent and of participation are for every policy.
    """

    energy: FloatArray
    outcome: DualPrices


def find_prices(scenario: Scenario) -> Prices:
    """Prices at which both bounds are nearly tight; see `penalty_prices` and `outcome_prices`."""
    return Prices(penalty_prices(scenario), outcome_prices(scenario))


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The long-run bound in the mean over channels, estimated from samples.

    No policy whose average energy meets the budgets has an expected time-average penalty below
    it. A single episode may lie below: its channel may be better than the mean, and its energy
    above the budget. For an episode see `path_bound`.

    Attributes
    ----------
    value : float
        Mean of the bound over the channel samples [s].
    standard_error : float
        Its standard error [s].
    multiplier : ndarray, shape (N,)
        Price of each device's energy [s/J] at which the dual function was evaluated.
    """

    value: float
    standard_error: float
    multiplier: FloatArray


def penalty_prices(scenario: Scenario, *, seed: int = 0) -> FloatArray:
    """Prices of energy at which the bounds are nearly tight, shape (N,) [s/J].

    LROA's queues over V: their updates are subgradient steps on the dual function. They are
    averaged over the second half of an episode long enough for them to settle, whose V depends on
    the budgets alone, so that a scenario's V does not move its bounds. Any prices give valid
    bounds; four significant digits keep them the same on every machine.
    """
    integer_at_least(0, "seed", seed)
    price_seed, _ = np.random.SeedSequence(seed).spawn(2)
    device_time, _ = physics.time_and_energy(
        scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario
    )
    penalty = float(np.mean(device_time)) + scenario.lambda_
    V = _PRICE_NU * float(np.mean(scenario.energy_budget_j**2)) / penalty
    rounds = _PRICE_NUMBERS // scenario.num_devices
    rounds = min(_PRICE_ROUNDS, max(_LEAST_PRICE_ROUNDS, rounds))
    # What the bound counts, whatever the server knows and the reward counts.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warned when the scenario was made
        system = scenario.replace(
            num_rounds=rounds,
            csi="full",
            latency="proxy",
            objective="penalty",
            V=V,
        )
    simulator = Simulator(system)
    simulator.reset([int(price_seed.generate_state(1)[0])])
    policy = LROA(system)
    total = np.zeros(scenario.num_devices)
    for index in range(rounds):
        simulator.advance(policy.decide(simulator.observe()))
        if index >= rounds // 2:
            total += simulator.queue
    mean = total / (rounds - rounds // 2)
    return np.array([float(f"{price:.4g}") for price in mean / V])


def lower_bound(scenario: Scenario, *, num_samples: int = 4096, seed: int = 0) -> LowerBound:
    """Bound the long-run penalty in the mean from below, by weak duality.

    ``E_h[phi(h)]`` is at most the expected time-average penalty of every policy whose average
    energy stays within the budgets.

    Parameters
    ----------
    scenario : Scenario
        The system. The bound holds for every stationary channel, also a correlated one: only
        the distribution of a round's gains matters. It holds, but is not tight, where the
        server does not know the gains of the round, which no policy gains by, or where the latency
        is the mean of the longest time in the cohort, which is at least the proxy.
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
        If `num_samples` is less than two, `seed` no integer of at least zero, devices drop out, as
        the sampling error then leaves out those that are not there, or the scenario has a deadline,
        as P2 knows nothing of times and energies that end there.
    """
    integer_at_least(2, "num_samples", num_samples)
    if scenario.deadline_s < math.inf:
        raise ValueError(
            "the bound for sampled decisions needs rounds without a deadline, got deadline_s = "
            f"{scenario.deadline_s!r}: outcome_path_bound holds for every scenario"
        )
    if scenario.drops_out:
        raise ValueError(
            "the bound for sampled decisions needs availability = 1 for every device, got "
            f"{float(np.min(scenario.availability))!r}: outcome_path_bound holds for every scenario"
        )
    prices = penalty_prices(scenario, seed=seed)
    _, sample_seed = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(sample_seed)
    rows = _block_rows(scenario)
    counts = [min(rows, num_samples - done) for done in range(0, num_samples, rows)]
    gains = (scenario.channel.sample(rng, count, scenario.num_devices) for count in counts)
    samples = np.concatenate(list(_least_priced(gains, prices, scenario)))
    return LowerBound(
        value=float(samples.mean()),
        standard_error=float(samples.std(ddof=1) / math.sqrt(num_samples)),
        multiplier=prices,
    )


def path_bound(scenario: Scenario, seed: int, prices: FloatArray) -> FloatArray:
    """Lower bounds on the priced objective of each round of an episode, (num_rounds,) [s].

    For every policy that samples, within budget or not, and on every path of the channel,

        mean_t(penalty_t) + sum_n m_n mean_t(pi_n E_n - budget_n)  >=  mean_t(phi(h_t)),

    without noise: each round's left side is at least its phi. The left side is the *priced*
    objective, in which overspending is paid and saving rewarded at the prices m of energy, of shape
    (N,) [s/J]. Where the server does not know the gains of the round, phi is still that of the true
    ones; where the latency is the longest time in the cohort, phi has the proxy, which is at most
    as long. Where devices drop out it is NaN, as the sampling error of a round then leaves out
    those that are not available, and is no longer comparable; and where the scenario has a
    deadline, at which times and energies end that phi counts in full.
    """
    if scenario.drops_out or scenario.deadline_s < math.inf:
        return np.full(scenario.num_rounds, np.nan)
    gains = episode_gains(scenario, seed, block_rounds=_block_rows(scenario))
    return np.concatenate(list(_least_priced(gains, prices, scenario)))


def priced_outcome(info: Mapping[str, Any], prices: DualPrices, scenario: Scenario) -> FloatArray:
    """Cost of a round to a user [s]: its time, and its energy and participation at their prices.

    It is ``time + sum_n m_n (spent_n - budget_n) + sum_n z_n (rho_n - x_n)``, where x is 1 for a
    device that takes part in time and 0 otherwise, and rho the share of rounds in which it should.
    The info, that of a step, has the `round_time` and the `energy_spent`.
    """
    energy = np.sum(prices.energy * (info["energy_spent"] - scenario.energy_budget_j), axis=-1)
    missing = participation_target(scenario) - in_time(info)
    worth = np.sum(prices.participation * missing, axis=-1)
    priced: FloatArray = info["round_time"] + energy + worth
    return priced


def outcome_path_bound(scenario: Scenario, seed: int, prices: DualPrices) -> FloatArray:
    """Lower bounds on the `priced_outcome` of each round of an episode, (num_rounds,) [s].

    It holds in every round for every policy, sampled or chosen, because any cohort has from one to
    K distinct devices. No noise is left: a policy's mean over the episode is at least the mean of
    these bounds, whatever it spends and whomever it leaves out. Where the observed gains are old,
    the bound is that of the true ones. Where devices drop out, it is that of the cohorts of
    available devices; whether uploads fail does not matter to it. Where devices are late, see
    `bound_rounds`.
    """
    energy, participation = prices
    constant = -np.sum(energy * scenario.energy_budget_j)
    constant += np.sum(participation * participation_target(scenario))
    bounds = []
    blocks = episode_states(scenario, seed, block_rounds=_block_rows(scenario))
    for gains, available in blocks:
        bounds.append(
            bound_rounds(
                gains,
                energy,
                participation,
                scenario,
                tolerance=_OUTCOME_TOLERANCE,
                available=available,
            )
        )
    path: FloatArray = np.concatenate(bounds) + constant
    return path


def _block_rows(scenario: Scenario) -> int:
    return max(1, _BLOCK_NUMBERS // scenario.num_devices)


def _least_priced(
    blocks: Iterable[FloatArray], prices: FloatArray, scenario: Scenario
) -> Iterator[FloatArray]:
    """Lower bounds on phi for blocks of gains of shape (rounds, N) [s]."""
    queue = scenario.V * prices
    for gains in blocks:
        yield np.asarray(solve_p2(gains, queue, scenario).lower_bound) / scenario.V

"""Lower bounds: the long-run bound, averaged over channels, and the bounds along a sample path.

All follow from weak duality. For prices of energy ``m >= 0`` and gains h, let

    phi(h) = min over f, p, q of  sum (q T + lambda w^2/q) + sum m (pi E - budget),

which is P2 with queues ``V m``; the certificate of P2 bounds it from below. It is a bound on the
paper's objective, for policies that sample. The bound of the outcome problem is for every policy
and on a user's costs: time, the energy really spent, and participation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.aggregation import in_time, surplus
from fl_edge_env.checks import integer_at_least, natural_number
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.streams import episode_gains, episode_states
from fl_edge_env.typing import BoolArray, FloatArray, Info
from policies.lroa import LROA
from policies.outcome import DualPrices, bound_rounds, expected_gain, outcome_prices
from policies.outcome.prices import four_digits
from policies.p2 import solve_p2
from policies.solvers.waits import announced

# Rounds in the search for prices, whose second half is averaged, and the most rounds times devices:
# with very many devices there are fewer rounds.
_PRICE_ROUNDS = 2000
_PRICE_NUMBERS = _PRICE_ROUNDS * 2000
_LEAST_PRICE_ROUNDS = 50
# Step of that search: V is this multiple of the mean squared budget over the nominal penalty. The
# prices are then within a few per cent of their limits after some hundred rounds.
_PRICE_NU = 1e4
# Most numbers in an array of gains for which P2 is solved at once.
_BLOCK_NUMBERS = 1 << 18
# Proven relative distance of the outcome bound to the optimum of a round.
_OUTCOME_TOLERANCE = 1e-5


class Prices(NamedTuple):
    """The prices of a setting, at which runs are ranked and both bounds are nearly tight.

    `outcome` has prices of spent energy and of participation in a system. `energy` has prices of
    expected energy, shape (N,) [s/J], for policies that sample; None if a run is not compared with
    bounds.
    """

    system: Scenario
    energy: FloatArray | None
    outcome: DualPrices


def find_prices(scenario: Scenario, *, bounded: bool = True) -> Prices:
    """Prices from the system alone; see `outcome_prices` and `penalty_prices`."""
    energy = penalty_prices(scenario) if bounded else None
    return Prices(scenario, energy, outcome_prices(scenario))


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The long-run bound, averaged over channels and estimated from samples.

    No policy whose average energy meets the budgets has an expected time-average penalty below it.
    A single episode may be below it: its channel may be better than average, and its energy above
    the budget. For an episode see `path_bound`.

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

    They are LROA's queues over V, whose updates are subgradient steps on the dual function,
    averaged over the second half of an episode that is long enough for them to settle. V depends
    only on the budgets there, so a scenario's V does not affect its bounds. Any prices give valid
    bounds. They are rounded to four digits, and so equal on every machine.
    """
    natural_number("seed", seed)
    price_seed, _ = np.random.SeedSequence(seed).spawn(2)
    penalty = scenario.mean_time + scenario.lambda_
    V = _PRICE_NU * float(np.mean(scenario.energy_budget_j**2)) / penalty
    rounds = _PRICE_NUMBERS // scenario.num_devices
    rounds = min(_PRICE_ROUNDS, max(_LEAST_PRICE_ROUNDS, rounds))
    # The bound's objective with full information, for every scenario.
    # The original scenario has warned already.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
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
    with announced("searching for prices of expected energy", scenario):
        for index in range(rounds):
            simulator.advance(policy.decide(simulator.observe()))
            if index >= rounds // 2:
                total += simulator.queue
    mean = total / (rounds - rounds // 2)
    return four_digits(mean / V)


def lower_bound(scenario: Scenario, *, num_samples: int = 4096, seed: int = 0) -> LowerBound:
    """Lower bound on the expected long-run penalty, by weak duality.

    ``E_h[phi(h)]`` is at most the expected time-average penalty of every policy whose average
    energy stays within the budgets.

    Parameters
    ----------
    scenario : Scenario
        The system. The bound holds for every stationary channel, even a correlated one: only the
        distribution of a round's gains matters. It holds, but is not tight, if the server does not
        know the current gains, which helps no policy, or if the latency is the mean of the longest
        time in the cohort, which is at least the proxy.
    num_samples : int
        Channel samples for the estimate, independent of the samples for the prices.
    seed : int
        Seed of both.

    Returns
    -------
    LowerBound

    Raises
    ------
    ValueError
        If `num_samples` is less than 2 or `seed` is not an integer >= 0; if devices drop out, as
        the sampling error then omits unavailable devices; or if the scenario has a deadline, as P2
        does not know that times and energies end there.
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
    samples = _least_priced(gains, prices, scenario)
    return LowerBound(
        value=float(samples.mean()),
        standard_error=float(samples.std(ddof=1) / math.sqrt(num_samples)),
        multiplier=prices,
    )


def path_bound(scenario: Scenario, seed: int, prices: FloatArray) -> FloatArray:
    """Lower bounds on the priced objective of each round of an episode, (num_rounds,) [s].

    For every policy that samples, within budget or not, and on every sample path of the channel,

        mean_t(penalty_t) + sum_n m_n mean_t(pi_n E_n - budget_n)  >=  mean_t(phi(h_t)),

    without noise: each round's left side is at least its phi. The left side is the *priced*
    objective, which charges overspending and rewards saving at the prices m of energy, shape (N,)
    [s/J]. If the server does not know the current gains, phi still has the true ones; if the
    latency is the longest time in the cohort, phi has the proxy, which is at most as long. The
    bounds are NaN if devices drop out, as the sampling error then omits unavailable devices and is
    not comparable, or if the scenario has a deadline, as phi counts times and energies beyond it.
    """
    if scenario.drops_out or scenario.deadline_s < math.inf:
        return np.full(scenario.num_rounds, np.nan)
    gains = episode_gains(scenario, seed, block_rounds=_block_rows(scenario))
    return _least_priced(gains, prices, scenario)


def priced_outcome(info: Info, prices: DualPrices, scenario: Scenario) -> FloatArray:
    """Cost of a round to a user [s]: its time, and its energy and participation at their prices.

    It is ``time + sum_n m_n (spent_n - budget_n) + sum_n z_n (rho_n - x_n)``, where x is 1 for a
    device that participates in time and 0 otherwise, and rho is its participation target. It is
    NaN if more than K devices take part, because prices are for K slots. `info` is the info of a
    step, with `round_time`, `energy_spent` and `cohort`.
    """
    energy = np.sum(prices.energy * (info["energy_spent"] - scenario.energy_budget_j), axis=-1)
    missing = participation_target(scenario) - in_time(info)
    worth = np.sum(prices.participation * missing, axis=-1)
    return np.where(surplus(info, scenario) > 0, np.nan, info["round_time"] + energy + worth)


def price_round(
    decision: Allocation, info: Info, prices: Prices, scenario: Scenario
) -> dict[str, object]:
    """The cost of a round at prices: to a user, and by the paper's objective.

    `priced_outcome` [s], `priced_objective` [s], and `bounded`, which is False if a policy sets
    bandwidths, as the bound of the outcome assumes equal ones.
    """
    columns: dict[str, object] = {"priced_outcome": priced_outcome(info, prices.outcome, scenario)}
    if prices.energy is not None:
        excess = info["energy_expected"] - scenario.energy_budget_j
        cost = (prices.energy * excess).sum(axis=-1)
        columns["priced_objective"] = info.get("penalty", math.nan) + cost
        columns["bounded"] = decision.bandwidth is None
    return columns


def outcome_path_bound(scenario: Scenario, seed: int, prices: DualPrices) -> FloatArray:
    """Lower bounds on the `priced_outcome` of each round of an episode, (num_rounds,) [s].

    They hold in every round for every policy that leaves bandwidths equal, sampled or chosen,
    because any cohort has 1 to K distinct devices. They hold without noise: a policy's mean over
    the episode is at least the mean of these bounds, even if it overspends or leaves devices out.
    They have the true gains even if observed gains are delayed, and only cohorts of available
    devices if devices drop out. Failed uploads have no effect. For late devices, see
    `bound_rounds`.
    """
    blocks = episode_states(scenario, seed, block_rounds=_block_rows(scenario))
    bounds = [_bound_outcomes(gains, prices, scenario, there) for gains, there in blocks]
    return np.concatenate(bounds)


def past_path_bound(scenario: Scenario, seed: int, prices: DualPrices) -> FloatArray:
    """Lower bounds on the expected `priced_outcome` of each round of an episode, (num_rounds,) [s].

    They hold for every policy that knows only the gains of past rounds, even of all devices, that
    waits for its whole cohort and leaves bandwidths equal. They bound the mean over the coming
    gains, given the past: over a run, a policy may be below by chance. The channel must be a
    `CellChannel` with Rayleigh fading, and the scenario without a deadline and with all devices
    available.
    """
    gains = np.concatenate(list(episode_gains(scenario, seed)))
    age = np.ones_like(gains)
    age[0] = np.inf  # nothing is known before the first round
    expected = expected_gain(np.roll(gains, 1, axis=0), age, scenario)
    return _bound_outcomes(expected, prices, scenario)


def _bound_outcomes(
    gains: FloatArray,
    prices: DualPrices,
    scenario: Scenario,
    available: BoolArray | None = None,
) -> FloatArray:
    """Lower bounds on the priced outcomes of rounds with known gains (rounds, N), (rounds,) [s]."""
    bounds = bound_rounds(
        gains, *prices, scenario, tolerance=_OUTCOME_TOLERANCE, available=available
    )
    constant = -np.sum(prices.energy * scenario.energy_budget_j)
    constant += np.sum(prices.participation * participation_target(scenario))
    return bounds + constant


def _block_rows(scenario: Scenario) -> int:
    return max(1, _BLOCK_NUMBERS // scenario.num_devices)


def _least_priced(
    blocks: Iterable[FloatArray], prices: FloatArray, scenario: Scenario
) -> FloatArray:
    """Lower bounds on phi for all rounds of blocks of gains of shape (rounds, N) [s]."""
    queue = scenario.V * prices
    bounds = [solve_p2(gains, queue, scenario).lower_bound for gains in blocks]
    return np.concatenate(bounds) / scenario.V

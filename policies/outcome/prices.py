"""Prices of energy and of participation at which the outcome problem's bound is nearly tight.

In the long run a policy must keep each device's mean energy within its budget, and the fraction of
rounds in which a device participates at the target rho, which follows from its data. A price m of
energy and a price z of participation move both constraints into the cost of a round,

    g(m, z) = E_h[ min over cohorts, f and p of  max T + sum m (E - budget) + sum z (rho - x) ],

where x is 1 for participants and 0 otherwise. For any prices, g is a lower bound on the mean round
time of every policy that meets the constraints (weak duality). g is concave; stochastic ascent on
rounds that are drawn from the channel finds the best prices.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fl_edge_env import ExponentialChannel, MarkovChannel, Scenario, lyapunov, physics
from fl_edge_env.checks import read_only
from fl_edge_env.streams import draw_available
from fl_edge_env.typing import FloatArray, IntArray
from policies.outcome.solver import solve_round
from policies.solvers.waits import announced

# Iterations of the ascent in each stage. A stage continues from the previous one, and is skipped
# once the constraints are met.
_STAGES = (50, 200, 300)
# Rounds drawn in each iteration, and the most rounds times devices and times K: with very many
# devices, or large cohorts, there are fewer rounds.
_BATCH = 64
_BATCH_NUMBERS = _BATCH * 2000
_BATCH_PARTICIPATIONS = _BATCH * 10
_LEAST_BATCH = 2
# The most rounds times devices in a stage, which is skipped if it needs more.
_STAGE_NUMBERS = 120_000_000
# The most gains from which the head start of slow devices is estimated.
_HEAD_START_NUMBERS = 1 << 24
# Proven relative distance of each of these rounds to its optimum.
_TOLERANCE = 1e-4
# Tolerated relative violation of the constraints, as root mean square over devices and as mean.
_SETTLED = 0.02
# Rounds at which two successive rounds of a channel may begin.
_STARTS = 1 << 16
# Steps of the ascent for a constraint that is violated by 100 %: of the price of participation, as
# a fraction of the round time, and of the logarithm of the price of energy.
_TIME_STEP = 0.02
_LOG_STEP = 2.0


class DualPrices(NamedTuple):
    """Prices that convert energy and participation into seconds.

    Attributes
    ----------
    energy : ndarray, shape (N,)
        Price of each device's energy m [s/J], at least zero.
    participation : ndarray, shape (N,)
        Price of each device's participation z [s], of any sign.
    """

    energy: FloatArray
    participation: FloatArray


class Sample(NamedTuple):
    """Means over sampled rounds that are solved at given prices."""

    time: float  # of the longest time in the cohort [s]
    participation: FloatArray  # (N,)
    energy: FloatArray  # (N,) [J]


_KNOWN: dict[Scenario, DualPrices] = {}  # a comparison needs the same prices repeatedly


def outcome_prices(scenario: Scenario) -> DualPrices:
    """Dual prices that nearly maximise the long-run bound of the outcome problem.

    Bisection finds a common price of energy at which all devices together meet their budgets. From
    there, each device's prices ascend the dual function g, in coordinates m and u. With
    ``z = u + m e + level``, where e is the energy that the budget allows for a participation, u
    determines how often a device participates, and m the energy that it spends. Devices that are
    slow even in their best rounds start with a higher u. Devices with equal expected gradients
    share an estimate.

    The number of iterations is limited, so prices may be suboptimal in difficult scenarios, but any
    prices give valid bounds. They are rounded to four digits, and so equal on every machine.

    Parameters
    ----------
    scenario : Scenario
        The system. Its number of rounds, lambda and V have no effect.

    Returns
    -------
    DualPrices

    Notes
    -----
    Steps decrease over the iterations, and the second half of the iterates is averaged (Polyak and
    Juditsky, "Acceleration of stochastic approximation by averaging", 1992).
    """
    system = _priced_system(scenario)
    if system not in _KNOWN:
        with announced("searching for prices of energy and participation", scenario):
            _KNOWN[system] = _ascend(system)
    return _KNOWN[system]


def remember_prices(scenario: Scenario, prices: DualPrices) -> None:
    """Let `outcome_prices` return prices that an earlier search or another process has found."""
    _KNOWN[_priced_system(scenario)] = prices


def _priced_system(scenario: Scenario) -> Scenario:
    """The system, with equal values where they do not matter."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the scenario has warned
        return scenario.replace(lambda_=0.0, V=1.0)


def _ascend(scenario: Scenario) -> DualPrices:
    """Run the search of `outcome_prices`."""
    rng = np.random.default_rng(0)
    target = lyapunov.participation_target(scenario)
    allowed = scenario.energy_budget_j / target  # energy of a participation
    time, energy = physics.time_and_energy(
        scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario
    )
    # The dual function is concave. If devices with the same fields are exchangeable in the
    # distribution of gains, it has a maximum with equal prices for them. For user-defined channels
    # this is unknown.
    exchangeable = type(scenario.channel) in (ExponentialChannel, MarkovChannel)
    groups = _groups_alike(scenario) if exchangeable else np.arange(scenario.num_devices)
    # The level fills the cohorts; a higher level would only cost precision.
    level = 2.0 * float(np.median(time))
    # Far above any useful price of energy; reached only if the budgets cannot be met.
    most = 1e3 * level / np.median(energy)
    m = np.full(scenario.num_devices, _common_price(scenario, rng, energy, level, most))
    level = play_sample(scenario, rng, m, level + m * energy).time
    u = m * (energy - allowed) + _head_start(scenario, rng, target, groups)
    size = _sample_size(scenario)
    for length in _STAGES:
        if length * size * scenario.num_devices > _STAGE_NUMBERS:
            break
        sums = np.zeros((4, scenario.num_devices))  # of m, u, participation and energy
        for index in range(length):
            sample = play_sample(scenario, rng, m, u + m * allowed + level)
            # Relative lack of participation, and relative excess of energy per participation.
            missing = _pooled(1.0 - sample.participation / target, groups)
            excess = sample.energy - sample.participation * allowed
            excess = _pooled(excess / scenario.energy_budget_j, groups)
            step = (1.0 + 8.0 * index / length) ** -0.7
            u = u + step * _TIME_STEP * sample.time * np.clip(missing, -3.0, 3.0)
            m = m * np.exp(np.clip(step * _LOG_STEP * excess, -0.3, 0.3))
            m = np.clip(m, 1e-15 * most, most)
            if index >= length // 2:
                sums += m, u, sample.participation, sample.energy
        m, u, participation, energy = sums / (length - length // 2)
        rounds = size * (length - length // 2)
        if _is_settled(m / m.max(), participation, energy, rounds, groups, scenario):
            break
    return DualPrices(four_digits(m), four_digits(u + m * allowed + level))


def initial_prices(scenario: Scenario) -> DualPrices:
    """Dual prices at the start of an episode, from `outcome_prices`.

    A server that observes only participants' gains does not know a device's mean gain, so devices
    with the same fields start at their mean price.
    """
    prices = outcome_prices(scenario)
    if scenario.csi == "participants":
        groups = _groups_alike(scenario)
        prices = DualPrices(*(_pooled(price, groups) for price in prices))
    return prices


def _head_start(
    scenario: Scenario, rng: Generator, target: FloatArray, groups: IntArray
) -> FloatArray:
    """Heuristic extra price for the participation of slow devices [s].

    The price is the excess of a device's time over the median device's in the best fraction rho of
    its rounds, divided among the K devices of a round.
    """
    rounds = min(_BATCH, max(_LEAST_BATCH, _HEAD_START_NUMBERS // scenario.num_devices))
    gains = scenario.channel.sample(rng, rounds, scenario.num_devices)
    time, _ = physics.time_and_energy(gains, scenario.f_max, scenario.p_max, scenario)
    least = np.empty(scenario.num_devices)
    order = np.argsort(target, kind="stable")
    shares, starts = np.unique(target[order], return_index=True)
    for rho, devices in zip(shares, np.split(order, starts[1:]), strict=True):
        least[devices] = np.quantile(time[:, devices], rho, axis=0)
    least = _pooled(least, groups)
    return np.maximum(least - np.median(least), 0.0) / scenario.cohort_size


def _groups_alike(scenario: Scenario) -> IntArray:
    """Index of each device's group, (N,): the devices of a group have the same fields."""
    fields = [getattr(scenario, name) for name in scenario.per_device_fields]
    differing = [values for values in fields if np.any(values != values[0])]
    if not differing:
        return np.zeros(scenario.num_devices, dtype=np.int64)
    return np.unique(np.stack(differing, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _pooled(values: FloatArray, groups: IntArray) -> FloatArray:
    """The mean over each device's group, (N,)."""
    return (np.bincount(groups, values) / np.bincount(groups))[groups]


def _sample_size(scenario: Scenario) -> int:
    """Number of rounds in a sample, which is smaller with very many devices or a large cohort."""
    most = _BATCH_NUMBERS // scenario.num_devices
    most = min(most, _BATCH_PARTICIPATIONS // scenario.cohort_size)
    return min(_BATCH, max(_LEAST_BATCH, most))


def play_sample(scenario: Scenario, rng: Generator, m: FloatArray, z: FloatArray) -> Sample:
    """Means over rounds that are drawn from the channel and solved at given prices."""
    rounds = _sample_size(scenario)
    if scenario.csi != "delayed":
        known = gains = scenario.channel.sample(rng, rounds, scenario.num_devices)
    else:  # a recording begins anywhere
        draw = partial(scenario.channel.draw, rng, 2, scenario.num_devices)
        starts = rng.integers(_STARTS, size=rounds).tolist()
        known, gains = np.stack([draw(first_round=start) for start in starts], axis=1)
    available = None
    if scenario.drops_out:
        available = draw_available(rng, rounds, scenario.availability)
    solution = solve_round(
        known,
        m,
        z,
        scenario,
        V=1.0,
        tolerance=_TOLERANCE,
        available=available,
        cohort_only=True,
    )
    time, energy = physics.time_and_energy(gains, solution.f, solution.p, scenario)
    longest = np.where(solution.participates, time, 0.0).max(axis=1)
    return Sample(
        np.minimum(longest, scenario.deadline_s).mean(),
        solution.participates.mean(axis=0),
        np.where(solution.participates, energy, 0.0).mean(axis=0),
    )


def _common_price(
    scenario: Scenario, rng: Generator, energy: FloatArray, level: float, most: float
) -> float:
    """The common price of energy at which all devices together meet their budgets [s/J]."""
    budget = np.sum(scenario.energy_budget_j)
    target = np.sum(lyapunov.participation_target(scenario))
    low = 1e-7 * most
    high = 0.1 * most
    while high > 1.01 * low:
        middle = np.sqrt(low * high)
        m = np.full(scenario.num_devices, middle)
        sample = play_sample(scenario, rng, m, level + m * energy)
        spent = np.sum(sample.energy) / np.sum(sample.participation)  # per participation
        if spent > budget / target:
            low = middle
        else:
            high = middle
    return high


def _is_settled(
    price: FloatArray,
    participation: FloatArray,
    energy: FloatArray,
    rounds: int,
    groups: IntArray,
    scenario: Scenario,
) -> bool:
    """True if the averaged iterates meet the constraints, up to sampling error.

    Unspent energy is weighted by its price, relative to the highest price. The sampling error of a
    device is no reason for an excess of all devices together.
    """
    target = lyapunov.participation_target(scenario)
    missing = _pooled(1.0 - participation / target, groups)
    excess = _pooled(energy / scenario.energy_budget_j - 1.0, groups)
    excess = np.where(excess > 0, excess, np.minimum(price, 1.0) * excess)
    chance = np.mean(1.0 / (rounds * target * np.bincount(groups)[groups]))
    worst = max(np.mean(missing**2), np.mean(excess**2))
    return bool(worst <= _SETTLED**2 + chance and excess.mean() <= _SETTLED)


def four_digits(prices: FloatArray) -> FloatArray:
    """Prices rounded to four digits, read-only, because the cache shares them."""
    values, index = np.unique(prices, return_inverse=True)
    return read_only(np.array([float(f"{price:.4g}") for price in values])[index])

"""Settled prices of the outcome problem for a server that does not know the gains.

The problem is that of `policies.outcome.prices`. Here the server knows the gain h of a device only
where it lasts from the device's last participation; else it knows a law.

*Without persistence.* A device n that takes part with the target share rho of the rounds may spend
``e = budget / rho`` in each. Let T_n be the least expected time at which its expected energy is e,
r_n the energy that a second more would save there, and

    m_n = 1 / (K r_n),    z_n = T_n / K + m_n e.

A cohort S with the deadline tau costs ``tau + sum over S of (m_n E_n - z_n)``. The least energies
are convex in the deadline, so that ``m_n E_n(tau) >= m_n e - (tau - T_n) / K``, and the cost is at
least ``(1 - |S| / K) tau >= 0``; it is zero for K devices with the same T_n. Where devices can
take turns in such cohorts, these prices are therefore the best, and the mean time of a round is
``sum rho_n T_n / K``.

*With persistence.* A device that is tried shows its gain, and may be taken again while this lasts:
in the mean l rounds more, ``l = P + P^2 + ...`` up to the number of participations in an episode.
At a price of energy y in time let a blind participation cost ``c = min E[T] + y E[E]`` and one at a
known gain ``c(h) = min T + y E``. Taking it again where c(h) is below the mean cost of all its
participations makes that mean the least,

    cost = min over sets A of gains of (c + l E[c(h); h in A]) / (1 + l P(h in A)).

With T_n and e for the times and energies of this mixture, y such that e is as above, and
``r_n = 1 / y``, the prices are those formulas. They are then a sensible start, not a proven
optimum: that devices can share rounds with others of the same time is less certain.

Numba caches a compiled function by the date of the file it stands in, and some that are called
here stand in `policies.p2.kernel`: after a change of that, change this file too, or remove its
``__pycache__``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from fl_edge_env import Scenario, lyapunov
from fl_edge_env.channels import GainLaw
from fl_edge_env.channels.protocol import check_law
from fl_edge_env.typing import BoolArray, FloatArray
from policies.outcome.prices import OutcomePrices
from policies.p2 import kernel_system
from policies.p2.kernel import System, best_expected_p, best_f, best_p, expected_log


def blind_prices(
    law: GainLaw,
    scenario: Scenario,
    *,
    persistence: float = 0.0,
    most: FloatArray | float = math.inf,
    only: BoolArray | None = None,
) -> OutcomePrices:
    """Prices that settle where gains are known only as far as they last from a participation.

    Parameters
    ----------
    law : GainLaw
        Of the gains of a device of which nothing recent is known, shape (N, J) or (B, N, J).
    scenario : Scenario
        The system.
    persistence : float
        Probability that a gain stays from one round to the next, in [0, 1).
    most : float or ndarray, shape (N,)
        Largest price of energy [s/J], which a device has that would have to crawl to keep within
        its budget, or cannot.
    only : ndarray of bool, shape (N,) or (B, N), optional
        The devices of interest; the prices of the others are NaN.

    Returns
    -------
    OutcomePrices
        Of shape (N,) or (B, N). A device that cannot spend its budget has an energy price of
        zero.
    """
    shape = law.gain.shape[:-1]
    law = check_law("law", law, shape)
    wanted = np.ones(shape, dtype=np.bool_) if only is None else only
    target = lyapunov.participation_target(scenario)
    allowed = scenario.energy_budget_j / target
    participations = scenario.num_rounds * target
    again = persistence * (1.0 - persistence**participations) / (1.0 - persistence)
    least = np.broadcast_to(1.0 / (scenario.cohort_size * np.asarray(most)), allowed.shape)
    time, rate = _spend_rows(
        GainLaw(*(np.ascontiguousarray(part).reshape(-1, *part.shape[-2:]) for part in law)),
        np.atleast_2d(wanted),
        allowed,
        again,
        least.copy(),
        kernel_system(scenario),
    )
    m = 1.0 / (scenario.cohort_size * rate)
    z = time / scenario.cohort_size + m * allowed
    return OutcomePrices(m.reshape(shape), z.reshape(shape))


@njit(cache=True, error_model="numpy", parallel=True)
def _spend_rows(
    law: GainLaw,
    wanted: BoolArray,
    allowed: FloatArray,
    again: FloatArray,
    least: FloatArray,
    system: System,
) -> tuple[FloatArray, FloatArray]:
    """The least time of each device at its energy, and what a second more would save."""
    time, rate = np.full(wanted.shape, np.nan), np.full(wanted.shape, np.nan)
    for row in prange(len(time)):
        for n in range(len(allowed)):
            if wanted[row, n]:
                snr, probability = law.gain[row, n] / system.noise, law.probability[row, n]
                time[row, n], rate[row, n] = _spend(
                    n, allowed[n], again[n], least[n], snr, probability, system
                )
    return time, rate


@njit(cache=True, error_model="numpy")
def _spend(
    n: int,
    allowed: float,
    again: float,
    least: float,
    snr: FloatArray,
    probability: FloatArray,
    system: System,
) -> tuple[float, float]:
    """`_spend_rows` for a device: bisection for the rate, with which the energy grows."""
    _, _, rate_min, _ = expected_log(system.p_min[n], snr, probability)
    log_max, _, rate_max, _ = expected_log(system.p_max[n], snr, probability)
    alpha = system.capacitance[n]
    low = min(rate_min, alpha * system.f_min[n] ** 3)
    high = max(rate_max, alpha * system.f_max[n] ** 3)
    if again > 0.0:  # known gains have roots of their own
        p_min, p_max = system.p_min[n], system.p_max[n]
        low = min(low, 0.4 * snr.min() * p_min**2 / (1.0 + snr.min() * p_min))
        high = max(high, (p_max + 1.0 / snr.max()) * (1.0 + math.log1p(snr.max() * p_max)))
    low = max(low, least)
    high = max(low, high)
    ends = log_max, rate_min, rate_max
    time, energy = _mixture(n, high, again, snr, probability, ends, system)
    if energy <= allowed:
        return time, math.inf
    for _ in range(60):
        rate = math.sqrt(low * high)
        time, energy = _mixture(n, rate, again, snr, probability, ends, system)
        if energy > allowed:
            high = rate
        else:
            low = rate
        if high <= low * (1.0 + 1e-9):
            break
    time, _ = _mixture(n, low, again, snr, probability, ends, system)
    return time, low


@njit(cache=True, error_model="numpy")
def _mixture(
    n: int,
    rate: float,
    again: float,
    snr: FloatArray,
    probability: FloatArray,
    ends: tuple[float, float, float],
    system: System,
) -> tuple[float, float]:
    """Mean time and energy of a participation of device n at the price ``1 / rate``."""
    log_max, rate_min, rate_max = ends
    p_min, p_max = system.p_min[n], system.p_max[n]
    price = 1.0 / rate
    f = best_f(price, system.capacitance[n], system.f_min[n], system.f_max[n])
    compute = system.cycles[n] / f + system.download[n]
    computing = 0.5 * system.capacitance[n] * system.cycles[n] * f * f
    p, log = best_expected_p(price, snr, probability, p_min, p_max, log_max, rate_min, rate_max)
    upload = system.upload / log
    time, energy = upload, p * upload  # beyond those of computing, which are always the same
    if again == 0.0:
        return compute + time, computing + energy
    times, energies = np.empty(snr.size), np.empty(snr.size)
    for j in range(snr.size):
        p, log = best_p(price, snr[j], p_min, p_max, math.log1p(snr[j] * p_max))
        times[j] = system.upload / log
        energies[j] = p * times[j]
    mean_time, mean_energy = time, energy
    # Dinkelbach's iteration: the mean cost falls until the set that is taken again stays.
    cost = math.inf
    while mean_time + price * mean_energy < cost * (1.0 - 1e-12):
        cost = mean_time + price * mean_energy
        total, total_time, total_energy = 1.0, time, energy
        for j in range(snr.size):
            if times[j] + price * energies[j] < cost:
                weight = again * probability[j]
                total += weight
                total_time += weight * times[j]
                total_energy += weight * energies[j]
        mean_time, mean_energy = total_time / total, total_energy / total
    return compute + mean_time, computing + mean_energy

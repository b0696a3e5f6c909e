"""The price of energy at which a device spends what a participation may take, compiled.

See `policies.outcome.law_prices`.
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray
from policies.compiled import compiled, entry
from policies.device import (
    CAPACITANCE,
    CYCLES,
    F_MAX,
    F_MIN,
    P_MAX,
    P_MIN,
    RATE_MAX,
    SNR,
    UPLOAD,
    WAITING,
    WEIGHT,
    begin_round,
    begin_table,
    best_f,
    best_known_p,
    best_p,
    expected_log,
)


@entry
def price_rows(
    begin: int,
    end: int,
    gain: FloatArray,
    probability: FloatArray,
    queue: FloatArray,
    constants: FloatArray,
    wanted: BoolArray,
    allowed: FloatArray,
    again: FloatArray,
    least: FloatArray,
    time: FloatArray,
    rate: FloatArray,
) -> None:
    """Write the least time of each device at its energy, and what a second more would save."""
    t, nodes = begin_table(constants, gain.shape[2])
    taken = np.empty((2, gain.shape[2]))
    for row in range(begin, end):
        begin_round(gain[row], probability[row], queue[row], t, nodes)
        for n in range(t.shape[1]):
            if wanted[row, n]:
                time[row, n], rate[row, n] = _spend(
                    n, allowed[n], again[n], least[n], t, nodes, taken
                )


@compiled
def _spend(
    n: int,
    allowed: float,
    again: float,
    least: float,
    t: FloatArray,
    nodes: FloatArray,
    taken: FloatArray,
) -> tuple[float, float]:
    """`price_rows` for device n: bisection for the rate, with which the energy grows."""
    rate_min = expected_log(t[P_MIN, n], n, nodes)[2]
    low = min(rate_min, t[CAPACITANCE, n] * t[F_MIN, n] ** 3)
    high = max(t[RATE_MAX, n], t[CAPACITANCE, n] * t[F_MAX, n] ** 3)
    if again > 0.0:  # known gains have roots of their own
        worst, best = math.inf, 0.0
        for j in range(nodes.shape[2]):
            worst, best = min(worst, nodes[SNR, n, j]), max(best, nodes[SNR, n, j])
        low = min(low, 0.4 * worst * t[P_MIN, n] ** 2 / (1.0 + worst * t[P_MIN, n]))
        slope = 1.0 + math.log1p(best * t[P_MAX, n])
        high = max(high, (t[P_MAX, n] + 1.0 / best) * slope)
    low = max(low, least)
    high = max(low, high)
    time, energy = _mixture(n, high, again, t, nodes, taken)
    if energy <= allowed:
        return time, math.inf
    for _ in range(60):
        rate = math.sqrt(low * high)
        time, energy = _mixture(n, rate, again, t, nodes, taken)
        if energy > allowed:
            high = rate
        else:
            low = rate
        if high <= low * (1.0 + 1e-9):
            break
    time, _ = _mixture(n, low, again, t, nodes, taken)
    return time, low


@compiled
def _mixture(
    n: int, rate: float, again: float, t: FloatArray, nodes: FloatArray, taken: FloatArray
) -> tuple[float, float]:
    """Mean time and energy of a participation of device n at the price ``1 / rate``."""
    price = 1.0 / rate
    f = best_f(price, t[CAPACITANCE, n], t[F_MIN, n], t[F_MAX, n])
    compute = t[CYCLES, n] / f + t[WAITING, n]
    computing = 0.5 * t[CAPACITANCE, n] * t[CYCLES, n] * f * f
    p, log = best_p(price, n, t, nodes)
    time, energy = t[UPLOAD, n] / log, p * t[UPLOAD, n] / log
    if again == 0.0:
        return compute + time, computing + energy
    for j in range(nodes.shape[2]):
        p, log = best_known_p(rate, nodes[SNR, n, j], t[P_MIN, n], t[P_MAX, n])
        taken[0, j] = t[UPLOAD, n] / log
        taken[1, j] = p * taken[0, j]
    mean_time, mean_energy = time, energy
    # Dinkelbach's iteration: the mean cost falls until the set that is taken again stays.
    cost = math.inf
    while mean_time + price * mean_energy < cost * (1.0 - 1e-12):
        cost = mean_time + price * mean_energy
        total, total_time, total_energy = 1.0, time, energy
        for j in range(nodes.shape[2]):
            if taken[0, j] + price * taken[1, j] < cost:
                weight = again * nodes[WEIGHT, n, j]
                total += weight
                total_time += weight * taken[0, j]
                total_energy += weight * taken[1, j]
        mean_time, mean_energy = total_time / total, total_energy / total
    return compute + mean_time, computing + mean_energy

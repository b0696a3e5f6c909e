"""A device's best f and p for a price of energy (Theorems 2 and 3) or a deadline, compiled.

Times and energies use the logarithm l = ln(1 + h p / N0), as the paper does in P2.1:

    T = cycles / f + upload / l + waiting,    cycles = E c D,    upload = M K ln(2) / B,
    E = alpha cycles f^2 / 2 + p upload / l,  waiting = T_down + overhead.

The *rate*, the energy saved by a second more to upload, is ``((1 + x) ln(1 + x) - x) N0 / h``
with x = h p / N0. Its derivative with respect to p is l. The rate grows with p, so the least energy
with which a device meets a deadline is convex and decreasing in the deadline.

Functions take the index n of a device and the table ``t`` of all devices, whose rows are named
below.
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env.typing import FloatArray
from policies.solvers.compiled import compiled, inlined
from policies.solvers.inputs import (
    CAPACITANCE,
    CONSTANTS,
    CYCLES,
    F_MAX,
    F_MIN,
    NOISE,
    P_MAX,
    P_MIN,
    UPLOAD,
    WAITING,
)

# Rows of a table: the constants, a device's state in a round, ...
QUEUE = CONSTANTS  # the energy queue
SNR = CONSTANTS + 1  # h / N0
LOG_MAX = CONSTANTS + 2  # the logarithm at p_max
RATE_MAX = CONSTANTS + 3  # the rate at p_max
# ... values for deadlines, ...
LOG_MIN = CONSTANTS + 4  # the logarithm at p_min
LEAST = CONSTANTS + 5  # the least time, at f_max and p_max
# ... and for the outcome problem.
PARTICIPATION = CONSTANTS + 6  # the participation queue
FIRST = CONSTANTS + 7  # the least time; infinite for an absent device
_ROWS = CONSTANTS + 8

# Relative distance inside a range at which the search of `on_time` stops.
_INSIDE = 1e-12


@compiled
def begin_table(constants: FloatArray) -> FloatArray:
    """Create a table that contains the constants."""
    t = np.empty((_ROWS, constants.shape[1]))
    for row in range(constants.shape[0]):
        for n in range(constants.shape[1]):
            t[row, n] = constants[row, n]
    return t


@compiled
def begin_round(gain: FloatArray, queue: FloatArray, t: FloatArray) -> None:
    """Write the devices' state in a round, from their gains and queues, (N,)."""
    for n in range(queue.size):
        snr = gain[n] / t[NOISE, n]
        x = snr * t[P_MAX, n]
        log = math.log1p(x)
        t[QUEUE, n] = queue[n]
        t[SNR, n] = snr
        t[LOG_MAX, n] = log
        t[RATE_MAX, n] = power_equation(x, log) / snr


@compiled
def begin_deadlines(t: FloatArray) -> None:
    """Write the other rows that `on_time` needs."""
    for n in range(t.shape[1]):
        t[LOG_MIN, n] = math.log1p(t[SNR, n] * t[P_MIN, n])
        computing = t[CYCLES, n] / t[F_MAX, n]
        t[LEAST, n] = computing + t[UPLOAD, n] / t[LOG_MAX, n] + t[WAITING, n]


@compiled
def power_equation(x: float, log_x: float) -> float:
    """(1 + x) ln(1 + x) - x with ``log_x = ln(1 + x)``; a series avoids cancellation."""
    if x > 0.02:
        return (1.0 + x) * log_x - x
    total = 0.0
    term = x
    for k in range(2, 12):
        term *= -x
        total -= term / (k * (k - 1.0))
    return total


@compiled
def logarithm(p: float, snr: float) -> tuple[float, float, float]:
    """The logarithm l at the power p, its derivative, and the rate there, whose derivative is l."""
    x = snr * p
    log = math.log1p(x)
    return log, snr / (1.0 + x), power_equation(x, log) / snr


# At a price


@compiled
def _inverse_cube_root(t: float) -> float:
    """``t ** (-1 / 3)`` for t > 0, by arithmetic that vectorises.

    A constant minus a third of t's bits is within 4 % of the root, because the leading bits are the
    exponent. Two steps of fourth order reach full precision.
    """
    third = ((np.float64(t).view(np.int64) >> 32) * 0x55555556) >> 32
    root = np.int64((0x553EF0FF - third) << 32).view(np.float64)
    for _ in range(2):
        r = 1.0 - t * root * root * root
        root *= 1.0 + r * (1.0 / 3.0 + r * (2.0 / 9.0 + r * (14.0 / 81.0)))
    return float(root)


@compiled
def best_f(price: float, capacitance: float, f_min: float, f_max: float) -> float:
    """Theorem 2 with ``price = Q pi / (V q)``, the price of energy in time."""
    energy = price * capacitance
    f = min(max(_inverse_cube_root(energy), f_min), f_max)
    f = f_min if energy * f_min**3 >= 1.0 else f
    return f_max if energy * f_max**3 <= 1.0 else f


@compiled
def best_p(price: float, n: int, t: FloatArray) -> tuple[float, float]:
    """Theorem 3 at a price of energy in time that is too high for p_max: p, and the logarithm l.

    With x = snr p the condition is (1 + x) ln(1 + x) - x = snr / price. Its left side is convex and
    increasing, so Newton's method finds the root or stops at an end of the range.
    """
    snr = t[SNR, n]
    p_min = t[P_MIN, n]
    p_max = t[P_MAX, n]
    target = snr * (1.0 / price)
    x_min = snr * p_min
    x_max = snr * p_max
    x = math.sqrt(2.0 * target)  # the leading terms of the root for a small target
    x = min(max(x + x * x / 6.0, x_min), x_max)
    log_x = math.log1p(x)
    for _ in range(60):
        last = x
        x = min(max(x - (power_equation(x, log_x) - target) / log_x, x_min), x_max)
        log_x = math.log1p(x)
        if abs(x - last) <= 1e-13 * x:
            break
    p = min(max(x / snr, p_min), p_max)
    return p if x > x_min else p_min, log_x


@inlined
def spent(f: float, p: float, log: float, n: int, t: FloatArray) -> tuple[float, float]:
    """T and E at f and p, given the logarithm l at p."""
    uploading = t[UPLOAD, n] / log
    energy = 0.5 * t[CAPACITANCE, n] * t[CYCLES, n] * f * f + p * uploading
    return t[CYCLES, n] / f + uploading + t[WAITING, n], energy


@inlined
def best_at(price: float, n: int, t: FloatArray) -> tuple[float, float, float, float]:
    """The f and p that minimise ``T + price E``, then T and E there."""
    f = best_f(price, t[CAPACITANCE, n], t[F_MIN, n], t[F_MAX, n])
    p = t[P_MAX, n]
    log = t[LOG_MAX, n]
    if price * t[RATE_MAX, n] > 1.0:
        p, log = best_p(price, n, t)
    time, energy = spent(f, p, log, n, t)
    return f, p, time, energy


# By a deadline


@compiled
def on_time(
    deadline: float, start: float, n: int, t: FloatArray
) -> tuple[float, float, float, float]:
    """The f and p with which a device meets the deadline at the least energy.

    Inside the range of f, a second more to compute saves the energy alpha f^3 (Theorem 2). Inside
    the range of p, a second more to upload saves the rate (Theorem 3). The time is split so that
    both savings are equal, as far as the ranges allow, which is a root in p. The search for it
    starts at ``start``, which may be any number. A device that cannot meet the deadline gets f_max
    and p_max.

    The root lies between two powers: at the lower one, f must be f_max; at the higher one, f may be
    f_min. Outside, Newton's method on the concave logarithm leads to a point just inside. Inside,
    Newton's method solves the logarithm of the condition in the logarithm of p, and stays clear of
    both ends.

    Returns f, p, the energy saved by a second more [J/s], which is the inverse of the price of
    energy, and the decrease of this saving with time [J/s^2].
    """
    cycles = t[CYCLES, n]
    upload = t[UPLOAD, n]
    alpha = t[CAPACITANCE, n]
    snr = t[SNR, n]
    f_min = t[F_MIN, n]
    f_max = t[F_MAX, n]
    p_min = t[P_MIN, n]
    p_max = t[P_MAX, n]
    if deadline <= t[LEAST, n]:
        rate = alpha * f_max**3 if f_min < f_max else 0.0
        if p_min < p_max:
            rate = max(rate, t[RATE_MAX, n])
        return f_max, p_max, rate, 0.0
    both = deadline - t[WAITING, n]  # time to compute and upload
    if cycles / f_min + upload / t[LOG_MIN, n] <= both:
        return f_min, p_min, 0.0, 0.0
    log_low = upload / (both - cycles / f_max)
    log_high = upload / (both - cycles / f_min) if both > cycles / f_min else math.inf
    aim_low = (1.0 + _INSIDE) * log_low
    aim_high = (1.0 - _INSIDE) * log_high
    bottom = 0.0
    top = math.inf
    p = min(max(start, p_min), p_max)
    for _ in range(100):
        log, slope, rate = logarithm(p, snr)
        rest = both - upload / log
        to_low = p + (aim_low - log) / slope
        to_high = p + (aim_high - log) / slope
        if log < log_low:
            excess = -1.0
            new = to_low
        elif log > log_high:
            excess = 1.0
            new = to_high
        else:
            excess = math.log(rate * rest**3 / (alpha * cycles**3))
            steep = log * p / rate + 3.0 * upload * slope * p / (log * log * rest)
            new = p * math.exp(-excess / steep)
            new = max(new, to_low) if excess > 0.0 else min(new, to_high)
        if excess >= 0.0:
            top = p
        if excess <= 0.0:
            bottom = p
        if bottom >= top:
            break
        new = min(max(new, p_min), p_max)
        if not bottom < new < top:  # an end of the range is tried once
            new = 0.5 * (max(bottom, p_min) + min(top, p_max))
        moved = abs(new - p)
        p = new
        if moved <= 1e-14 * p:
            break
    log, slope, rate = logarithm(p, snr)
    rest = both - upload / log
    if log >= (1.0 - 3.0 * _INSIDE) * log_high:
        f = f_min
    elif log <= (1.0 + 3.0 * _INSIDE) * log_low:
        f = f_max
    else:
        f = min(max(cycles / rest, f_min), f_max)
    inside = p_min < p < p_max
    if not inside:
        rate = alpha * f**3
    stretch = 0.0  # time gained per unit of the rate
    if f_min < f < f_max:
        stretch += cycles / (3.0 * f * rate)
    if inside:
        stretch += upload * slope / (log * log * log)
    return f, p, rate, 1.0 / stretch if stretch > 0.0 else 0.0

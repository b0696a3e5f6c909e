"""The least cost of a device that pays for its share of the band, compiled.

With a share s of the band and the power p, an upload takes ``m / (s L)`` seconds and p times as
much energy. Here m is ``M ln(2) / B``, and L the logarithm of `policies.device` at the power
density ``u = p / s``, for noise of the whole band. So the energy of an upload, ``m u / L``, depends
on u alone. At a worth w of time, a worth Q of energy and a price c of the band, a device minimises

    w T + Q E + c s.

For a given u the best share is ``sqrt(w m / (c L))``; what is left is one root in u. Where that
leads out of the range of p, or to more than the whole band, the minimum lies on that edge, as the
least energy of an upload is jointly convex in its time and its share. (It is a series of positive
powers of ``1 / (t s)``, hence convex and decreasing in the square root of ``t s``, which is
concave.) The table and the nodes are those of `policies.device` for a device that has the whole
band.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fl_edge_env.typing import FloatArray
from policies.compiled import compiled
from policies.device import (
    CAPACITANCE,
    CYCLES,
    F_MAX,
    F_MIN,
    LEAST,
    LOG_MAX,
    P_MAX,
    P_MIN,
    QUEUE,
    RATE_MAX,
    UPLOAD,
    WAITING,
    best_f,
    best_p,
    expected_log,
)

# Relative size of a step of Newton's method after which the root has all the digits that count.
_SMALL = 1e-5


class Purchase(NamedTuple):
    """What a device does at a worth of time."""

    f: float
    p: float
    share: float
    time: float
    cost: float  # Q E + c s
    slope: float  # derivative of the time with respect to the logarithm of its worth
    u: float  # power density, from which a search nearby may start


@compiled
def cheapest(
    worth: float, price: float, start: float, n: int, t: FloatArray, nodes: FloatArray
) -> Purchase:
    """Minimise ``worth T + Q E + price s`` over f, p and s.

    The search for the power density begins at ``start``, or by itself if that is zero.
    """
    queue = t[QUEUE, n]
    f = t[F_MAX, n]
    if queue > 0.0:
        f = t[F_MIN, n]
        if worth > 0.0:
            f = best_f(queue / worth, t[CAPACITANCE, n], t[F_MIN, n], t[F_MAX, n])
    computing = t[CYCLES, n] / f
    p, share, uploading, bend, _ = _best_share(worth, price, start, n, t, nodes)
    time = computing + uploading + t[WAITING, n]
    energy = 0.5 * t[CAPACITANCE, n] * t[CYCLES, n] * f * f + p * uploading
    slope = uploading * bend
    if t[F_MIN, n] < f < t[F_MAX, n]:
        slope -= computing / 3.0
    return Purchase(f, p, share, time, queue * energy + price * share, slope, p / share)


@compiled
def _best_share(
    worth: float, price: float, start: float, n: int, t: FloatArray, nodes: FloatArray
) -> tuple[float, float, float, float, float]:
    """The power, the share and the time of the upload.

    Then the derivative of the logarithm of the time in that of its worth, and the rate at u.
    """
    queue, upload, p_min, p_max = t[QUEUE, n], t[UPLOAD, n], t[P_MIN, n], t[P_MAX, n]
    if not price > 0.0:
        return _whole_band(worth, n, t, nodes)
    if not queue > 0.0:
        return _fixed_power(p_max, worth, price, start, n, t, nodes)
    if not worth > 0.0:
        return _fixed_power(p_min, worth, price, start, n, t, nodes)
    edge = _fixed_power(p_max, worth, price, start, n, t, nodes)
    if queue * edge[1] * edge[4] <= worth:  # less power would save too little
        return edge
    target = math.sqrt(worth * price / upload) / queue  # rate / sqrt(L)
    u = start if start > 0.0 else (4.0 * target * target / nodes[0, n, 0]) ** (1.0 / 3.0)
    log, slope, rate, growth = expected_log(u, n, nodes)
    steep = 1.5
    for _ in range(100):
        steep = growth * u / rate - 0.5 * slope * u / log
        last, step = u, math.log(rate / (target * math.sqrt(log))) / steep
        u *= math.exp(-step)
        if abs(step) <= _SMALL:
            log += slope * (u - last)
            break
        log, slope, rate, growth = expected_log(u, n, nodes)
    share = math.sqrt(worth * upload / (price * log))
    p = u * share
    if p_min <= p <= p_max and share <= 1.0:
        uploading = upload / (share * log)
        return p, share, uploading, -0.5 - 0.25 * slope * u / (log * steep), rate
    if p >= p_min:  # it is below p_max, as the edge has told
        return _whole_band(worth, n, t, nodes)
    edge = _fixed_power(p_min, worth, price, u, n, t, nodes)
    if share <= 1.0:
        return edge
    other = _whole_band(worth, n, t, nodes)
    cost = (worth + queue * edge[0]) * edge[2] + price * edge[1]
    return edge if cost <= (worth + queue * other[0]) * other[2] + price else other


@compiled
def _whole_band(
    worth: float, n: int, t: FloatArray, nodes: FloatArray
) -> tuple[float, float, float, float, float]:
    """`_best_share` on the edge s = 1."""
    queue = t[QUEUE, n]
    p, log = t[P_MAX, n], t[LOG_MAX, n]
    if queue * t[RATE_MAX, n] > worth:
        p, log = best_p(queue / worth if worth > 0.0 else math.inf, n, t, nodes)
    bend = 0.0
    if t[P_MIN, n] < p < t[P_MAX, n]:
        _, slope, rate, growth = expected_log(p, n, nodes)
        bend = -slope * rate / (growth * log)
    return p, 1.0, t[UPLOAD, n] / log, bend, 0.0


@compiled
def _fixed_power(
    p: float,
    worth: float,
    price: float,
    start: float,
    n: int,
    t: FloatArray,
    nodes: FloatArray,
) -> tuple[float, float, float, float, float]:
    """`_best_share` at a power, where ``(worth + Q p) m u^2 (L - u L') = price p^2 L^2``."""
    upload, spent = t[UPLOAD, n], worth + t[QUEUE, n] * p
    aim = price * p * p / (spent * upload)  # of u^2 (L - u L') / L^2
    u = max(p, start if start > 0.0 else math.sqrt(2.0 * aim))
    log, slope, rate, growth = expected_log(u, n, nodes)
    steep = 2.0
    for _ in range(100):
        steep = 2.0 + u * u * growth * slope / (log * rate) - 2.0 * u * slope / log
        step = math.log(u * u * rate * slope / (log * log * aim)) / steep
        last = u
        u = max(p, u * math.exp(-step))
        if abs(u - last) <= _SMALL * u:
            log, rate = log + slope * (u - last), rate + growth * (u - last)
            break
        log, slope, rate, growth = expected_log(u, n, nodes)
    share = min(p / u, 1.0)
    bend = (worth / spent) * (slope * u / log - 1.0) / steep if u > p else 0.0
    return p, share, upload / (share * log), bend, rate


@compiled
def _most_worth(price: float, n: int, t: FloatArray, nodes: FloatArray) -> float:
    """The worth of time from which a device goes as fast as it can."""
    p, queue = t[P_MAX, n], t[QUEUE, n]
    log, slope, rate, _ = expected_log(p, n, nodes)
    band = price * log * log / (t[UPLOAD, n] * rate * slope) - queue * p
    return float(max(queue * t[CAPACITANCE, n] * t[F_MAX, n] ** 3, queue * rate, band))


@compiled
def cheapest_by(
    deadline: float,
    start: float,
    start_u: float,
    near: float,
    price: float,
    n: int,
    t: FloatArray,
    nodes: FloatArray,
) -> tuple[float, float, Purchase]:
    """The least cost with which a device meets the deadline.

    Gives the worth of time at which the device finishes then, how much that falls with each second,
    and what it does. A device that cannot meet the deadline goes as fast as it can. The search
    begins at the worth ``start`` and the power density ``start_u``, which may be any numbers: it is
    Newton's method on the logarithm of the time in that of its worth, in a bracket, until it is
    ``near``.
    """
    high = _most_worth(price, n, t, nodes)
    if deadline <= t[LEAST, n]:
        return high, 0.0, cheapest(high, price, start_u, n, t, nodes)
    low = 0.0
    worth = start if 0.0 < start < high else high
    done = cheapest(worth, price, start_u, n, t, nodes)
    for _ in range(100):
        if done.time > deadline:
            low = worth
        else:
            high = worth
        if high - low <= 1e-14 * high:
            break
        move = math.log(deadline / done.time) * done.time / min(done.slope, -1e-300)
        if abs(move) <= near:
            break
        new = worth * math.exp(min(max(move, -50.0), 50.0))
        if not low < new < high:
            if low == 0.0 and t[QUEUE, n] > 0.0 and high == worth and new < 1e-9 * worth:
                rest = cheapest(0.0, price, done.u, n, t, nodes)
                if rest.time <= deadline:
                    return 0.0, 0.0, rest
            new = math.sqrt(low * high) if low > 0.0 else 0.1 * high
        worth = new
        done = cheapest(worth, price, done.u, n, t, nodes)
    return worth, -worth / done.slope if done.slope < 0.0 else 0.0, done


@compiled
def least_share(deadline: float, n: int, t: FloatArray, nodes: FloatArray) -> float:
    """The share with which a device just meets a deadline as fast as it can, by bisection."""
    p = t[P_MAX, n]
    aim = t[UPLOAD, n] / (deadline - t[WAITING, n] - t[CYCLES, n] / t[F_MAX, n])  # of s L
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        log, _, _, _ = expected_log(p / middle, n, nodes)
        if middle * log < aim:
            low = middle
        else:
            high = middle
    return high

"""P2 compiled: the closed forms of a device, Algorithm 2, and the dual bound.

T_n and E_n are written through the logarithm l_n = ln(1 + h_n p_n / N0), as the paper does in P2.1:

    T_n = cycles_n / f_n + upload / l_n + download_n,    upload = M K ln(2) / B,
    E_n = alpha_n cycles_n f_n^2 / 2 + p_n upload / l_n.

A gain that is not known, but of which the law is, has J nodes s_j with probabilities w_j. Time and
energy are then expected ones, and all that changes is the logarithm: in its place stands the
weighted harmonic mean of the nodes' logarithms,

    1 / l_n = sum_j w_j / ln(1 + s_j p_n).

It is concave in p, as the harmonic mean of concave functions is, and nothing below needs more.
Written out: the energy saved by a second more to upload is ``G / |G'| - p`` with G = 1 / l, and
with l_j = ln(1 + s_j p), y_j = s_j p / ((1 + s_j p) l_j) and a_j = w_j / l_j it grows with p by

    (sum a sum (a y^2 l) + 2 (sum a sum (a y^2) - (sum a y)^2)) / (sum a y)^2,

which is not negative, by Cauchy and Schwarz.

A price and a device decide f and p in a few operations, so that what numba does around them counts:
functions for one device take numbers (`Device`), and Algorithm 2 goes over all devices in loops
without calls or branches, which the processor runs for several devices at once. How many these are
changes no result: the order of the additions is written down.

Two facts carry the module. The ratio pi_n / q_n = sum_{k<K} (1 - q_n)^k has no cancellation and
makes the best f and p functions of one number, the price of energy. And for a device alone,

    m_n(q) = min over f, p of  V q T_n + Q_n pi(q) E_n

is a minimum of concave functions of q, hence concave: its tangents bound it from above, which is
the SUM step of Algorithm 2, and its chords bound it from below, which is the certificate.

Every compiled function stands in this file, because a compiled function is cached by the date of
the file it stands in.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from fl_edge_env.typing import FloatArray, IntArray

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions.
_compiled = njit(cache=True, error_model="numpy")
_compiled_parallel = njit(cache=True, error_model="numpy", parallel=True)

# The least probability that an allocation may have; a number of this file's own, see above.
LEAST_Q = 1e-100


class System(NamedTuple):
    """The scenario as the kernel reads it; arrays of shape (N,)."""

    V: float
    cohort_size: int
    noise: float
    upload: float
    error: FloatArray  # V lambda w^2
    cycles: FloatArray
    download: FloatArray
    capacitance: FloatArray
    f_min: FloatArray
    f_max: FloatArray
    p_min: FloatArray
    p_max: FloatArray
    budget: FloatArray


class Options(NamedTuple):
    """How Algorithm 2 runs."""

    paper: bool  # P2.2 without the queue in its concave term
    exact: bool
    tolerance: float
    max_iterations: int


class Gains(NamedTuple):
    """The gains of a round, or the law of them."""

    gain: FloatArray  # (N,), or (N, J) of a law; in batches (B, ...)
    probability: FloatArray | None  # (N, J), or None for known gains


class Law(NamedTuple):
    """What a state has for gains that are not known.

    For known gains it is an empty tuple. Numba drops branches on the length of an argument, so that
    what is compiled for known gains knows nothing of laws, and small functions have it for that.
    """

    probability: FloatArray  # (N, J); of one device (J,)
    rate_min: Any  # energy saved by a second more to upload at p_min, (N,); of one device a number


class _State(NamedTuple):
    """The state of a round; arrays of shape (N,)."""

    snr: FloatArray  # h / N0; of a law (N, J)
    queue: FloatArray
    log_max: FloatArray  # ln(1 + snr p_max), or the harmonic mean of the nodes'
    rate_max: FloatArray  # energy saved by a second more to upload at p_max
    law: Law | tuple[()]


class Device(NamedTuple):
    """One device in a round: numbers, but for the nodes of a law.

    Functions for one device take this, because the references of arrays would be counted at
    every call. What it has of a law they take beside it, as an argument for numba to see.
    """

    snr: Any  # a number; of a law (J,)
    log_max: float
    rate_max: float
    cycles: float
    upload: float
    download: float
    capacitance: float
    f_min: float
    f_max: float
    p_min: float
    p_max: float


@_compiled
def _state(gains: Gains, queue: FloatArray, system: System) -> _State:
    snr = gains.gain / system.noise
    law = law_of(snr, gains.probability, system)
    log_max, rate_max = at_most_power(snr, law, system)
    return _State(snr, queue, log_max, rate_max, law)


@_compiled
def row_of(gain: FloatArray, probability: FloatArray | None, row: int) -> Gains:
    """One row of a batch."""
    if gain.ndim == 2:
        return Gains(gain[row], None)
    return Gains(gain[row], probability[row])  # type: ignore[index]


@_compiled
def law_of(snr: FloatArray, probability: FloatArray | None, system: System) -> Law | tuple[()]:
    """The `Law` of nodes and their probabilities; nothing for known gains."""
    if snr.ndim == 1:
        return ()
    weights: Any = probability
    rate_min = np.empty(len(snr))
    for n in range(len(snr)):
        _, _, rate_min[n], _ = expected_log(system.p_min[n], snr[n], weights[n])
    return Law(weights, rate_min)


@_compiled
def at_most_power(snr: FloatArray, law: Any, system: System) -> tuple[FloatArray, FloatArray]:
    """What `_State` has of the largest power: ``log_max`` and ``rate_max``."""
    log, rate = np.empty(len(snr)), np.empty(len(snr))
    if snr.ndim == 1:
        for n in range(len(snr)):
            x = snr[n] * system.p_max[n]
            log[n] = math.log1p(x)
            rate[n] = power_equation(x, log[n]) / snr[n]
    else:
        for n in range(len(snr)):
            log[n], _, rate[n], _ = expected_log(system.p_max[n], snr[n], law.probability[n])
    return log, rate


@_compiled
def device_of(
    n: int, snr: FloatArray, log_max: FloatArray, rate_max: FloatArray, system: System
) -> Device:
    """Device n of a state."""
    return Device(
        snr[n],
        log_max[n],
        rate_max[n],
        system.cycles[n],
        system.upload,
        system.download[n],
        system.capacitance[n],
        system.f_min[n],
        system.f_max[n],
        system.p_min[n],
        system.p_max[n],
    )


@_compiled
def law_at(n: int, law: Any) -> Any:
    """What a law says of device n."""
    if len(law) == 0:
        return ()
    return Law(law.probability[n], law.rate_min[n])


@_compiled
def log_at(snr: FloatArray, law: Any, p: FloatArray) -> FloatArray:
    """ln(1 + snr p) of each device, or the harmonic mean of the nodes'."""
    if snr.ndim == 1:
        known: FloatArray = np.log1p(snr * p)
        return known
    log = np.empty(len(p))
    for n in range(len(p)):
        log[n], _, _, _ = expected_log(p[n], snr[n], law.probability[n])
    return log


# One device


@_compiled
def _participation(q: float, cohort_size: int) -> tuple[float, float]:
    """Give pi/q and (d pi/dq) / K, which are sum_{k<K} (1 - q)^k and (1 - q)^(K-1)."""
    ratio, power = 1.0, 1.0
    for _ in range(cohort_size - 1):
        power *= 1.0 - q
        ratio += power
    return ratio, power


@_compiled
def _inverse_cube_root(t: float) -> float:
    """``t ** (-1 / 3)`` for t > 0, by arithmetic that the processor does for many t at once.

    A third of the bits of t, taken from those of a constant, are within 4 % of the root, as the
    exponent stands in front. Two steps of fourth order give all of its digits.
    """
    third = ((np.float64(t).view(np.int64) >> 32) * 0x55555556) >> 32
    root = np.int64((0x553EF0FF - third) << 32).view(np.float64)
    for _ in range(2):
        r = 1.0 - t * root * root * root
        root *= 1.0 + r * (1.0 / 3.0 + r * (2.0 / 9.0 + r * (14.0 / 81.0)))
    return float(root)


@_compiled
def best_f(price: float, capacitance: float, f_min: float, f_max: float) -> float:
    """Theorem 2 with ``price = Q pi / (V q)``, the price of energy in time."""
    energy = price * capacitance
    f = min(max(_inverse_cube_root(energy), f_min), f_max)
    f = f_min if energy * f_min**3 >= 1.0 else f
    return f_max if energy * f_max**3 <= 1.0 else f


@_compiled
def power_equation(x: float, log_x: float) -> float:
    """Give (1 + x) ln(1 + x) - x with ``log_x = ln(1 + x)``; a series where it would cancel."""
    if x > 0.02:
        return (1.0 + x) * log_x - x
    total, term = 0.0, x
    for k in range(2, 12):
        term *= -x
        total -= term / (k * (k - 1.0))
    return total


@_compiled
def best_p(
    price: float, snr: float, p_min: float, p_max: float, log_max: float
) -> tuple[float, float]:
    """Theorem 3: the power p and ln(1 + snr p).

    With x = snr p the condition is (1 + x) ln(1 + x) - x = snr / price. Its left side is convex
    and increasing: the ends of the range tell whether the root is clipped, and Newton's method
    finds it otherwise.
    """
    target = snr / price if price > 0.0 else math.inf
    x_min, x_max = snr * p_min, snr * p_max
    if power_equation(x_max, log_max) <= target:
        return p_max, log_max
    log_min = math.log1p(x_min)
    if power_equation(x_min, log_min) >= target:
        return p_min, log_min
    x = math.sqrt(2.0 * target)  # the leading terms of the root for a small target
    x = min(max(x + x * x / 6.0, x_min), x_max)
    log_x = math.log1p(x)
    for _ in range(60):
        step = (power_equation(x, log_x) - target) / log_x
        x = min(max(x - step, x_min), x_max)
        log_x = math.log1p(x)
        if abs(step) <= 1e-13 * x:
            break
    return min(max(x / snr, p_min), p_max), log_x


@_compiled
def expected_log(
    p: float, snr: FloatArray, probability: FloatArray
) -> tuple[float, float, float, float]:
    """The harmonic mean l of ``ln(1 + snr p)`` over the nodes, and what follows from it.

    Returns
    -------
    log, slope : float
        l and its derivative with respect to p.
    rate : float
        Energy saved by a second more to upload, the generalisation of
        ``((1 + x) ln(1 + x) - x) / snr``.
    growth : float
        Its derivative with respect to p, not negative.
    """
    total, first, second, bend, rest = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(snr.size):
        if probability[j] == 0.0:
            continue
        x = snr[j] * p
        log = math.log1p(x)
        a = probability[j] / log
        y = x / ((1.0 + x) * log)
        total += a
        first += a * y
        second += a * y * y
        bend += a * y * y * log
        rest += a * power_equation(x, log) / ((1.0 + x) * log)  # a (1 - y), without cancellation
    spread = max(total * second - first * first, 0.0)
    growth = (total * bend + 2.0 * spread) / (first * first)
    return 1.0 / total, first / (p * total * total), p * rest / first, growth


@_compiled
def best_expected_p(
    price: float,
    snr: FloatArray,
    probability: FloatArray,
    p_min: float,
    p_max: float,
    log_max: float,
    rate_min: float,
    rate_max: float,
) -> tuple[float, float]:
    """Theorem 3 for a gain of which the law is known: the power p and `expected_log` there.

    The condition is that a second more to upload saves the energy 1 / price. Newton's method finds
    the root in the logarithms of both, between which the slope is about 2 for small p and 1
    for large.
    """
    target = 1.0 / price if price > 0.0 else math.inf
    if rate_max <= target:
        return p_max, log_max
    if rate_min >= target:
        log_min, _, _, _ = expected_log(p_min, snr, probability)
        return p_min, log_min
    low, high = p_min, p_max
    share = math.log(target / rate_min) / math.log(rate_max / rate_min)
    p = min(max(p_min * (p_max / p_min) ** share, p_min), p_max)
    log, _, rate, growth = expected_log(p, snr, probability)
    for _ in range(100):
        if rate < target:
            low = p
        else:
            high = p
        new = p * math.exp(math.log(target / rate) * rate / (growth * p))
        if not low <= new <= high:  # not so for NaN either
            new = math.sqrt(low * high)
        step = abs(new - p)
        p = new
        log, _, rate, growth = expected_log(p, snr, probability)
        if step <= 1e-13 * p:
            break
    return min(max(p, p_min), p_max), log


@_compiled
def best_power(price: float, device: Device, law: Any) -> tuple[float, float]:
    """Theorem 3, whether the gain is known or the law of it: p, and ln(1 + snr p) or its mean."""
    if price * device.rate_max <= 1.0:
        return device.p_max, device.log_max
    if len(law) == 0:
        p, log = best_p(price, device.snr, device.p_min, device.p_max, device.log_max)
    else:
        p, log = best_expected_p(
            price,
            device.snr,
            law.probability,
            device.p_min,
            device.p_max,
            device.log_max,
            law.rate_min,
            device.rate_max,
        )
    return p, log


@_compiled
def spent(
    f: float,
    p: float,
    log: float,
    cycles: float,
    upload: float,
    download: float,
    capacitance: float,
) -> tuple[float, float]:
    """T_n and E_n."""
    uploading = upload / log
    energy = 0.5 * capacitance * cycles * f * f + p * uploading
    return cycles / f + uploading + download, energy


@_compiled
def best_at(price: float, device: Device, law: Any) -> tuple[float, float, float, float, float]:
    """The f and p that minimise ``T + price E``, then T, E and ln(1 + snr p) there."""
    f = best_f(price, device.capacitance, device.f_min, device.f_max)
    p, log = best_power(price, device, law)
    time, energy = spent(
        f, p, log, device.cycles, device.upload, device.download, device.capacitance
    )
    return f, p, time, energy, log


@_compiled
def _marginal_cost(q: float, time: float, energy: float, queue: float, system: System) -> float:
    """Derivative of ``V q T + Q pi(q) E`` with respect to q."""
    _, power = _participation(q, system.cohort_size)
    return float(system.V * time + queue * energy * system.cohort_size * power)


@_compiled
def _device_cost(
    q: float, queue: float, V: float, cohort_size: int, device: Device, law: Any
) -> float:
    """m_n(q), the least cost of a device without its sampling error."""
    ratio, _ = _participation(q, cohort_size)
    _, _, time, energy, _ = best_at(queue * ratio / V, device, law)
    return float(q * (V * time + queue * ratio * energy))


# All devices


@_compiled
def _total(values: FloatArray) -> float:
    """The sum, in four parts that the processor adds at once."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    even = values.size // 4 * 4
    for n in range(0, even, 4):
        a += values[n]
        b += values[n + 1]
        c += values[n + 2]
        d += values[n + 3]
    for n in range(even, values.size):
        a += values[n]
    return (a + b) + (c + d)


@_compiled
def _participations(q: FloatArray, cohort_size: int, ratio: FloatArray, power: FloatArray) -> None:
    """Write `_participation` of each device."""
    ratio[:] = 1.0
    power[:] = 1.0
    for _ in range(cohort_size - 1):
        for n in range(q.size):
            power[n] *= 1.0 - q[n]
            ratio[n] += power[n]


@_compiled
def _resources(
    ratio: FloatArray,
    state: _State,
    system: System,
    f: FloatArray,
    p: FloatArray,
    time: FloatArray,
    energy: FloatArray,
) -> None:
    """Write the best f and p where ``pi / q`` is the ratio, and the time and energy there.

    This is `best_at` for each device, in loops of which all but one do many devices at once.
    """
    snr, law, log_max, rate_max = state.snr, state.law, state.log_max, state.rate_max
    queue, alpha, f_min, f_max = state.queue, system.capacitance, system.f_min, system.f_max
    cycles, download, V = system.cycles, system.download, system.V
    price, log = time, energy  # until these are known
    for n in range(ratio.size):
        price[n] = queue[n] * ratio[n] / V
    for n in range(ratio.size):
        f[n] = best_f(price[n], alpha[n], f_min[n], f_max[n])
    for n in range(ratio.size):
        device = device_of(n, snr, log_max, rate_max, system)
        p[n], log[n] = best_power(price[n], device, law_at(n, law))
    for n in range(ratio.size):
        time[n], energy[n] = spent(
            f[n], p[n], log[n], cycles[n], system.upload, download[n], alpha[n]
        )


# Algorithm 2


@_compiled
def _minimise_on_simplex(
    slope: FloatArray, root: FloatArray, q: FloatArray, work: FloatArray, guess: float
) -> float:
    """Write the minimiser of ``sum (slope q + root^2 / q)`` on the simplex into q.

    The solution is q = root / sqrt(slope + nu). These sum to one where a power mean of
    slope + nu, concave in nu, meets a constant: left of the root Newton's method climbs to it,
    and from the right its first step leads to the left. Returns nu, for which ``guess`` is a
    start; -inf where there is none.
    """
    size = slope.size
    least = slope.min()
    left = 0.0
    for n in range(size):
        gap = slope[n] - least
        work[n] = root[n] * gap
        left = max(left, root[n] * root[n] - gap)  # q <= 1 needs slope + nu >= root^2
    root_sum = _total(root)
    # The power mean is below the arithmetic one.
    left = max(left, root_sum**2 - _total(work) / root_sum)
    nu = max(left, guess + least)
    for _ in range(100):
        for n in range(size):
            inverse = 1.0 / (slope[n] - least + nu)
            q[n] = root[n] * math.sqrt(inverse)
            work[n] = q[n] * inverse
        total = _total(q)
        step = total * (total * total - 1.0) / _total(work)
        if abs(step) <= 1e-7 * nu:
            # The rest of the way on the tangent, which is off by the square of that.
            nu += step
            for n in range(size):
                q[n] -= 0.5 * step * work[n]
            break
        nu = max(left, nu + step)
    total = _total(q)
    for n in range(size):
        q[n] = max(q[n] / total, LEAST_Q)
    return float(nu - least)


@_compiled
def _positive_error(system: System) -> FloatArray:
    """V lambda w^2, or for lambda = 0 so little that q stays positive, as (3) asks."""
    least_time = (system.cycles / system.f_max).min()
    error: FloatArray = np.maximum(system.error, 1e-24 * system.V * least_time)
    return error


@_compiled
def _distance(a: FloatArray, b: FloatArray, scale: FloatArray, work: FloatArray) -> float:
    """The square of the distance from a to b in units of 1 / scale."""
    for n in range(a.size):
        work[n] = ((a[n] - b[n]) * scale[n]) ** 2
    return float(_total(work))


@_compiled
def _descend(
    state: _State,
    system: System,
    options: Options,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[float, int]:
    """Alternate from q until the decision rests; f, p and q hold the result.

    Returns the objective and the number of outer iterations.
    """
    num_devices, V, cohort_size = q.size, system.V, system.cohort_size
    time, energy = np.empty(num_devices), np.empty(num_devices)
    ratio, power = np.empty(num_devices), np.empty(num_devices)
    last_f, last_p, start = np.empty(num_devices), np.empty(num_devices), np.empty(num_devices)
    previous, slope, work = np.empty(num_devices), np.empty(num_devices), np.empty(num_devices)
    root = np.sqrt(_positive_error(system))
    one = np.ones(num_devices)
    f_scale, p_scale = (
        _inverse_range(system.f_min, system.f_max),
        _inverse_range(system.p_min, system.p_max),
    )
    queue = one if options.paper else state.queue
    f[:] = 0.5 * (system.f_min + system.f_max)
    p[:] = 0.5 * (system.p_min + system.p_max)
    iterations = 0
    moved, nu = math.inf, -math.inf
    _participations(q, cohort_size, ratio, power)
    while moved > options.tolerance and iterations < options.max_iterations:
        iterations += 1
        last_f[:], last_p[:], start[:] = f, p, q
        _resources(ratio, state, system, f, p, time, energy)
        for _ in range(options.max_iterations):
            previous[:] = q
            for n in range(num_devices):
                slope[n] = V * time[n] + queue[n] * energy[n] * cohort_size * power[n]
            nu = _minimise_on_simplex(slope, root, q, work, nu)
            _participations(q, cohort_size, ratio, power)
            if math.sqrt(_distance(q, previous, one, work)) <= options.tolerance:
                break
        moved = _distance(q, start, one, work)
        moved += _distance(f, last_f, f_scale, work)
        moved = math.sqrt(moved + _distance(p, last_p, p_scale, work))
    for n in range(num_devices):
        work[n] = V * q[n] * time[n] + system.error[n] / q[n]
        work[n] += state.queue[n] * (q[n] * ratio[n] * energy[n] - system.budget[n])
    return _total(work), iterations


@_compiled
def _inverse_range(low: FloatArray, high: FloatArray) -> FloatArray:
    """``1 / (high - low)``; zero where there is nothing to choose."""
    inverse = np.zeros(low.size)
    for n in range(low.size):
        if high[n] > low[n]:
            inverse[n] = 1.0 / (high[n] - low[n])
    return inverse


# The certificate


@_compiled
def _device_minimum(
    nu: float,
    error: float,
    queue: float,
    V: float,
    cohort_size: int,
    device: Device,
    law: Any,
    stack: FloatArray,
) -> tuple[float, float]:
    """Bound ``min over 0 < q <= 1 of m_n(q) + error / q - nu q`` from below; give its minimiser.

    Branch and bound: on an interval the concave m_n lies above its chord, and the minimum with
    the chord in its place is known in closed form. The interval is split there until the bound
    meets the best value found. The rows of ``stack`` are intervals (a, m(a), b, m(b)).
    """
    cost = _device_cost(1.0, queue, V, cohort_size, device, law)
    best, best_q, best_scale = cost + error - nu, 1.0, cost + error
    if error == 0.0 and best > 0.0:
        best, best_q, best_scale = 0.0, 0.0, 0.0
    a, cost_a, b, cost_b = 0.0, 0.0, 1.0, cost
    size = 0
    lower = math.inf
    while True:
        chord = (cost_b - cost_a) / (b - a)
        q = b if chord <= nu else min(max(math.sqrt(error / (chord - nu)), a), b)
        bound = cost_a + chord * (q - a) - nu * q
        if q > 0.0:
            bound += error / q
        if math.isnan(bound):  # beyond the range of floats nothing is proven
            return -math.inf, best_q
        at_end = q <= a or q >= b  # where the chord is exact
        if at_end or bound >= best - 1e-10 * best_scale or size == len(stack):
            lower = min(lower, bound)
            if size == 0:
                return lower, best_q
            size -= 1
            a, cost_a, b, cost_b = stack[size, 0], stack[size, 1], stack[size, 2], stack[size, 3]
            continue
        cost = _device_cost(q, queue, V, cohort_size, device, law)
        value = cost + error / q - nu * q
        if value < best:
            best, best_q, best_scale = value, q, cost + error / q
        stack[size, 0], stack[size, 1], stack[size, 2], stack[size, 3] = a, cost_a, q, cost
        size += 1
        a, cost_a = q, cost


@_compiled
def _dual(nu: float, state: _State, system: System, q: FloatArray) -> float:
    """Value of the dual function at nu, a lower bound on P2; q holds the devices' minimisers."""
    stack = np.empty((128, 4))
    value = nu
    for n in range(q.size):
        device, law = _device(n, state, system), law_at(n, state.law)
        queue = state.queue[n]
        minimum, q[n] = _device_minimum(
            nu, system.error[n], queue, system.V, system.cohort_size, device, law, stack
        )
        value += minimum - queue * system.budget[n]
    return value


@_compiled
def _device(n: int, state: _State, system: System) -> Device:
    device: Device = device_of(n, state.snr, state.log_max, state.rate_max, system)
    return device


@_compiled
def _maximise_dual(
    state: _State,
    system: System,
    q: FloatArray,
    objective: float,
    q_low: FloatArray,
    q_high: FloatArray,
) -> float:
    """Give the largest dual value found, starting from the multiplier of the solution q.

    The dual function is concave, and one less the sum of the minimisers is its slope: positive
    left of the best multiplier, negative right of it. The tangents at both ends of a bracket
    meet above the maximum, and there the next value is taken. q_low and q_high hold the
    minimisers at the ends of the last bracket.
    """
    num_devices, V, cohort_size = q.size, system.V, system.cohort_size
    ratio, power = np.empty(num_devices), np.empty(num_devices)
    f, p = np.empty(num_devices), np.empty(num_devices)
    time, energy = np.empty(num_devices), np.empty(num_devices)
    _participations(q, cohort_size, ratio, power)
    _resources(ratio, state, system, f, p, time, energy)
    nu, scale = 0.0, 0.0
    for n in range(num_devices):
        slope = V * time[n] + state.queue[n] * energy[n] * cohort_size * power[n]
        nu += q[n] * slope - system.error[n] / q[n]
        scale += q[n] * slope + system.error[n] / q[n]
    tolerance = 1e-9 * scale
    q_low[:] = q
    q_high[:] = q
    trial = np.empty(q.size)
    bound, above = -math.inf, math.inf
    low, value_low, slope_low = -math.inf, 0.0, 0.0
    high, value_high, slope_high = math.inf, 0.0, 0.0
    step = tolerance
    for _ in range(200):
        value = _dual(nu, state, system, trial)
        slope = 1.0 - trial.sum()
        bound = max(bound, value)
        if slope >= 0.0:
            low, value_low, slope_low = nu, value, slope
            q_low[:] = trial
        else:
            high, value_high, slope_high = nu, value, slope
            q_high[:] = trial
        if high == math.inf:
            nu = low + step
        elif low == -math.inf:
            nu = high - step
        else:
            rise = value_high - value_low - slope_high * (high - low)
            nu = low + min(max(rise / (slope_low - slope_high), 0.0), high - low)
            above = value_low + slope_low * (nu - low)
        if min(objective, above) - bound <= tolerance or not low <= nu <= high:
            break
        step *= 8.0
    return bound


@_compiled
def _improve(
    state: _State,
    system: System,
    options: Options,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
    objective: float,
) -> float:
    """Replace f, p and q by a better solution if another start leads to one.

    P2 has several local minima only where some devices' costs are not convex. At the best
    multiplier such a device has two minimisers, and the optimum gives what is left of the
    probability to few of them. The starts are the minimisers at both ends of the bracket, the
    lower ones with the rest given to one device, and single devices.
    """
    num_devices = q.size
    q_low, q_high = np.empty(num_devices), np.empty(num_devices)
    bound = _maximise_dual(state, system, q, objective, q_low, q_high)
    if objective - bound <= 1e-9 * (abs(objective) + np.sum(system.error / q)):
        return objective
    alone = np.empty(num_devices)
    for n in range(num_devices):
        device, law = _device(n, state, system), law_at(n, state.law)
        alone[n] = _device_cost(1.0, state.queue[n], system.V, system.cohort_size, device, law)
    cheapest = np.argsort(alone)[:8]
    jumping = np.argsort(q_low - q_high)[:8]
    trial_f, trial_p = np.empty(num_devices), np.empty(num_devices)
    trial_q = np.empty(num_devices)
    for start in range(2 + cheapest.size + jumping.size):
        trial_q[:] = q_high if start == 1 else q_low
        if start >= 2 + cheapest.size:
            trial_q[jumping[start - 2 - cheapest.size]] += max(0.0, 1.0 - q_low.sum())
        elif start >= 2:
            trial_q[:] = 1e-3 / num_devices
            trial_q[cheapest[start - 2]] = 1.0
        trial_q[:] = np.maximum(trial_q, 1e-9 / num_devices)
        trial_q /= trial_q.sum()
        value, _ = _descend(state, system, options, trial_f, trial_p, trial_q)
        if value < objective:
            objective = value
            f[:], p[:], q[:] = trial_f, trial_p, trial_q
    return objective


# Rounds and batches of rounds


@_compiled
def solve_row(
    gains: Gains,
    queue: FloatArray,
    system: System,
    options: Options,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[float, int]:
    """Algorithm 2 from its starting point, q = 1/N; f, p and q hold the result.

    Returns the objective and the number of outer iterations.
    """
    state = _state(gains, queue, system)
    q[:] = 1.0 / q.size
    objective, iterations = _descend(state, system, options, f, p, q)
    if options.exact:
        objective = _improve(state, system, options, f, p, q, objective)
    return objective, iterations


@_compiled_parallel
def solve_rows(
    gains: Gains,
    queue: FloatArray,
    system: System,
    options: Options,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[FloatArray, IntArray]:
    """Solve each row of a batch by `solve_row`, on all cores."""
    objective = np.empty(len(queue))
    iterations = np.empty(len(queue), dtype=np.int64)
    for row in prange(len(queue)):
        objective[row], iterations[row] = solve_row(
            row_of(gains.gain, gains.probability, row),
            queue[row],
            system,
            options,
            f[row],
            p[row],
            q[row],
        )
    return objective, iterations


@_compiled
def bound_row(
    gains: Gains, queue: FloatArray, system: System, q: FloatArray, objective: float
) -> float:
    """Bound P2 from below, for a solution q and its objective."""
    state = _state(gains, queue, system)
    low, high = np.empty(q.size), np.empty(q.size)
    return float(_maximise_dual(state, system, q, objective, low, high))


@_compiled_parallel
def bound_rows(
    gains: Gains,
    queue: FloatArray,
    system: System,
    q: FloatArray,
    objective: FloatArray,
) -> FloatArray:
    """Bound each row of a batch by `bound_row`, on all cores."""
    bound = np.empty(len(queue))
    for row in prange(len(queue)):
        own = row_of(gains.gain, gains.probability, row)
        bound[row] = bound_row(own, queue[row], system, q[row], objective[row])
    return bound


@_compiled
def resource_rows(
    gains: Gains, queue: FloatArray, system: System, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Give the best f and p at q for each row of a batch."""
    f, p = np.empty_like(queue), np.empty_like(queue)
    num_devices = queue.shape[1]
    ratio, unused = np.empty(num_devices), np.empty(num_devices)
    time, energy = np.empty(num_devices), np.empty(num_devices)
    for row in range(len(queue)):
        own = row_of(gains.gain, gains.probability, row)
        state = _state(own, queue[row], system)
        _participations(q[row], system.cohort_size, ratio, unused)
        _resources(ratio, state, system, f[row], p[row], time, energy)
    return f, p

"""P2 with the mean of the longest time in the cohort in the place of the proxy, compiled.

With T_(1) <= ... <= T_(N) the times in order and F_i = q_(1) + ... + q_(i), the mean of the longest
of K draws is

    E[max T] = sum_i T_(i) (F_i^K - F_(i-1)^K) = T_(N) - sum_i (T_(i+1) - T_(i)) F_i^K.

**f and p for a given q.** The first sum has its largest value over all orders of the devices where
T is sorted: E[max T] is the Lovasz extension of a submodular set function [1]_, convex in T, and so
is the least energy e_n(T_n) with which a device meets a deadline. The optimum shares V out among
the devices as their worth of time theta_n, so that each minimises ``theta_n T_n + Q_n pi_n E_n``
for itself, at the price of energy Q_n pi_n / theta_n of Theorems 2 and 3. It has blocks of devices
with the same time. A block that begins above the probability F has

    sum theta_n = V w(F, q(block)),    w(F, s) = (F + s)^K - F^K,

and none of its parts D has less than V w(F, q(D)): it would gain by finishing earlier. As w is
convex in s, the part that lacks most is one of the first in the order of theta_n / q_n. So blocks
are split there until no part lacks anything [2]_, and pooled where a later block would finish
before an earlier one.

**q for given f and p.** The second sum is concave in q, as the energy is, and both are replaced by
their tangents, the SUM step of Algorithm 2.

Both steps lower the objective, and they begin at the solution for the proxy.

Numba caches a compiled function by the date of the file it stands in, and some that are called
here stand in `policies.p2.kernel`: after a change of those, change this file too, or remove its
``__pycache__``.

References
----------
.. [1] L. Lovasz, "Submodular functions and convexity", Mathematical Programming: The State of the
   Art, 1983.
.. [2] H. Groenevelt, "Two algorithms for maximizing a separable concave function over a
   polymatroid feasible region", European Journal of Operational Research 54, 1991.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numba import njit, prange

from fl_edge_env.typing import FloatArray, IntArray
from policies.p2 import kernel
from policies.p2.kernel import (
    Gains,
    Options,
    System,
    _marginal_cost,
    _minimise_on_simplex,
    _participation,
    _positive_error,
    _State,
    _state,
    best_f,
    best_p,
    power_equation,
    row_of,
)

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions.
_compiled = njit(cache=True, error_model="numpy")
_compiled_parallel = njit(cache=True, error_model="numpy", parallel=True)

_solve_proxy = kernel.solve_row

# Two times that are the same but for rounding, relative.
_SAME_TIME = 1e-12
# A block is split where a part of it lacks more than this share of the block's worth of time.
_LACKING = 1e-10


class _Device:
    """A device in a round, a record of numpy.

    A function is handed one array of these: to hand it every array of the state and the system
    would cost more than the formulas.
    """

    snr: float  # h / N0
    log_max: float  # ln(1 + snr p_max)
    upload: float  # upload time times ln(1 + snr p) [s]
    download: float  # [s]
    cycles: float
    capacitance: float
    f_min: float
    f_max: float
    p_min: float
    p_max: float
    least: float  # time at f_max and p_max [s]
    most: float  # time at f_min and p_min [s]
    low: float  # rate up to which the time is the most [W]
    high: float  # rate from which on the time is the least [W]
    gap: float  # time that is the same for all rates from gap_low to gap_high [s]; 0 for none
    gap_low: float
    gap_high: float
    q: float
    cost: float  # Q pi, the price of its energy [J]
    rate: float  # energy that a second more saves at its deadline [W]
    theta: float  # worth of its time [J^2/s]


_DEVICE = np.dtype([(name, np.float64) for name in _Device.__annotations__])
_Devices: TypeAlias = "np.recarray[Any, np.dtype[np.void]]"


# One device


@_compiled
def _at_rate(device: _Device, rate: float) -> tuple[float, float, float, float, float]:
    """The least energy for the time in which a second more would save ``rate`` joules.

    Returns
    -------
    f, p, time, energy : float
        The decision, by Theorems 2 and 3 at the price ``1 / rate``, and what it takes.
    fall : float
        How much the time falls with the rate [s/W].
    """
    price = 1.0 / rate
    f = best_f(price, device.capacitance, device.f_min, device.f_max)
    p, log = best_p(price, device.snr, device.p_min, device.p_max, device.log_max)
    compute, upload = device.cycles / f, device.upload / log
    energy = 0.5 * device.capacitance * device.cycles * f * f + p * upload
    fall = 0.0
    if device.f_min < f < device.f_max:
        fall += compute / (3.0 * rate)
    if device.p_min < p < device.p_max:
        fall += upload * device.snr / (log * log * (1.0 + device.snr * p))
    return f, p, compute + upload + device.download, energy, fall


@_compiled
def _on_time(device: _Device, deadline: float) -> tuple[float, float]:
    """The rate at which a device finishes by the deadline, and how it falls with the deadline.

    Newton's method on the rate to the power -1/3, in which the time is linear while p rests at
    an end of its range.
    """
    if deadline >= device.most:
        return 0.0, 0.0
    low, high = device.low, device.high
    if deadline <= device.least:
        return high, 0.0
    if abs(deadline - device.gap) <= 1e-14 * deadline:
        return device.gap_high, 0.0
    if deadline < device.gap:
        low = device.gap_high
    elif device.gap > 0.0:
        high = device.gap_low
    rate = device.rate
    if not low < rate < high:
        rate = math.sqrt(low) * math.sqrt(high)
    fall = 0.0
    for _ in range(100):
        _, _, time, _, fall = _at_rate(device, rate)
        if time > deadline:
            low = rate
        else:
            high = rate
        root = 1.0 - (time - deadline) / (3.0 * rate * fall)
        new = rate / (root * root * root)
        if root > 0.0 and low <= new <= high:
            rate = new
            if abs(root - 1.0) <= 1e-7:  # the next step would be about its square
                break
        else:
            rate = math.sqrt(low) * math.sqrt(high)
            if high <= low * (1.0 + 1e-15):
                break
    return rate, 1.0 / fall if fall > 0.0 else 0.0


@_compiled
def _devices(q: FloatArray, state: _State, system: System) -> _Devices:
    """The devices of a round, but for what follows from q."""
    devices: _Devices = np.zeros(q.size, _DEVICE)  # type: ignore[assignment]
    for n in range(q.size):
        device = devices[n]
        snr, alpha = state.snr[n], system.capacitance[n]
        device.snr, device.log_max = snr, state.log_max[n]
        device.upload, device.download = system.upload, system.download[n]
        device.cycles, device.capacitance = system.cycles[n], alpha
        device.f_min, device.f_max = system.f_min[n], system.f_max[n]
        device.p_min, device.p_max = system.p_min[n], system.p_max[n]
        _, _, device.least, _, _ = _at_rate(device, math.inf)
        _, _, device.most, _, _ = _at_rate(device, 0.0)
        low, high = math.inf, 0.0
        if device.f_min < device.f_max:
            low, high = alpha * device.f_min**3, alpha * device.f_max**3
        if device.p_min < device.p_max:
            x = snr * device.p_min
            low_p = power_equation(x, math.log1p(x)) / snr
            high_p = power_equation(snr * device.p_max, device.log_max) / snr
            if high < low_p or high_p < low < math.inf:
                device.gap_low, device.gap_high = min(high, high_p), max(low, low_p)
                between = math.sqrt(device.gap_low) * math.sqrt(device.gap_high)
                _, _, device.gap, _, _ = _at_rate(device, between)
            low, high = min(low, low_p), max(high, high_p)
        device.low, device.high = min(low, high), high  # 0 where it has no choice
    return devices


# Blocks of devices


@_compiled
def _weight(start: float, mass: float, cohort_size: int) -> float:
    """``(start + mass)^K - start^K``, without cancellation."""
    end, power, total = start + mass, 1.0, 1.0
    for _ in range(cohort_size - 1):
        power *= start
        total = total * end + power
    return mass * total


@_compiled
def _saved(block: IntArray, deadline: float, devices: _Devices) -> tuple[float, float]:
    """What a second more saves a block at a deadline, and how that falls; writes the shares."""
    total, bend = 0.0, 0.0
    for n in block:
        device = devices[n]
        device.rate, fall = _on_time(device, deadline)
        device.theta = device.cost * device.rate
        total += device.theta
        bend += device.cost * fall
    return total, bend


@_compiled
def _even_deadline(
    block: IntArray, worth: float, least: float, guess: float, devices: _Devices
) -> float:
    """The deadline from ``least`` on at which a second more saves a block ``worth``, or less.

    A device that cannot meet it counts with what it saves at its least time. Writes the shares.
    """
    low, high = least, 0.0
    for n in block:
        high = max(high, devices[n].most)
    tau = min(max(guess, low), high)
    for _ in range(100):
        total, bend = _saved(block, tau, devices)
        if abs(total - worth) <= 1e-12 * worth:
            break
        if total > worth:
            low = tau
        else:
            high = tau
            if tau == least:
                break
        # The saving to the power -1/3 is nearly linear: computing alone would make it so.
        root = float(np.cbrt(worth / total))
        new = tau - 3.0 * total * (root - 1.0) / (bend * root)
        if not low < new < high:
            # The least is tried at once; so it is where nothing is saved, and new is NaN.
            new = least if low == least < tau and not new > least else 0.5 * (low + high)
        if abs(new - tau) <= 1e-13 * tau or high - low <= 1e-13 * high:
            break
        tau = new
    return tau


@_compiled
def _best_deadline(block: IntArray, worth: float, guess: float, devices: _Devices) -> float:
    """The best common deadline of a block if a second costs ``worth``.

    Writes the devices' rates and worths of time, which sum to ``worth``.
    """
    if block.size == 1:
        device = devices[block[0]]
        device.rate, device.theta = worth / device.cost, worth
        _, _, time, _, _ = _at_rate(device, device.rate)
        return float(time)
    least = 0.0
    for n in block:
        least = max(least, devices[n].least)
    tau = _even_deadline(block, worth, least, guess, devices)
    if tau <= least * (1.0 + _SAME_TIME):
        tau = least
        total, _ = _saved(block, tau, devices)
        if total <= worth:
            _share_rest(block, worth - total, least, devices)
            return tau
    _share_jump(block, worth, tau, devices)
    return float(tau)


@_compiled
def _share_rest(block: IntArray, rest: float, least: float, devices: _Devices) -> None:
    """Give the rest of the worth to those devices of a block that can be no faster."""
    mass = 0.0
    for n in block:
        if devices[n].least >= least * (1.0 - _SAME_TIME):
            mass += devices[n].q
    for n in block:
        if devices[n].least >= least * (1.0 - _SAME_TIME):
            devices[n].theta += rest * devices[n].q / mass


@_compiled
def _share_jump(block: IntArray, worth: float, tau: float, devices: _Devices) -> None:
    """Where a device's saving jumps at the deadline, set it so that the block's is ``worth``."""
    total, span = 0.0, 0.0
    for n in block:
        low, high = _jump(devices[n], tau)
        total += devices[n].cost * low
        span += devices[n].cost * (high - low)
    if span > 0.0:
        part = min(max((worth - total) / span, 0.0), 1.0)
        for n in block:
            low, high = _jump(devices[n], tau)
            devices[n].rate = low + part * (high - low)
            devices[n].theta = devices[n].cost * devices[n].rate


@_compiled
def _jump(device: _Device, tau: float) -> tuple[float, float]:
    """What a second more and a second less are worth to a device at its deadline."""
    if abs(tau - device.gap) <= _SAME_TIME * tau:
        return device.gap_low, device.gap_high
    if abs(tau - device.most) <= _SAME_TIME * tau:
        return 0.0, device.low
    return device.rate, device.rate


@_compiled
def _split(block: IntArray, start: float, V: float, cohort_size: int, devices: _Devices) -> int:
    """Sort a block by worth over probability, and give where to split it; its size for nowhere."""
    block[:] = block[np.argsort(devices.theta[block] / devices.q[block])]
    mass, theta, worst, at = 0.0, 0.0, 0.0, block.size
    for i in range(block.size):
        mass += devices[block[i]].q
        theta += devices[block[i]].theta
        lacking = V * _weight(start, mass, cohort_size) - theta
        if i < block.size - 1 and lacking > worst:
            worst, at = lacking, i + 1
    return at if worst > _LACKING * theta else int(block.size)


@_compiled
def _first_blocks(
    order: IntArray,
    first: IntArray,
    deadline: FloatArray,
    guess: float,
    V: float,
    cohort_size: int,
    devices: _Devices,
) -> None:
    """Guess the blocks: the fast devices together, and each of the slow ones for itself."""
    least = math.inf
    for n in order:
        least = min(least, devices[n].least)
    common = _even_deadline(order, V, least, guess, devices)
    for n in order:
        device = devices[n]
        _, _, deadline[n], _, _ = _at_rate(device, V * cohort_size * device.q / device.cost)
    order[:] = np.argsort(deadline)
    deadline[:] = deadline[order]
    first[:] = deadline > common
    first[0], deadline[0] = 1, common


@_compiled
def _share_time(
    order: IntArray,
    first: IntArray,
    deadline: FloatArray,
    V: float,
    cohort_size: int,
    devices: _Devices,
) -> None:
    """Find the best time of every device for its q.

    The devices stand in ``order``; a block begins at i where ``first[i]`` is 1, with its time in
    ``deadline[i]``. It starts from the blocks as they are, and leaves the best.
    """
    size = order.size
    start = np.zeros(size + 1)
    fresh = first.copy()  # where a block begins that has to be solved
    for _ in range(2 * size):
        for i in range(size):
            start[i + 1] = start[i] + devices[order[i]].q
        changed = False
        # Solve, and pool with those before it what would finish earlier than they.
        solved = False
        while not solved:
            begin = 0
            while begin < size:
                end = begin + 1
                while end < size and first[end] == 0:
                    end += 1
                if fresh[begin] == 1:
                    block = order[begin:end]
                    mass = 0.0
                    for n in block:
                        mass += devices[n].q
                    worth = V * _weight(start[begin], mass, cohort_size)
                    deadline[begin] = _best_deadline(block, worth, deadline[begin], devices)
                    fresh[begin] = 2
                begin = end
            solved = True
            begin, last = 0, deadline[0]
            for i in range(1, size):
                if first[i] == 1:
                    if last > deadline[i] * (1.0 + _SAME_TIME):
                        first[i], fresh[i], fresh[begin] = 0, 0, 1
                        solved = False
                    else:
                        begin = i
                    last = deadline[i]
        # Split what is better apart.
        begin = 0
        while begin < size:
            end = begin + 1
            while end < size and first[end] == 0:
                end += 1
            if fresh[begin] == 2:
                fresh[begin] = 0
                at = end
                if end - begin > 1:
                    at = begin + _split(order[begin:end], start[begin], V, cohort_size, devices)
                if at < end:
                    first[at], fresh[at], fresh[begin] = 1, 1, 1
                    deadline[at] = deadline[begin]
                    changed = True
            begin = end
        if not changed:
            break


# The alternation


@_compiled
def _objective(
    order: IntArray,
    time: FloatArray,
    energy: FloatArray,
    q: FloatArray,
    state: _State,
    system: System,
) -> float:
    """P2 with E[max T] in the place of the proxy; the devices in the order of their times."""
    objective, start = 0.0, 0.0
    for n in order:
        ratio, _ = _participation(q[n], system.cohort_size)
        objective += system.V * time[n] * _weight(start, q[n], system.cohort_size)
        objective += system.error[n] / q[n]
        objective += state.queue[n] * (q[n] * ratio * energy[n] - system.budget[n])
        start += q[n]
    return objective


@_compiled
def _slopes(
    order: IntArray,
    time: FloatArray,
    energy: FloatArray,
    q: FloatArray,
    paper: bool,
    state: _State,
    system: System,
    slope: FloatArray,
) -> None:
    """Write the slopes of the concave part of the objective in q.

    That of E[max T] is a constant less K sum_(i >= n) (T_(i+1) - T_(i)) F_i^(K-1). On the simplex
    the constant does not matter: the sum is built up from the shortest time.
    """
    start, latency, last = 0.0, time[order[0]], time[order[0]]
    for n in order:
        _, power = _participation(1.0 - start, system.cohort_size)
        latency += (time[n] - last) * system.cohort_size * power
        last = time[n]
        queue = 1.0 if paper else state.queue[n]
        slope[n] = _marginal_cost(q[n], latency, energy[n], queue, system)
        start += q[n]


@_compiled
def _descend(
    state: _State,
    system: System,
    options: Options,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[float, int]:
    """Alternate from f, p and q until the decision rests; they hold the result.

    Returns the objective and the number of iterations.
    """
    size, cohort_size = q.size, system.cohort_size
    time, energy = np.empty(size), np.empty(size)
    start, previous, slope = np.empty(size), np.empty(size), np.empty(size)
    root, work = np.sqrt(_positive_error(system)), np.empty(size)
    devices = _devices(q, state, system)
    order, first, deadline = np.arange(size), np.zeros(size, np.int64), np.zeros(size)
    moved, nu, iterations = math.inf, -math.inf, 0
    while moved > options.tolerance and iterations < options.max_iterations:
        iterations += 1
        for n in range(size):
            ratio, _ = _participation(q[n], cohort_size)
            devices[n].q, devices[n].cost = q[n], state.queue[n] * q[n] * ratio
        if iterations == 1:
            guess = np.sum(q * (system.cycles / f + system.upload / np.log1p(state.snr * p)))
            _first_blocks(order, first, deadline, guess, system.V, cohort_size, devices)
        _share_time(order, first, deadline, system.V, cohort_size, devices)
        moved = 0.0
        for n in range(size):
            f_old, p_old = f[n], p[n]
            f[n], p[n], time[n], energy[n], _ = _at_rate(devices[n], devices[n].rate)
            if f[n] != f_old:
                moved += ((f[n] - f_old) / (system.f_max[n] - system.f_min[n])) ** 2
            if p[n] != p_old:
                moved += ((p[n] - p_old) / (system.p_max[n] - system.p_min[n])) ** 2
        start[:] = q
        for _ in range(options.max_iterations):
            _slopes(order, time, energy, q, options.paper, state, system, slope)
            previous[:] = q
            nu = _minimise_on_simplex(slope, root, q, work, nu)
            if math.sqrt(np.sum((q - previous) ** 2)) <= options.tolerance:
                break
        moved = math.sqrt(moved + np.sum((q - start) ** 2))
    return _objective(order, time, energy, q, state, system), iterations


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
    """Solve by `policies.p2.kernel.solve_row`, then go on from there; f, p and q hold the result.

    Returns the objective and the number of iterations after the proxy's solution.
    """
    _solve_proxy(gains, queue, system, options, f, p, q)
    state = _state(gains, queue, system)
    time, energy = np.empty(q.size), np.empty(q.size)
    for n in range(q.size):
        upload = system.upload / math.log1p(state.snr[n] * p[n])
        time[n] = system.cycles[n] / f[n] + upload + system.download[n]
        energy[n] = 0.5 * system.capacitance[n] * system.cycles[n] * f[n] ** 2 + p[n] * upload
    objective = _objective(np.argsort(time), time, energy, q, state, system)
    new_f, new_p, new_q = f.copy(), p.copy(), q.copy()
    new, iterations = _descend(state, system, options, new_f, new_p, new_q)
    if new < objective:  # not so for NaN, beyond the range of floats
        objective = new
        f[:], p[:], q[:] = new_f, new_p, new_q
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

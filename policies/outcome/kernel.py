"""The outcome problem compiled: the search for the best cohort and its deadline.

A device that must finish by the deadline tau and spends as little energy as it can has one price
of energy in time at which Theorems 2 and 3 give its f and p. Its least energy e_n(tau) is convex
and decreasing, and for every price y the device's minimum of T + y E gives a tangent of it:

    e_n(tau) >= E(y) + (T(y) - tau) / y.

With costs c_n(tau) = Q_n e_n(tau) - Z_n the round's problem is

    minimise over tau  V tau + (sum of the K smallest c_n(tau) below zero, or the least of all).

Put a tangent in the place of each c_n: for a fixed cohort the sum is linear in tau, so its least
value over the cohorts is concave, and on an interval it is smallest at an end. The search covers
the axis of tau with intervals on which that bound reaches the best value found, less the
tolerance. A bound is off by the square of an interval's length, so a few dozen do. A tangent
taken elsewhere stays valid: a device's tangent is renewed only where its old one would put it
into the cohort.

A gain that is not known, but of which the law is, makes the times and energies of a device expected
ones; `policies.p2.kernel` says why e_n stays convex. V then weighs the longest of the cohort's
expected times.

What concerns one device stands in `policies.outcome.device`. Numba caches a compiled function by
the date of the file it stands in: after a change of that file, or of `policies.p2.kernel`, change
this file too, or remove its ``__pycache__``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange

from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.outcome.device import log_of, on_time, place_from, place_of, power_at
from policies.p2.kernel import (
    Device,
    Gains,
    Law,
    System,
    at_most_power,
    best_at,
    device_of,
    law_at,
    law_of,
    log_at,
    row_of,
    spent,
)

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions.
_compiled = njit(cache=True, error_model="numpy")
_compiled_parallel = njit(cache=True, error_model="numpy", parallel=True)

# Intervals that the search may spend; what is then left open gets a plain bound.
_MOST_INTERVALS = 2000
# Relative rounding error of a bound, as a share of the magnitudes that are added up in it.
_ROUNDING = 1e-13


class _State(NamedTuple):
    """The state of a round; arrays of shape (N,)."""

    energy_queue: FloatArray  # Q
    participation_queue: FloatArray  # Z
    snr: FloatArray  # h / N0; of a law (N, J)
    log_min: FloatArray  # ln(1 + snr p_min), or the harmonic mean of the nodes'
    log_max: FloatArray  # ln(1 + snr p_max), likewise
    rate_max: FloatArray  # energy saved by a second more to upload at p_max
    least: FloatArray  # time at f_max and p_max
    law: Law | tuple[()]


class _Tangents(NamedTuple):
    """Lines ``value + slope (time - tau)`` below the costs c_n(tau); arrays of shape (N,)."""

    value: FloatArray
    slope: FloatArray  # Q / y, not negative
    time: FloatArray
    place: FloatArray  # of the power, see `on_time`, where the search for the next root starts
    renewed: FloatArray  # the deadline for which the tangent was last renewed


class _Cohort(NamedTuple):
    """The cheapest devices found, a heap with the dearest on top; arrays of shape (K,)."""

    device: IntArray
    cost: FloatArray


class _Problem(NamedTuple):
    """The problem of a round, and the working memory of its search."""

    V: float
    state: _State
    system: System
    tangents: _Tangents
    cohort: _Cohort


# The state


@_compiled
def _state(
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    system: System,
) -> _State:
    snr = gains.gain / system.noise
    law = law_of(snr, gains.probability, system)
    log_min = log_at(snr, law, system.p_min)
    log_max, rate_max = at_most_power(snr, law, system)
    least = system.cycles / system.f_max + system.upload / log_max + system.download
    return _State(energy_queue, participation_queue, snr, log_min, log_max, rate_max, least, law)


@_compiled
def _device(n: int, state: _State, system: System) -> Device:
    device: Device = device_of(n, state.snr, state.log_max, state.rate_max, system)
    return device


@_compiled
def _on_time(
    n: int, deadline: float, place: float, state: _State, system: System
) -> tuple[float, float, float, float]:
    """`on_time` of device n."""
    device, law = _device(n, state, system), law_at(n, state.law)
    f, new, rate, bend = on_time(deadline, place, state.least[n], state.log_min[n], device, law)
    return f, new, rate, bend


@_compiled
def _tangent(n: int, rate: float, state: _State, system: System) -> tuple[float, float, float]:
    """Cost, time and place of device n where it minimises ``T + E / rate``.

    By duality these bound its cost from below at every deadline, whatever the rate.
    """
    _, p, time, energy, log = best_at(1.0 / rate, _device(n, state, system), law_at(n, state.law))
    cost = state.energy_queue[n] * energy - state.participation_queue[n]
    return cost, time, place_from(p, log, state.law)


# The cohort


@_compiled
def _bar(size: int, cohort: _Cohort) -> float:
    """The cost below which a device improves a cohort of the given size."""
    if size == 0:
        return math.inf
    if size == len(cohort.cost) or cohort.cost[0] >= 0.0:
        return float(cohort.cost[0])
    return 0.0


@_compiled
def _offer(n: int, cost: float, size: int, cohort: _Cohort) -> int:
    """Take in device n, which improves the cohort, and give the new size."""
    device, costs = cohort.device, cohort.cost
    if size == len(costs) or (size == 1 and costs[0] >= 0.0):  # in the place of the dearest
        at = 0
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and costs[child + 1] > costs[child]:
                child += 1
            if costs[child] <= cost:
                break
            device[at], costs[at] = device[child], costs[child]
            at = child
    else:
        at = size
        size += 1
        while at > 0 and costs[(at - 1) // 2] < cost:
            parent = (at - 1) // 2
            device[at], costs[at] = device[parent], costs[parent]
            at = parent
    device[at], costs[at] = n, cost
    return size


@_compiled
def _renew(n: int, at: float, tau: float, problem: _Problem) -> float:
    """Take the tangent of device n at the deadline ``at`` if it is higher at tau; its cost there.

    For a device that cannot meet that deadline it is the one at its least time.
    """
    _, state, system, tangents, _ = problem
    _, place, rate, _ = _on_time(n, at, tangents.place[n], state, system)
    tangents.place[n], tangents.renewed[n] = place, at
    value, time, _ = _tangent(n, rate, state, system)
    slope = state.energy_queue[n] * rate
    old = tangents.value[n] + tangents.slope[n] * (tangents.time[n] - tau)
    new = value + slope * (time - tau)
    if old > new:
        return float(old)
    tangents.value[n], tangents.slope[n], tangents.time[n] = value, slope, time
    return float(new)


@_compiled
def _select(tau: float, latest: float, at: float, problem: _Problem) -> tuple[float, float, int]:
    """The best cohort for the deadline tau with tangents in the place of the costs.

    Only devices whose least time is at most ``latest`` take part. A tangent that puts its device
    into the cohort is first renewed at the deadline ``at``.

    Returns
    -------
    value : float
        ``V tau`` and the costs of the cohort, less what rounding may have added.
    slope : float
        Its derivative with respect to tau.
    size : int
        Number of devices in the cohort.
    """
    V, state, _, tangents, cohort = problem
    size, bar = 0, math.inf
    for n in range(len(state.least)):
        if state.least[n] > latest:
            continue
        cost = tangents.value[n] + tangents.slope[n] * (tangents.time[n] - tau)
        if cost >= bar:  # not so for NaN, which then shows in the value
            continue
        if tangents.renewed[n] != at:
            cost = _renew(n, at, tau, problem)
            if cost >= bar:
                continue
        size = _offer(n, cost, size, cohort)
        bar = _bar(size, cohort)
    value, slope, magnitude = V * tau, V, V * tau
    for member in range(size):
        n = cohort.device[member]
        value += cohort.cost[member]
        slope -= tangents.slope[n]
        magnitude += abs(tangents.value[n]) + 2.0 * abs(state.participation_queue[n])
        magnitude += tangents.slope[n] * (tangents.time[n] + tau)
    return value - _ROUNDING * magnitude, slope, size


@_compiled
def _best_deadline(size: int, tau: float, problem: _Problem) -> float:
    """The deadline that is best for the cohort found last; the search starts at tau.

    There the energy that the cohort saves by a second more is worth V. Newton's method on that
    worth to the power -1/3, which is nearly linear: computing alone would make it so.
    """
    V, state, system, tangents, cohort = problem
    least = 0.0
    for member in range(size):
        least = max(least, state.least[cohort.device[member]])
    low, high = least, math.inf
    above = False  # whether the optimum is known to be above low
    tau = max(tau, least)
    for _ in range(100):
        saved, bend = 0.0, 0.0
        for member in range(size):
            n = cohort.device[member]
            _, tangents.place[n], rate, fall = _on_time(n, tau, tangents.place[n], state, system)
            saved += state.energy_queue[n] * rate
            bend += state.energy_queue[n] * fall
        if saved >= V:
            low, above = tau, True
        elif tau == least:
            return tau
        else:
            high = tau
        ratio = float(np.cbrt(V / saved))
        new = tau - 3.0 * saved * (ratio - 1.0) / (bend * ratio)
        if not (low <= new <= high and new < math.inf):  # also where the worth jumps or vanishes
            if not above and not new > low:
                new = least
            else:
                new = 2.0 * low if high == math.inf else 0.5 * (low + high)
        if abs(new - tau) <= 1e-9 * tau:
            return new
        tau = new
    return tau


# The search


@_compiled
def _first_tangents(problem: _Problem) -> None:
    """Tangents at the prices at which K devices would share the worth of time evenly."""
    V, state, system, tangents, cohort = problem
    share = V / len(cohort.cost)
    for n in range(len(state.least)):
        rate = share / state.energy_queue[n]
        value, time, place = _tangent(n, rate, state, system)
        tangents.value[n], tangents.slope[n], tangents.time[n] = value, share, time
        tangents.place[n] = place
        tangents.renewed[n] = -1.0


@_compiled
def _least_costs(problem: _Problem) -> float:
    """What the best cohort costs beside its time if it has all the time it wants."""
    _, state, system, _, cohort = problem
    size = 0
    for n in range(len(state.least)):
        device = _device(n, state, system)
        _, energy = spent(
            device.f_min,
            device.p_min,
            state.log_min[n],
            device.cycles,
            device.upload,
            device.download,
            device.capacitance,
        )
        cost = state.energy_queue[n] * energy - state.participation_queue[n]
        if not cost >= _bar(size, cohort):
            size = _offer(n, cost, size, cohort)
    total = 0.0
    for member in range(size):
        queue = abs(state.participation_queue[cohort.device[member]])
        total += cohort.cost[member] - _ROUNDING * (abs(cohort.cost[member]) + queue)
    return total


@_compiled
def _descend(tau: float, best: float, problem: _Problem) -> tuple[float, float]:
    """Alternate between the best cohort for a deadline and the best deadline for a cohort.

    Returns the best deadline and the value there, if it is below ``best``.
    """
    best_tau = tau
    for _ in range(100):
        value, _, size = _select(tau, tau, tau, problem)
        if not value < best:
            break
        small = best - value <= 1e-12 * abs(value)
        best, best_tau = value, tau
        if small:
            break
        tau = _best_deadline(size, tau, problem)
    return best_tau, best


@_compiled
def _reach_right(
    at: float, end: float, goal: float, aim: float, problem: _Problem
) -> tuple[float, float]:
    """How far to the right, at most to ``end``, the bound with tangents at ``at`` meets the goal.

    Newton's method on the bound, which is concave: it comes from beyond. ``aim`` is a little
    above the goal, so that the method ends. Returns the place, and the bound up to it.
    """
    _, state, _, _, cohort = problem
    value = math.inf
    for _ in range(100):
        value, slope, _ = _select(end, end, at, problem)
        if value >= goal or end <= at:
            break
        end = end - (value - aim) / slope if slope < 0.0 else at
        end = max(end, at)
    # At `at` the tangents of those that come in only later count as well: they may be too low.
    while end > at:
        start, _, size = _select(at, end, at, problem)
        if start >= goal:
            return end, min(start, value)
        first = math.inf
        for member in range(size):
            least = state.least[cohort.device[member]]
            if least > at:
                first = min(first, least)
        end = np.nextafter(first, at) if first <= end else at
    return at, math.inf


@_compiled
def _reach_left(
    at: float, end: float, goal: float, aim: float, problem: _Problem
) -> tuple[float, float]:
    """The same to the left, where nobody comes in."""
    for _ in range(100):
        value, slope, _ = _select(end, at, at, problem)
        if value >= goal:
            return end, value
        end = end - (value - aim) / slope if slope > 0.0 else at
        if not end < at:
            break
    return at, math.inf


@_compiled
def _search(problem: _Problem, tolerance: float) -> tuple[float, float]:
    """Give the best deadline and a lower bound on the optimal value."""
    V, state, _, tangents, cohort = problem
    _first_tangents(problem)
    _, _, size = _select(tangents.time.max(), math.inf, -1.0, problem)
    tau = 0.0
    for member in range(size):
        tau = max(tau, tangents.time[cohort.device[member]])
    tau, best = _descend(_best_deadline(size, tau, problem), math.inf, problem)
    floor = _least_costs(problem)
    least = state.least.min()
    if not (abs(best) < math.inf and abs(floor) < math.inf):
        return tau, -math.inf  # beyond the range of floats nothing is proven
    lower, at = best, tau
    stack = np.empty((128, 2))  # intervals of deadlines
    stack[0] = least, math.inf
    size, spent = 1, 0
    while size > 0:
        size -= 1
        a, b = stack[size]
        b = min(b, (1.0 + _ROUNDING) * (best - floor) / V)  # beyond, time alone costs too much
        if not a <= b:
            continue
        spent += 1
        if b - a <= 1e-12 * b or size + 2 > len(stack) or spent > _MOST_INTERVALS:
            value, _, _ = _select(b, b, b, problem)
            lower = min(lower, value - V * (b - a))  # costs fall with the deadline
            continue
        if spent > 1:
            at = 0.5 * (a + b)
        value, _, _ = _select(at, at, at, problem)
        if value < best:
            tau, best = _descend(at, best, problem)
            if a <= tau <= b:
                at = tau
                _select(at, at, at, problem)
        slack = tolerance * max(abs(best), V * least)
        goal, aim = best - slack, best - 0.9 * slack
        right, bound = _reach_right(at, b, goal, aim, problem)
        lower = min(lower, bound)
        left, bound = _reach_left(at, a, goal, aim, problem)
        lower = min(lower, bound)
        if a < left:
            stack[size] = a, left
            size += 1
        if right < b:
            stack[size] = right, b
            size += 1
    return tau, lower


@_compiled
def _problem(
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    system: System,
) -> _Problem:
    num_devices = len(energy_queue)
    size = min(system.cohort_size, num_devices)
    return _Problem(
        V,
        _state(gains, energy_queue, participation_queue, system),
        system,
        _Tangents(
            np.empty(num_devices),
            np.empty(num_devices),
            np.empty(num_devices),
            np.empty(num_devices),
            np.empty(num_devices),
        ),
        _Cohort(np.empty(size, dtype=np.int64), np.empty(size)),
    )


# Rounds and batches of rounds


@_compiled
def solve_row(
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    tolerance: float,
    system: System,
    f: FloatArray,
    p: FloatArray,
    participates: BoolArray,
) -> tuple[float, float, float]:
    """Solve the problem of a round; f, p and participates hold the decision.

    Returns the objective, a lower bound on its least value, and the time of the round.
    """
    problem = _problem(gains, energy_queue, participation_queue, V, system)
    _, state, _, tangents, cohort = problem
    tau, lower = _search(problem, tolerance)
    tangents.renewed[:] = -1.0
    _, _, size = _select(tau, tau, tau, problem)
    participates[:] = False
    deadline, objective = 0.0, 0.0
    for member in range(size):
        n = cohort.device[member]
        participates[n] = True
        device, law = _device(n, state, system), law_at(n, state.law)
        f[n], place, _, _ = _on_time(n, tau, tangents.place[n], state, system)
        p[n] = power_at(place, device, law)
        log = log_of(place_of(p[n], device, law), device, law)
        time, energy = spent(
            f[n], p[n], log, device.cycles, device.upload, device.download, device.capacitance
        )
        deadline = max(deadline, time)
        objective += energy_queue[n] * energy - participation_queue[n]
    for n in range(len(f)):
        if not participates[n]:
            f[n], place, _, _ = _on_time(n, deadline, tangents.place[n], state, system)
            p[n] = power_at(place, _device(n, state, system), law_at(n, state.law))
    objective += V * deadline
    return objective, min(lower, objective), deadline


@_compiled_parallel
def solve_rows(
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    tolerance: float,
    system: System,
    f: FloatArray,
    p: FloatArray,
    participates: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Solve each row of a batch by `solve_row`, on all cores."""
    rows = len(energy_queue)
    objective, lower, deadline = np.empty(rows), np.empty(rows), np.empty(rows)
    for row in prange(rows):
        objective[row], lower[row], deadline[row] = solve_row(
            row_of(gains.gain, gains.probability, row),
            energy_queue[row],
            participation_queue[row],
            V,
            tolerance,
            system,
            f[row],
            p[row],
            participates[row],
        )
    return objective, lower, deadline


@_compiled_parallel
def bound_rows(
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    tolerance: float,
    system: System,
) -> FloatArray:
    """Bound the least value of each row of a batch from below, on all cores."""
    lower = np.empty(len(energy_queue))
    for row in prange(len(energy_queue)):
        problem = _problem(
            row_of(gains.gain, gains.probability, row),
            energy_queue[row],
            participation_queue[row],
            V,
            system,
        )
        _, lower[row] = _search(problem, tolerance)
    return lower


@_compiled
def meet_rows(
    gains: Gains,
    energy_queue: FloatArray,
    participates: BoolArray,
    V: float,
    system: System,
    f: FloatArray,
    p: FloatArray,
) -> None:
    """Give the best f and p of a given cohort, for each row of a batch.

    The cohort's time and energy are ``V max T + sum Q E`` with the least energy that finishes by
    a deadline, which is convex in the deadline.
    """
    for row in range(len(f)):
        problem = _problem(
            row_of(gains.gain, gains.probability, row),
            energy_queue[row],
            energy_queue[row],
            V,
            system,
        )
        _, state, _, tangents, cohort = problem
        tangents.place[:] = state.log_max
        size = 0
        for n in range(f.shape[1]):
            if participates[row, n]:
                cohort.device[size] = n
                size += 1
        deadline = _best_deadline(size, 0.0, problem)
        for n in range(f.shape[1]):
            f[row, n], place, _, _ = _on_time(n, deadline, tangents.place[n], state, system)
            p[row, n] = power_at(place, _device(n, state, system), law_at(n, state.law))


# Rounds of which some devices are not there


@_compiled
def _system_of(there: IntArray, system: System) -> System:
    """The system of some devices alone, with the same K."""
    return System(
        system.V,
        system.cohort_size,
        system.noise,
        system.upload,
        system.error[there],
        system.cycles[there],
        system.download[there],
        system.capacitance[there],
        system.f_min[there],
        system.f_max[there],
        system.p_min[there],
        system.p_max[there],
        system.budget[there],
    )


@_compiled
def _some_of(gain: FloatArray, probability: FloatArray | None, row: int, there: IntArray) -> Gains:
    """Some devices of one row of a batch."""
    if gain.ndim == 2:
        return Gains(gain[row][there], None)
    return Gains(gain[row][there], probability[row][there])  # type: ignore[index]


@_compiled_parallel
def solve_rows_among(
    available: BoolArray,
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    tolerance: float,
    system: System,
    f: FloatArray,
    p: FloatArray,
    participates: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Solve each row of a batch by `solve_row`, for the system of those that are there."""
    rows = len(energy_queue)
    objective, lower, deadline = np.empty(rows), np.empty(rows), np.empty(rows)
    for row in prange(rows):
        there = np.flatnonzero(available[row])
        own_f, own_p = np.empty(len(there)), np.empty(len(there))
        taking = np.empty(len(there), dtype=np.bool_)
        objective[row], lower[row], deadline[row] = solve_row(
            _some_of(gains.gain, gains.probability, row, there),
            energy_queue[row][there],
            participation_queue[row][there],
            V,
            tolerance,
            _system_of(there, system),
            own_f,
            own_p,
            taking,
        )
        state = _state(
            row_of(gains.gain, gains.probability, row),
            energy_queue[row],
            participation_queue[row],
            system,
        )
        participates[row] = False
        for n in range(len(state.least)):
            if not available[row, n]:
                start = state.log_max[n]
                f[row, n], place, _, _ = _on_time(n, deadline[row], start, state, system)
                p[row, n] = power_at(place, _device(n, state, system), law_at(n, state.law))
        for index in range(len(there)):
            n = there[index]
            f[row, n], p[row, n], participates[row, n] = own_f[index], own_p[index], taking[index]
    return objective, lower, deadline


@_compiled_parallel
def bound_rows_among(
    available: BoolArray,
    gains: Gains,
    energy_queue: FloatArray,
    participation_queue: FloatArray,
    V: float,
    tolerance: float,
    system: System,
) -> FloatArray:
    """Bound the least value of each row from below, for the system of those that are there."""
    lower = np.empty(len(energy_queue))
    for row in prange(len(energy_queue)):
        there = np.flatnonzero(available[row])
        problem = _problem(
            _some_of(gains.gain, gains.probability, row, there),
            energy_queue[row][there],
            participation_queue[row][there],
            V,
            _system_of(there, system),
        )
        _, lower[row] = _search(problem, tolerance)
    return lower

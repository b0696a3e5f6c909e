"""P2, compiled: Algorithm 2 and the dual bound.

`policies.solvers.device` has a device's best f and p at a price of energy. This file uses two
facts. The ratio pi_n / q_n = sum_{k<K} (1 - q_n)^k avoids cancellation, and makes the best f and p
functions of one number, the price of energy. And for a single device,

    m_n(q) = min over f, p of  V q T_n + Q_n pi(q) E_n

is a minimum of concave functions of q, hence concave: its tangents bound it from above, as in the
SUM step of Algorithm 2, and its chords bound it from below, as in the certificate.

Algorithm 2 loops over all devices without calls or branches, so the processor computes several
devices at once. Their number changes no result, because the order of additions is fixed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.allocation import LEAST_Q
from fl_edge_env.typing import FloatArray
from policies.solvers.compiled import compiled, entry, inlined, merged
from policies.solvers.device import (
    LOG_MAX,
    QUEUE,
    RATE_MAX,
    begin_round,
    begin_table,
    best_at,
    best_f,
    best_p,
    spent,
)
from policies.solvers.inputs import (
    BUDGET,
    CAPACITANCE,
    CYCLES,
    ERROR,
    F_MAX,
    F_MIN,
    F_SCALE,
    P_MAX,
    P_MIN,
    P_SCALE,
    Rounds,
)

# Algorithm 2 and its SUM steps stop when the decision moves by less, with f and p scaled to their
# ranges, or after this many iterations.
_STILL, _MOST_ITERATIONS = 1e-8, 100
# The certificate: its required accuracy, the number of the finest parts, and the most duals.
_CLOSE, _PARTS, _MOST_DUALS = 1e-4, 256, 100


class Problem(NamedTuple):
    """P2 of one round, and the working memory of its solution."""

    V: float
    cohort_size: int
    t: FloatArray  # the table of the devices
    # For the last q, (N,): pi/q and (d pi/dq) / K, and each device's time and energy at the best f
    # and p.
    ratio: FloatArray
    power: FloatArray
    time: FloatArray
    energy: FloatArray


class Decisions(NamedTuple):
    """Decisions of a batch of rounds, and their values."""

    f: FloatArray  # (B, N)
    p: FloatArray  # (B, N)
    q: FloatArray  # (B, N)
    objective: FloatArray  # (B,)


class Bounds(NamedTuple):
    """Lower bounds on P2, and the minimisers on both sides of the best multiplier."""

    q_low: FloatArray  # (B, N)
    q_high: FloatArray  # (B, N)
    bound: FloatArray  # (B,)


@compiled
def _new_problem(rounds: Rounds) -> Problem:
    """Allocate the memory that the rounds of a batch use in turn."""
    memory = np.empty((4, rounds.constants.shape[1]))
    table = begin_table(rounds.constants)
    return Problem(rounds.V, rounds.cohort_size, table, memory[0], memory[1], memory[2], memory[3])


@compiled
def _total(values: FloatArray) -> float:
    """The sum, in four parts that vectorise."""
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


@compiled
def _participations(q: FloatArray, problem: Problem) -> None:
    """Write pi/q and (d pi/dq) / K, which are sum_{k<K} (1 - q)^k and (1 - q)^(K-1)."""
    ratio, power = problem.ratio, problem.power
    for n in range(q.size):
        ratio[n], power[n] = 1.0, 1.0
    for _ in range(problem.cohort_size - 1):
        for n in range(q.size):
            power[n] *= 1.0 - q[n]
            ratio[n] += power[n]


@compiled
def _resources(f: FloatArray, p: FloatArray, problem: Problem) -> None:
    """Write the best f and p at the ratio ``pi / q``, with their times and energies.

    This is `best_at` for each device, in loops of which all but one vectorise.
    """
    V, _, t, ratio, _, time, energy = problem
    price, log = time, energy  # until these are known
    for n in range(ratio.size):
        price[n] = t[QUEUE, n] * ratio[n] / V
    for n in range(ratio.size):
        f[n] = best_f(price[n], t[CAPACITANCE, n], t[F_MIN, n], t[F_MAX, n])
    for n in range(ratio.size):
        p[n], log[n] = t[P_MAX, n], t[LOG_MAX, n]
    for n in range(ratio.size):
        if price[n] * t[RATE_MAX, n] > 1.0:
            p[n], log[n] = best_p(price[n], n, t)
    for n in range(ratio.size):
        time[n], energy[n] = spent(f[n], p[n], log[n], n, t)


# Algorithm 2


@compiled
def _minimise_on_simplex(
    slope: FloatArray, root: FloatArray, q: FloatArray, work: FloatArray, guess: float
) -> float:
    """Write the minimiser of ``sum (slope q + root^2 / q)`` on the simplex into q.

    The solution is q = root / sqrt(slope + nu). It sums to one if a power mean of slope + nu,
    concave in nu, equals a constant: from the left Newton's method increases to the root, and from
    the right its first step leads to the left. Returns nu. ``guess`` is a start for it, or -inf if
    there is none.
    """
    size = slope.size
    least = math.inf
    for n in range(size):
        least = min(least, slope[n])
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
            # The last step follows the tangent, with an error that is quadratic in the step.
            nu += step
            for n in range(size):
                q[n] -= 0.5 * step * work[n]
            break
        nu = max(left, nu + step)
    total = _total(q)
    for n in range(size):
        q[n] = max(q[n] / total, LEAST_Q)
    return float(nu - least)


@merged
def _descend(
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
    paper: bool,
    problem: Problem,
    work: FloatArray,
) -> float:
    """Alternate from q until convergence; f, p and q hold the result. Returns the objective.

    With `paper` the concave term is as printed.
    """
    V, cohort_size, t, ratio, power, time, energy = problem
    last_f, last_p, start, previous = work[0], work[1], work[2], work[3]
    slope, root, line, queue = work[4], work[5], work[6], work[7]
    shortest = math.inf
    for n in range(q.size):
        shortest = min(shortest, t[CYCLES, n] / t[F_MAX, n])
    for n in range(q.size):
        # For lambda = 0, a tiny value keeps q positive, as (3) requires.
        root[n] = math.sqrt(max(t[ERROR, n], 1e-24 * V * shortest))
        queue[n] = 1.0 if paper else t[QUEUE, n]  # missing from the paper's P2.2
        f[n] = 0.5 * (t[F_MIN, n] + t[F_MAX, n])
        p[n] = 0.5 * (t[P_MIN, n] + t[P_MAX, n])
    nu = -math.inf
    _participations(q, problem)
    for _ in range(_MOST_ITERATIONS):
        for n in range(q.size):
            last_f[n], last_p[n], start[n] = f[n], p[n], q[n]
        _resources(f, p, problem)
        for _ in range(_MOST_ITERATIONS):
            for n in range(q.size):
                previous[n] = q[n]
                slope[n] = V * time[n] + queue[n] * energy[n] * cohort_size * power[n]
            nu = _minimise_on_simplex(slope, root, q, line, nu)
            _participations(q, problem)
            for n in range(q.size):
                line[n] = (q[n] - previous[n]) ** 2
            if math.sqrt(_total(line)) <= _STILL:
                break
        for n in range(q.size):
            line[n] = (q[n] - start[n]) ** 2
            line[n] += ((f[n] - last_f[n]) * t[F_SCALE, n]) ** 2
            line[n] += ((p[n] - last_p[n]) * t[P_SCALE, n]) ** 2
        if not math.sqrt(_total(line)) > _STILL:
            break
    for n in range(q.size):
        line[n] = V * q[n] * time[n] + t[ERROR, n] / q[n]
        line[n] += t[QUEUE, n] * (q[n] * ratio[n] * energy[n] - t[BUDGET, n])
    return _total(line)


# The certificate


@inlined
def _device_cost(q: float, n: int, problem: Problem) -> float:
    """m_n(q), the least cost of a device without its sampling error."""
    V, t = problem.V, problem.t
    ratio, power = 1.0, 1.0
    for _ in range(problem.cohort_size - 1):
        power *= 1.0 - q
        ratio += power
    _, _, time, energy = best_at(t[QUEUE, n] * ratio / V, n, t)
    return float(q * (V * time + t[QUEUE, n] * ratio * energy))


@compiled
def _device_minimum(
    nu: float, low: float, high: float, n: int, problem: Problem, stack: FloatArray
) -> tuple[float, float]:
    """Bound ``min over [low, high] of m_n(q) + error / q - nu q`` from below; return its minimiser.

    Branch and bound: on an interval the concave m_n lies above its chord, and with the chord the
    minimum has a closed form. The interval is split there until the bound meets the best value
    found. The rows of ``stack`` are intervals (a, m(a), b, m(b)).
    """
    error = problem.t[ERROR, n]
    a, cost_a, b, cost_b = low, 0.0, high, 0.0
    best, best_q, best_scale = math.inf, high, 0.0
    if a > 0.0:
        cost_a = _device_cost(a, n, problem)
        best, best_q, best_scale = cost_a + error / a - nu * a, a, cost_a + error / a
    elif error == 0.0:
        best, best_q, best_scale = 0.0, 0.0, 0.0
    size = 0
    lower = math.inf
    q, split = high, False
    while True:
        cost = _device_cost(q, n, problem)
        value = cost + error / q - nu * q
        if value < best:
            best, best_q, best_scale = value, q, cost + error / q
        if split:
            stack[size, 0], stack[size, 1], stack[size, 2], stack[size, 3] = a, cost_a, q, cost
            size += 1
            a, cost_a = q, cost
        else:
            cost_b, split = cost, True
        while True:  # until an interval has to be split
            chord = (cost_b - cost_a) / (b - a)
            q = b if chord <= nu else min(max(math.sqrt(error / (chord - nu)), a), b)
            bound = cost_a + chord * (q - a) - nu * q
            if q > 0.0:
                bound += error / q
            if math.isnan(bound):  # an overflow proves nothing
                return -math.inf, best_q
            at_end = q <= a or q >= b  # the chord is exact at the ends
            if not (at_end or bound >= best - 1e-10 * best_scale or size == len(stack)):
                break
            lower = min(lower, bound)
            if size == 0:
                return lower, best_q
            size -= 1
            a, cost_a, b, cost_b = stack[size, 0], stack[size, 1], stack[size, 2], stack[size, 3]


@merged
def _dual(
    nu: float, low: float, high: float, problem: Problem, stack: FloatArray, q: FloatArray
) -> tuple[float, float]:
    """Value of the dual function at nu, a lower bound on P2, and its slope ``1 - sum q``.

    It bounds the part of P2 in which the largest probability is in [low, high]: the device that is
    cheapest there has it, and no other device has more. q holds the minimisers.
    """
    t = problem.t
    value, slope = nu, 1.0
    rest = min(high, 1.0 - low)
    least, first, most = math.inf, 0, 0.0
    for n in range(q.size):
        minimum, q[n] = _device_minimum(nu, 0.0, rest, n, problem, stack)
        value += minimum - t[QUEUE, n] * t[BUDGET, n]
        slope -= q[n]
        if low > 0.0:
            large, at = _device_minimum(nu, low, high, n, problem, stack)
            if large - minimum < least:
                least, first, most = large - minimum, n, at
    if low > 0.0 and value > -math.inf:
        value += least
        slope += q[first] - most
        q[first] = most
    return value, slope


@compiled
def _maximise_dual(
    nu: float,
    tolerance: float,
    objective: float,
    low: float,
    high: float,
    problem: Problem,
    stack: FloatArray,
    trial: FloatArray,
    q_low: FloatArray,
    q_high: FloatArray,
) -> float:
    """Return the largest dual value found, starting from the multiplier nu.

    The dual function is concave, and its slope is one minus the sum of the minimisers: positive
    left of the best multiplier, negative right of it. The tangents at both ends of a bracket meet
    above the maximum, and the next multiplier is where they meet. q_low and q_high hold the
    minimisers at the ends of the last bracket, and trial the last ones.
    """
    bound, above = -math.inf, math.inf
    left, value_left, slope_left = -math.inf, 0.0, 0.0
    right, value_right, slope_right = math.inf, 0.0, 0.0
    step = tolerance
    for _ in range(200):
        value, slope = _dual(nu, low, high, problem, stack, trial)
        bound = max(bound, value)
        if slope >= 0.0:
            left, value_left, slope_left, kept = nu, value, slope, q_low
        else:
            right, value_right, slope_right, kept = nu, value, slope, q_high
        for n in range(trial.size):
            kept[n] = trial[n]
        if right == math.inf:
            nu = left + step
        elif left == -math.inf:
            nu = right - step
        else:
            rise = value_right - value_left - slope_right * (right - left)
            nu = left + min(max(rise / (slope_left - slope_right), 0.0), right - left)
            above = value_left + slope_left * (nu - left)
        if min(objective, above) - bound <= tolerance or not left <= nu <= right:
            break
        step *= 8.0
    return bound


@merged
def _value_at(q: FloatArray, problem: Problem) -> float:
    """Objective at the probabilities proportional to q, with the best f and p."""
    t = problem.t
    total, value = _total(q), 0.0
    for n in range(q.size):
        share = max(q[n] / total, LEAST_Q)
        value += _device_cost(share, n, problem) + t[ERROR, n] / share
        value -= t[QUEUE, n] * t[BUDGET, n]
    return value


@merged
def _prove(
    q: FloatArray,
    objective: float,
    branch: bool,
    problem: Problem,
    stack: FloatArray,
    q_low: FloatArray,
    q_high: FloatArray,
) -> float:
    """Bound P2 from below by its dual and, with `branch`, by the duals of its parts.

    If costs are not convex, the dual mixes allocations in which one device has most of the
    probability with others. The parts differ in the range of the largest probability, and the
    smallest of their duals is a bound. Ranges are halved until it is close to the best value found.
    Without branching, q_low and q_high are the results of `_maximise_dual` for the whole.
    """
    V, cohort_size, t, _, power, time, energy = problem
    _participations(q, problem)
    _resources(q_low, q_high, problem)  # only for the times and energies
    nu, scale = 0.0, 0.0
    for n in range(q.size):
        slope = V * time[n] + t[QUEUE, n] * energy[n] * cohort_size * power[n]
        nu += q[n] * slope - t[ERROR, n] / q[n]
        scale += q[n] * slope + t[ERROR, n] / q[n]
        q_low[n], q_high[n] = q[n], q[n]
    memory = (problem, stack, np.empty(q.size), q_low, q_high)
    whole = _maximise_dual(nu, 1e-9 * scale, objective, 0.0, 1.0, *memory)
    close = _CLOSE * scale
    if not branch or not objective - whole > close:
        return whole
    least, begin, width = math.inf, 0, _PARTS // 2
    for _ in range(_MOST_DUALS):
        low, high = begin / _PARTS, (begin + width) / _PARTS
        value = _maximise_dual(nu, close, objective, low, high, *memory)
        if objective - value > close and width > 1:
            objective = min(objective, _value_at(memory[2], problem))
            width //= 2
            continue
        least = min(least, value)
        begin += width
        if begin == _PARTS:
            return max(whole, least)
        width = begin & -begin
    return whole


# Rows of a batch


@entry
def solve_rows(
    begin: int, end: int, rounds: Rounds, paper: tuple[bool], results: Decisions
) -> None:
    """Run Algorithm 2 from the q of ``results``, which hold the decisions afterwards."""
    rounds = Rounds(*rounds)
    problem, work = _new_problem(rounds), np.empty((8, rounds.queue.shape[1]))
    f, p, q, objective = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        objective[row] = _descend(f[row], p[row], q[row], paper[0], problem, work)


@entry
def bound_rows(
    begin: int,
    end: int,
    rounds: Rounds,
    known: tuple[FloatArray, FloatArray, bool],
    results: Bounds,
) -> None:
    """Bound P2 from below; `known` has q, its objectives and whether to branch; see `_prove`."""
    rounds = Rounds(*rounds)
    q, objective, branch = known
    problem, stack = _new_problem(rounds), np.empty((128, 4))
    q_low, q_high, bound = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        low, high = q_low[row], q_high[row]
        bound[row] = _prove(q[row], objective[row], branch, problem, stack, low, high)


@entry
def resource_rows(begin: int, end: int, rounds: Rounds, results: tuple[FloatArray, ...]) -> None:
    """Write the best f and p at q, the first of the results, with their times and energies."""
    rounds = Rounds(*rounds)
    problem = _new_problem(rounds)
    q, f, p, time, energy = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        _participations(q[row], problem)
        _resources(f[row], p[row], problem)
        for n in range(q.shape[1]):
            time[row, n], energy[row, n] = problem.time[n], problem.energy[n]

"""The certificate of P2, compiled: a lower bound from its Lagrangian dual.

The dual of ``sum q = 1`` minimises over each device's q by itself; see `policies.p2.kernel` for a
device's cost m_n(q).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.allocation import LEAST_Q
from fl_edge_env.typing import FloatArray
from policies.p2.kernel import (
    Problem,
    new_problem,
    total_of,
    write_participations,
    write_resources,
)
from policies.solvers.compiled import compiled, entry, inlined, merged
from policies.solvers.device import QUEUE, begin_round, best_at
from policies.solvers.inputs import BUDGET, ERROR, Rounds

# The required accuracy, the number of the finest parts, and the most duals.
_CLOSE = 1e-4
_PARTS = 256
_MOST_DUALS = 100


class Bounds(NamedTuple):
    """Lower bounds on P2, and the minimisers on both sides of the best multiplier."""

    q_low: FloatArray  # (B, N)
    q_high: FloatArray  # (B, N)
    bound: FloatArray  # (B,)


@inlined
def _device_cost(q: float, n: int, problem: Problem) -> float:
    """m_n(q), the least cost of a device without its sampling error."""
    V = problem.V
    t = problem.t
    ratio = 1.0
    power = 1.0
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
    a = low
    cost_a = 0.0
    b = high
    cost_b = 0.0
    best = math.inf
    best_q = high
    best_scale = 0.0
    if a > 0.0:
        cost_a = _device_cost(a, n, problem)
        best = cost_a + error / a - nu * a
        best_q = a
        best_scale = cost_a + error / a
    elif error == 0.0:
        best = 0.0
        best_q = 0.0
    size = 0
    lower = math.inf
    q = high
    split = False
    while True:
        cost = _device_cost(q, n, problem)
        value = cost + error / q - nu * q
        if value < best:
            best = value
            best_q = q
            best_scale = cost + error / q
        if split:
            stack[size, 0] = a
            stack[size, 1] = cost_a
            stack[size, 2] = q
            stack[size, 3] = cost
            size += 1
            a = q
            cost_a = cost
        else:
            cost_b = cost
            split = True
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
            a = stack[size, 0]
            cost_a = stack[size, 1]
            b = stack[size, 2]
            cost_b = stack[size, 3]


@merged
def _dual(
    nu: float, low: float, high: float, problem: Problem, stack: FloatArray, q: FloatArray
) -> tuple[float, float]:
    """Value of the dual function at nu, a lower bound on P2, and its slope ``1 - sum q``.

    The value bounds the part of P2 in which the largest probability is in [low, high]: the device
    that is cheapest there has it, and no other device has more. q holds the minimisers.
    """
    t = problem.t
    value = nu
    slope = 1.0
    rest = min(high, 1.0 - low)
    least = math.inf
    first = 0
    most = 0.0
    for n in range(q.size):
        minimum, q[n] = _device_minimum(nu, 0.0, rest, n, problem, stack)
        value += minimum - t[QUEUE, n] * t[BUDGET, n]
        slope -= q[n]
        if low > 0.0:
            large, at = _device_minimum(nu, low, high, n, problem, stack)
            if large - minimum < least:
                least = large - minimum
                first = n
                most = at
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
    bound = -math.inf
    above = math.inf
    left = -math.inf
    value_left = 0.0
    slope_left = 0.0
    right = math.inf
    value_right = 0.0
    slope_right = 0.0
    step = tolerance
    for _ in range(200):
        value, slope = _dual(nu, low, high, problem, stack, trial)
        bound = max(bound, value)
        if slope >= 0.0:
            left = nu
            value_left = value
            slope_left = slope
            kept = q_low
        else:
            right = nu
            value_right = value
            slope_right = slope
            kept = q_high
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
    total = total_of(q)
    value = 0.0
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
    write_participations(q, problem)
    write_resources(q_low, q_high, problem)  # only for the times and energies
    nu = 0.0
    scale = 0.0
    for n in range(q.size):
        slope = V * time[n] + t[QUEUE, n] * energy[n] * cohort_size * power[n]
        nu += q[n] * slope - t[ERROR, n] / q[n]
        scale += q[n] * slope + t[ERROR, n] / q[n]
        q_low[n] = q[n]
        q_high[n] = q[n]
    memory = (problem, stack, np.empty(q.size), q_low, q_high)
    whole = _maximise_dual(nu, 1e-9 * scale, objective, 0.0, 1.0, *memory)
    close = _CLOSE * scale
    if not branch or not objective - whole > close:
        return whole
    least = math.inf
    begin = 0
    width = _PARTS // 2
    for _ in range(_MOST_DUALS):
        low = begin / _PARTS
        high = (begin + width) / _PARTS
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
    problem = new_problem(rounds)
    stack = np.empty((128, 4))
    q_low, q_high, bound = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        low = q_low[row]
        high = q_high[row]
        bound[row] = _prove(q[row], objective[row], branch, problem, stack, low, high)

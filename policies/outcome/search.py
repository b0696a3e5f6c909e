"""The outcome problem, compiled: the search for the best cohort and its deadline.

For a device that must finish by the deadline tau at the least energy, Theorems 2 and 3 give f and p
at one price of energy in time (see `policies.solvers.device`). This least energy e_n(tau) is convex
and decreasing, and for every price y the device's minimum of T + y E gives a tangent:

    e_n(tau) >= E(y) + (T(y) - tau) / y.

With costs c_n(tau) = Q_n e_n(tau) - Z_n the round's problem is

    minimise over tau  V tau + (sum of the K smallest c_n(tau) below zero, or the least of all).

Replace each c_n by a tangent: for a fixed cohort the sum is linear in tau, so its minimum over the
cohorts is concave, and on an interval it is smallest at an end. The search covers the range of tau
with intervals on which this bound reaches the best value found, minus the tolerance. The error of a
bound is quadratic in the interval's length, so a few dozen intervals suffice. A tangent taken
elsewhere stays valid: a device's tangent is renewed only if the old one would put the device into
the cohort. Absent devices, and devices that cannot meet the system's deadline, have an infinite
least time and are never chosen. The range of tau ends at that deadline; all bounds stay valid.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import FloatArray, IntArray
from policies.solvers.compiled import compiled, merged
from policies.solvers.device import (
    FIRST,
    LEAST,
    LOG_MIN,
    PARTICIPATION,
    QUEUE,
    begin_table,
    best_at,
    on_time,
    spent,
)
from policies.solvers.inputs import F_MIN, P_MIN, Rounds

# The most intervals of the search; remaining ones get a simple bound.
_MOST_INTERVALS = 2000
# Rounding error of a bound, relative to the sum of the magnitudes in it.
_ROUNDING = 1e-13

# A finite number above all deadlines.
_LARGEST = 1.7976931348623157e308

# Rows of the tangents: lines ``value + slope (time - tau)`` below the costs c_n(tau), ...
VALUE, SLOPE, TIME = range(3)  # the slope is Q / y, not negative
START = 3  # ... the power at which the next search starts, ...
RENEWED = 4  # ... and the deadline for which the tangent was last renewed


class Problem(NamedTuple):
    """The problem of a round, and the working memory of its search."""

    V: float
    t: FloatArray  # the table of the devices
    tangents: FloatArray  # (5, N)
    # The cheapest devices found, a heap with the most expensive on top; arrays of shape (K,).
    members: IntArray
    costs: FloatArray


# The cohort


@compiled
def new_problem(rounds: Rounds) -> Problem:
    """Allocate the memory that the rounds of a batch use in turn."""
    t = begin_table(rounds.constants)
    size = min(rounds.cohort_size, t.shape[1])
    tangents = np.empty((5, t.shape[1]))
    members = np.empty(size, dtype=np.int64)
    costs = np.empty(size)
    return Problem(rounds.V, t, tangents, members, costs)


@compiled
def _entry_cost(size: int, costs: FloatArray) -> float:
    """The cost below which a device improves a cohort of the given size."""
    if size == 0:
        return math.inf
    if size == costs.size or costs[0] >= 0.0:
        return float(costs[0])
    return 0.0


@compiled
def _heap_push(n: int, cost: float, size: int, members: IntArray, costs: FloatArray) -> int:
    """Add device n, which improves the cohort, and return the new size."""
    if size == costs.size or (size == 1 and costs[0] >= 0.0):  # replace the most expensive
        at = 0
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and costs[child + 1] > costs[child]:
                child += 1
            if costs[child] <= cost:
                break
            members[at] = members[child]
            costs[at] = costs[child]
            at = child
    else:
        at = size
        size += 1
        while at > 0 and costs[(at - 1) // 2] < cost:
            parent = (at - 1) // 2
            members[at] = members[parent]
            costs[at] = costs[parent]
            at = parent
    members[at] = n
    costs[at] = cost
    return size


@compiled
def _renew_tangent(n: int, renew_at: float, deadline: float, problem: Problem) -> float:
    """Renew device n's tangent at ``renew_at`` if that raises its cost at the deadline; return it.

    By duality a tangent bounds the cost from below at every deadline, for any slope. A device that
    cannot meet the deadline gets the tangent at its least time.
    """
    t = problem.t
    tangents = problem.tangents
    _, tangents[START, n], rate, _ = on_time(renew_at, tangents[START, n], n, t)
    _, _, time, energy = best_at(1.0 / rate, n, t)
    tangents[RENEWED, n] = renew_at
    old = tangents[VALUE, n] + tangents[SLOPE, n] * (tangents[TIME, n] - deadline)
    value = t[QUEUE, n] * energy - t[PARTICIPATION, n]
    slope = t[QUEUE, n] * rate
    new = value + slope * (time - deadline)
    if old > new:
        return float(old)
    tangents[VALUE, n] = value
    tangents[SLOPE, n] = slope
    tangents[TIME, n] = time
    return float(new)


@compiled
def select(
    deadline: float, latest: float, renew_at: float, problem: Problem
) -> tuple[float, float, int]:
    """Select the best cohort for a deadline, with tangents instead of costs.

    Only devices whose least time is at most ``latest`` are considered. A tangent that puts its
    device into the cohort is first renewed at ``renew_at``, unless that is infinite. Returns ``V
    deadline`` plus the costs of the cohort, minus the possible rounding error, the derivative with
    respect to the deadline, and the size of the cohort.
    """
    V, t, tangents, members, costs = problem
    size = int(np.int64(0))  # with a plain 0, `_heap_push` compiles twice
    bar = math.inf
    for n in range(t.shape[1]):
        if t[FIRST, n] > latest:
            continue
        cost = tangents[VALUE, n] + tangents[SLOPE, n] * (tangents[TIME, n] - deadline)
        if cost >= bar:  # False for NaN, which the value then shows
            continue
        if tangents[RENEWED, n] != renew_at < math.inf:
            cost = _renew_tangent(n, renew_at, deadline, problem)
            if cost >= bar:
                continue
        size = _heap_push(n, cost, size, members, costs)
        bar = _entry_cost(size, costs)
    value = V * deadline
    slope = V
    magnitude = V * deadline
    for member in range(size):
        n = members[member]
        value += costs[member]
        slope -= tangents[SLOPE, n]
        magnitude += abs(tangents[VALUE, n]) + 2.0 * abs(t[PARTICIPATION, n])
        magnitude += tangents[SLOPE, n] * (tangents[TIME, n] + deadline)
    return value - _ROUNDING * magnitude, slope, size


@compiled
def best_deadline(size: int, tau: float, latest: float, problem: Problem) -> float:
    """The best deadline for the last selected cohort; the search starts at tau.

    The deadline is at most ``latest``, which the whole cohort can meet. At an optimum below
    ``latest`` the energy that the cohort saves by a second more is worth V. Newton's method solves
    for this worth to the power -1/3, which is nearly linear, and exactly linear without uploads.
    """
    V, t, tangents, members, _ = problem
    least = 0.0
    for member in range(size):
        least = max(least, t[LEAST, members[member]])
    low = least
    high = latest
    above = False  # whether the optimum is known to be above low
    tau = min(max(tau, least), latest)
    for step in range(100):
        saved = 0.0
        bend = 0.0
        for member in range(size):
            n = members[member]
            _, tangents[START, n], rate, fall = on_time(tau, tangents[START, n], n, t)
            saved += t[QUEUE, n] * rate
            bend += t[QUEUE, n] * fall
        if saved >= V:
            if tau == latest:
                return tau
            low = tau
            above = True
        elif tau == least:
            return tau
        else:
            high = tau
        ratio = float(np.cbrt(V / saved))
        new = tau - 3.0 * saved * (ratio - 1.0) / (bend * ratio)
        if new > latest:
            new = latest
        if not (low <= new <= high and new < math.inf):  # also if the worth jumps or vanishes
            if not above and not new > low:
                new = least
            else:
                new = 2.0 * low if high == math.inf else 0.5 * (low + high)
        # Newton's method can cycle around a kink of the worth, such as where f reaches f_min.
        if step >= 10 and step % 2 == 0 and above and high < math.inf:
            new = 0.5 * (low + high)
        if abs(new - tau) <= 1e-9 * tau:
            return new
        tau = new
    return tau


# The search


@compiled
def _least_costs(problem: Problem) -> float:
    """Cost of the best cohort, without the cost of time, if there is no deadline."""
    _, t, _, members, costs = problem
    size = int(np.int64(0))  # see `select`
    for n in range(t.shape[1]):
        if t[FIRST, n] < math.inf:
            _, energy = spent(t[F_MIN, n], t[P_MIN, n], t[LOG_MIN, n], n, t)
            cost = t[QUEUE, n] * energy - t[PARTICIPATION, n]
            if not cost >= _entry_cost(size, costs):
                size = _heap_push(n, cost, size, members, costs)
    total = 0.0
    for member in range(size):
        queue = abs(t[PARTICIPATION, members[member]])
        total += costs[member] - _ROUNDING * (abs(costs[member]) + queue)
    return total


@compiled
def _descend(tau: float, best: float, latest: float, problem: Problem) -> tuple[float, float]:
    """Alternate between the best cohort for a deadline and the best deadline for a cohort.

    Returns the best deadline and its value if that is below ``best``, otherwise tau and ``best``.
    """
    best_tau = tau
    for _ in range(100):
        value, _, size = select(tau, tau, tau, problem)
        if not value < best:
            break
        small = best - value <= 1e-12 * abs(value)
        best = value
        best_tau = tau
        if small:
            break
        tau = best_deadline(size, tau, latest, problem)
    return best_tau, best


@compiled
def _reach_right(
    at: float, end: float, goal: float, aim: float, problem: Problem
) -> tuple[float, float]:
    """Deadline to the right, at most ``end``, up to which tangents at ``at`` meet the goal.

    Newton's method on the concave bound approaches from the right. ``aim`` is slightly above the
    goal, so that the method ends. Returns that deadline and the bound up to it.

    Proof of the bound. Replace the cost of each device on [at, end] by a line that is at most its
    true cost c_n. For a fixed cohort, ``V tau`` plus the sum of its lines is linear in tau. The
    minimum over all cohorts of devices with a least time of at most ``end`` is a minimum of linear
    functions, hence concave, and on the interval it is at least the smaller of its end values.
    Every cohort that can finish by a tau in the interval is one of these, and costs at least the
    sum of its lines. So the smaller end value is a lower bound, provided that both are computed
    with the same lines. Renewing tangents at one end may lower them at the other, so the end that
    is computed last renews none.
    """
    t = problem.t
    members = problem.members
    for _ in range(100):
        value, slope, _ = select(end, end, at, problem)
        if value >= goal or end <= at:
            break
        end = end - (value - aim) / slope if slope < 0.0 else at
        end = max(end, at)
    while end > at:
        # At `at`, tangents of devices that can finish only later also count; they may be too low.
        near, _, size = select(at, end, at, problem)
        if near >= goal:
            far, slope, _ = select(end, end, math.inf, problem)
            if far >= goal:
                return end, min(near, far)
            end = end - (far - aim) / slope if slope < 0.0 else at
            continue
        first = math.inf
        for member in range(size):
            least = t[LEAST, members[member]]
            if least > at:
                first = min(first, least)
        end = np.nextafter(first, at) if first <= end else at
    return at, math.inf


@compiled
def _reach_left(
    at: float, end: float, goal: float, aim: float, problem: Problem
) -> tuple[float, float]:
    """`_reach_right` to the left, where no further devices can finish."""
    for _ in range(100):
        far, slope, _ = select(end, at, at, problem)
        if far >= goal:
            near, _, _ = select(at, at, at, problem)
            far, slope, _ = select(end, at, math.inf, problem)
            if far >= goal:
                return end, min(near, far)
        end = end - (far - aim) / slope if slope > 0.0 else at
        if not end < at:
            break
    return at, math.inf


@merged
def start(latest: float, problem: Problem) -> float:
    """Initialise the tangents, and return a deadline to start from.

    The tangents are at the prices at which K devices would split the worth of time evenly.
    """
    V, t, tangents, members, costs = problem
    share = V / costs.size
    slowest = 0.0
    for n in range(t.shape[1]):
        _, tangents[START, n], time, energy = best_at(t[QUEUE, n] / share, n, t)
        tangents[VALUE, n] = t[QUEUE, n] * energy - t[PARTICIPATION, n]
        tangents[SLOPE, n] = share
        tangents[TIME, n] = time
        tangents[RENEWED, n] = math.inf
        if t[FIRST, n] < math.inf:
            slowest = max(slowest, tangents[TIME, n])
    _, _, size = select(slowest, _LARGEST, math.inf, problem)
    tau = 0.0
    for member in range(size):
        tau = max(tau, tangents[TIME, members[member]])
    return best_deadline(size, tau, latest, problem)


@merged
def search(tau: float, problem: Problem, tolerance: float, latest: float) -> tuple[float, float]:
    """Return the best deadline up to ``latest``, and a lower bound on the optimal value.

    The search starts at the deadline tau, with the present tangents.
    """
    V = problem.V
    t = problem.t
    least = math.inf
    for n in range(t.shape[1]):
        if t[FIRST, n] < math.inf:
            least = min(least, t[LEAST, n])
    tau, best = _descend(tau, math.inf, latest, problem)
    floor = _least_costs(problem)
    if not (abs(best) < math.inf and abs(floor) < math.inf):
        return tau, -math.inf  # an overflow proves nothing
    lower = best
    at = tau
    stack = np.empty((128, 2))  # intervals of deadlines
    stack[0, 0] = least
    stack[0, 1] = latest
    size = 1
    used = 0
    while size > 0:
        size -= 1
        a = stack[size, 0]
        b = stack[size, 1]
        b = min(b, (1.0 + _ROUNDING) * (best - floor) / V)  # beyond, time alone costs too much
        if not a <= b:
            continue
        used += 1
        if b - a <= 1e-12 * b or size + 2 > len(stack) or used > _MOST_INTERVALS:
            value, _, _ = select(b, b, b, problem)
            lower = min(lower, value - V * (b - a))  # costs fall with the deadline
            continue
        if used > 1:
            at = 0.5 * (a + b)
        value, _, _ = select(at, at, at, problem)
        if value < best:
            tau, best = _descend(at, best, latest, problem)
            if a <= tau <= b:
                at = tau
                select(at, at, at, problem)
        slack = tolerance * max(abs(best), V * least)
        goal = best - slack
        aim = best - 0.9 * slack
        right, bound = _reach_right(at, b, goal, aim, problem)
        lower = min(lower, bound)
        left, bound = _reach_left(at, a, goal, aim, problem)
        lower = min(lower, bound)
        if a < left:
            stack[size, 0] = a
            stack[size, 1] = left
            size += 1
        if right < b:
            stack[size, 0] = right
            stack[size, 1] = b
            size += 1
    return tau, lower

"""The outcome problem compiled: the search for the best cohort and its deadline.

A device that must finish by the deadline tau and spends as little energy as it can has one price
of energy in time at which Theorems 2 and 3 give its f and p (see `policies.device`). Its least
energy e_n(tau) is convex and decreasing, and for every price y the device's minimum of T + y E
gives a tangent of it:

    e_n(tau) >= E(y) + (T(y) - tau) / y.

With costs c_n(tau) = Q_n e_n(tau) - Z_n the round's problem is

    minimise over tau  V tau + (sum of the K smallest c_n(tau) below zero, or the least of all).

Put a tangent in the place of each c_n: for a fixed cohort the sum is linear in tau, so its least
value over the cohorts is concave, and on an interval it is smallest at an end. The search covers
the axis of tau with intervals on which that bound reaches the best value found, less the
tolerance. A bound is off by the square of an interval's length, so a few dozen do. A tangent
taken elsewhere stays valid: a device's tangent is renewed only where its old one would put it
into the cohort. Devices that are absent never come in, nor those that cannot meet the deadline of
the system: their least time is infinite. The axis of tau ends at that deadline, and all bounds stay
what they are.

Where the band is shared out, a device pays for its share s at a price c of the whole band, and the
price is paid back once. By weak duality

    minimise over tau  V tau + (sum of the K smallest min over s of c_n(tau, s) + c s) - c

bounds every cohort and every split from below, for every c >= 0. It is concave in c, and the costs
are again convex in tau (see `policies.band`), so that the search is the same, with a price of its
own for each interval. The best split of a given cohort is that at the price at which the shares sum
to one, with the deadline that is best there; the cohort which is best at both is tried next. What a
bound may then be off by is what no price can tell between two cohorts for the same deadline.

Where gains are not known but the law of them is, times and energies are expected ones, and V weighs
the longest of the cohort's expected times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.band import Purchase, cheapest, cheapest_by, least_share
from policies.compiled import compiled, entry
from policies.device import (
    F_MIN,
    FIRST,
    LEAST,
    LOG_MAX,
    LOG_MIN,
    P_MAX,
    P_MIN,
    PARTICIPATION,
    QUEUE,
    UPLOAD,
    begin_deadlines,
    begin_round,
    begin_table,
    best_at,
    expected_log,
    on_time,
    spent,
)

# Intervals that the search may spend; what is then left open gets a plain bound.
_MOST_INTERVALS = 2000
# Relative rounding error of a bound, as a share of the magnitudes that are added up in it.
_ROUNDING = 1e-13

# The same where the band is shared out, and an interval takes longer.
_MOST_SHARED = 400
# Prices of the band that are tried for a deadline, and by how much the shares may then miss the
# whole of it; and those of the best split.
_MOST_PRICES = 40
_NEARLY_WHOLE = 1e-3
_WHOLE = 1e-8
# How near a device's search comes to its worth of time: for what it does, and for a tangent, which
# may be any.
_EXACT, _ROUGH = 1e-8, 1e-4
# Part of the time to the system's deadline that a decision uses.
_EARLY = 1.0 - 1e-7
# Share of a device that would be late with any.
_NEXT_TO_NONE = 1e-11

# A finite number above all deadlines.
_LARGEST = 1.7976931348623157e308

# Rows of the tangents: lines ``value + slope (time - tau)`` below the costs c_n(tau), ...
_VALUE, _SLOPE, _TIME = range(3)  # the slope is Q / y, not negative
_START = 3  # ... where the next search starts, for a power or, with shares, a worth of time, ...
_RENEWED = 4  # ... the deadline for which the tangent was last renewed, ...
_START_U = 5  # ... and where the next search for a power density starts


class _Problem(NamedTuple):
    """The problem of a round, and the working memory of its search."""

    V: float
    t: FloatArray  # the table of the devices
    nodes: FloatArray
    tangents: FloatArray  # (6, N)
    # The cheapest devices found, a heap with the dearest on top; arrays of shape (K,).
    members: IntArray
    costs: FloatArray
    # Price of the whole band, and that for which the tangents hold; negative where parts are equal.
    band: FloatArray


# The cohort


@compiled
def _bar(size: int, costs: FloatArray) -> float:
    """The cost below which a device improves a cohort of the given size."""
    if size == 0:
        return math.inf
    if size == costs.size or costs[0] >= 0.0:
        return float(costs[0])
    return 0.0


@compiled
def _offer(n: int, cost: float, size: int, members: IntArray, costs: FloatArray) -> int:
    """Take in device n, which improves the cohort, and give the new size."""
    if size == costs.size or (size == 1 and costs[0] >= 0.0):  # in the place of the dearest
        at = 0
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and costs[child + 1] > costs[child]:
                child += 1
            if costs[child] <= cost:
                break
            members[at], costs[at] = members[child], costs[child]
            at = child
    else:
        at = size
        size += 1
        while at > 0 and costs[(at - 1) // 2] < cost:
            parent = (at - 1) // 2
            members[at], costs[at] = members[parent], costs[parent]
            at = parent
    members[at], costs[at] = n, cost
    return size


@compiled
def _buy(tau: float, n: int, near: float, problem: _Problem) -> tuple[float, float, Purchase]:
    """`cheapest_by` from where the last search has ended."""
    _, t, nodes, tangents, _, _, band = problem
    worth, fall, bought = cheapest_by(
        tau, tangents[_START, n], tangents[_START_U, n], near, band[0], n, t, nodes
    )
    tangents[_START, n], tangents[_START_U, n] = worth, bought.u
    return worth, fall, bought


@compiled
def _worth(tau: float, n: int, problem: _Problem) -> tuple[float, float]:
    """What a second more than the deadline tau saves device n, and how much less the next one."""
    _, t, nodes, tangents, _, _, band = problem
    if band[0] >= 0.0:
        worth, fall, _ = _buy(tau, n, _EXACT, problem)
        return worth, fall
    _, tangents[_START, n], rate, fall = on_time(tau, tangents[_START, n], n, t, nodes)
    return t[QUEUE, n] * rate, t[QUEUE, n] * fall


@compiled
def _tangent(at: float, n: int, problem: _Problem) -> tuple[float, float, float]:
    """Cost, slope and time of the tangent of device n at a deadline.

    By duality it bounds the cost from below at every deadline, whatever the slope.
    """
    _, t, nodes, tangents, _, _, band = problem
    if band[0] >= 0.0:
        worth, _, bought = _buy(at, n, _ROUGH, problem)
        return bought.cost, worth, bought.time
    _, tangents[_START, n], rate, _ = on_time(at, tangents[_START, n], n, t, nodes)
    _, _, time, energy = best_at(1.0 / rate, n, t, nodes)
    return t[QUEUE, n] * energy, t[QUEUE, n] * rate, time


@compiled
def _renew(n: int, at: float, tau: float, problem: _Problem) -> float:
    """Take the tangent of device n at the deadline ``at`` if it is higher at tau; its cost there.

    For a device that cannot meet that deadline it is the one at its least time.
    """
    t, tangents = problem.t, problem.tangents
    cost, slope, time = _tangent(at, n, problem)
    tangents[_RENEWED, n] = at
    old = tangents[_VALUE, n] + tangents[_SLOPE, n] * (tangents[_TIME, n] - tau)
    value = cost - t[PARTICIPATION, n]
    new = value + slope * (time - tau)
    if old > new:
        return float(old)
    tangents[_VALUE, n], tangents[_SLOPE, n], tangents[_TIME, n] = value, slope, time
    return float(new)


@compiled
def _select(tau: float, latest: float, at: float, problem: _Problem) -> tuple[float, float, int]:
    """The best cohort for the deadline tau with tangents in the place of the costs.

    Only devices whose least time is at most ``latest`` take part. A tangent that puts its device
    into the cohort is first renewed at the deadline ``at``. Gives ``V tau`` and the costs of the
    cohort, less what rounding may have added, the derivative with respect to tau, and the number
    of devices in the cohort.
    """
    V, t, _, tangents, members, costs, _ = problem
    size, bar = 0, math.inf
    for n in range(t.shape[1]):
        if t[FIRST, n] > latest:
            continue
        cost = tangents[_VALUE, n] + tangents[_SLOPE, n] * (tangents[_TIME, n] - tau)
        if cost >= bar:  # not so for NaN, which then shows in the value
            continue
        if tangents[_RENEWED, n] != at:
            cost = _renew(n, at, tau, problem)
            if cost >= bar:
                continue
        size = _offer(n, cost, size, members, costs)
        bar = _bar(size, costs)
    value, slope, magnitude = V * tau, V, V * tau
    for member in range(size):
        n = members[member]
        value += costs[member]
        slope -= tangents[_SLOPE, n]
        magnitude += abs(tangents[_VALUE, n]) + 2.0 * abs(t[PARTICIPATION, n])
        magnitude += tangents[_SLOPE, n] * (tangents[_TIME, n] + tau)
    return value - _ROUNDING * magnitude, slope, size


@compiled
def _best_deadline(size: int, tau: float, latest: float, problem: _Problem) -> float:
    """The deadline that is best for the cohort found last; the search starts at tau.

    It is at most ``latest``, which all of the cohort can meet. Up to there the energy that the
    cohort saves by a second more is worth V at the optimum. Newton's method on that worth to the
    power -1/3, which is nearly linear: computing alone would make it so.
    """
    V, t, members = problem.V, problem.t, problem.members
    least = 0.0
    for member in range(size):
        least = max(least, t[LEAST, members[member]])
    low, high = least, latest
    above = False  # whether the optimum is known to be above low
    tau = min(max(tau, least), latest)
    for _ in range(100):
        saved, bend = 0.0, 0.0
        for member in range(size):
            worth, fall = _worth(tau, members[member], problem)
            saved += worth
            bend += fall
        if saved >= V:
            if tau == latest:
                return tau
            low, above = tau, True
        elif tau == least:
            return tau
        else:
            high = tau
        ratio = float(np.cbrt(V / saved))
        new = tau - 3.0 * saved * (ratio - 1.0) / (bend * ratio)
        if new > latest:
            new = latest
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


@compiled
def _first_tangents(problem: _Problem) -> None:
    """Tangents at the prices at which K devices would share the worth of time evenly.

    Where the band is shared out, at the worths of time found last.
    """
    V, t, nodes, tangents, _, costs, band = problem
    share = V / costs.size
    for n in range(t.shape[1]):
        slope = share
        if band[0] >= 0.0:
            slope = tangents[_START, n]
            bought = cheapest(slope, band[0], tangents[_START_U, n], n, t, nodes)
            tangents[_START_U, n] = bought.u
            cost, time = bought.cost, bought.time
        else:
            _, tangents[_START, n], time, energy = best_at(t[QUEUE, n] / share, n, t, nodes)
            cost = t[QUEUE, n] * energy
        tangents[_VALUE, n] = cost - t[PARTICIPATION, n]
        tangents[_SLOPE, n], tangents[_TIME, n], tangents[_RENEWED, n] = slope, time, -1.0


@compiled
def _least_costs(problem: _Problem) -> float:
    """Cost of the best cohort beside its time if it has all the time it wants."""
    _, t, nodes, _, members, costs, band = problem
    size = 0
    for n in range(t.shape[1]):
        if t[FIRST, n] < math.inf:
            if band[0] >= 0.0:
                # With free energy, and time enough, the share and so the cost vanish.
                patient = t[QUEUE, n] > 0.0
                cost = cheapest(0.0, band[0], 0.0, n, t, nodes).cost if patient else 0.0
            else:
                _, energy = spent(t[F_MIN, n], t[P_MIN, n], t[LOG_MIN, n], n, t)
                cost = t[QUEUE, n] * energy
            cost -= t[PARTICIPATION, n]
            if not cost >= _bar(size, costs):
                size = _offer(n, cost, size, members, costs)
    total = 0.0
    for member in range(size):
        queue = abs(t[PARTICIPATION, members[member]])
        total += costs[member] - _ROUNDING * (abs(costs[member]) + queue)
    return total


@compiled
def _descend(tau: float, best: float, latest: float, problem: _Problem) -> tuple[float, float]:
    """Alternate between the best cohort for a deadline and the best deadline for a cohort.

    Gives the best deadline and the value there, if it is below ``best``.
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
        tau = _best_deadline(size, tau, latest, problem)
    return best_tau, best


@compiled
def _reach_right(
    at: float, end: float, goal: float, aim: float, problem: _Problem
) -> tuple[float, float]:
    """Deadline to the right, at most ``end``, up to which tangents at ``at`` meet the goal.

    Newton's method on the bound, which is concave: it comes from beyond. ``aim`` is a little
    above the goal, so that the method ends. Returns the place, and the bound up to it.
    """
    t, members = problem.t, problem.members
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
            least = t[LEAST, members[member]]
            if least > at:
                first = min(first, least)
        end = np.nextafter(first, at) if first <= end else at
    return at, math.inf


@compiled
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


@compiled
def _start(latest: float, problem: _Problem) -> float:
    """Take the first tangents, and give a deadline to start from."""
    t, tangents, members = problem.t, problem.tangents, problem.members
    _first_tangents(problem)
    slowest = 0.0
    for n in range(t.shape[1]):
        if t[FIRST, n] < math.inf:
            slowest = max(slowest, tangents[_TIME, n])
    _, _, size = _select(slowest, _LARGEST, -1.0, problem)
    tau = 0.0
    for member in range(size):
        tau = max(tau, tangents[_TIME, members[member]])
    return _best_deadline(size, tau, latest, problem)


@compiled
def _search(tau: float, problem: _Problem, tolerance: float, latest: float) -> tuple[float, float]:
    """Give the best deadline up to ``latest``, and a lower bound on the optimal value.

    The search starts at the deadline tau, and with the tangents that were taken.
    """
    V, t = problem.V, problem.t
    least = math.inf
    for n in range(t.shape[1]):
        if t[FIRST, n] < math.inf:
            least = min(least, t[LEAST, n])
    tau, best = _descend(tau, math.inf, latest, problem)
    floor = _least_costs(problem)
    if not (abs(best) < math.inf and abs(floor) < math.inf):
        return tau, -math.inf  # beyond the range of floats nothing is proven
    lower, at = best, tau
    stack = np.empty((128, 2))  # intervals of deadlines
    stack[0, 0], stack[0, 1] = least, latest
    size, used = 1, 0
    while size > 0:
        size -= 1
        a, b = stack[size, 0], stack[size, 1]
        b = min(b, (1.0 + _ROUNDING) * (best - floor) / V)  # beyond, time alone costs too much
        if not a <= b:
            continue
        used += 1
        if b - a <= 1e-12 * b or size + 2 > len(stack) or used > _MOST_INTERVALS:
            value, _, _ = _select(b, b, b, problem)
            lower = min(lower, value - V * (b - a))  # costs fall with the deadline
            continue
        if used > 1:
            at = 0.5 * (a + b)
        value, _, _ = _select(at, at, at, problem)
        if value < best:
            tau, best = _descend(at, best, latest, problem)
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
            stack[size, 0], stack[size, 1] = a, left
            size += 1
        if right < b:
            stack[size, 0], stack[size, 1] = right, b
            size += 1
    return tau, lower


# Shares of the band


@compiled
def _bought(tau: float, size: int, problem: _Problem) -> tuple[float, float]:
    """Sum of the shares of the cohort found last for a deadline, and of their worths of energy."""
    t, members, band = problem.t, problem.members, problem.band
    total, value = 0.0, 0.0
    for member in range(size):
        n = members[member]
        _, _, bought = _buy(tau, n, _EXACT, problem)
        total += bought.share
        value += bought.cost - band[0] * bought.share - t[PARTICIPATION, n]
    return total, value


@compiled
def _split(size: int, tau: float, latest: float, problem: _Problem) -> float:
    """Set the price at which the cohort found last buys the whole band; its best deadline there.

    The secant method between the logarithms of the price and of what is bought, in a bracket.
    """
    band = problem.band
    low, high = 0.0, math.inf
    steep, last_price, last_total = -0.7, 0.0, 0.0
    for _ in range(100):
        tau = _best_deadline(size, tau, latest, problem)
        price = band[0]
        total, _ = _bought(tau, size, problem)
        if abs(total - 1.0) <= _WHOLE or high - low <= 1e-14 * low:
            break
        if total > 1.0:
            low = price
        else:
            high = price
        if last_price > 0.0 and total != last_total:
            steep = math.log(total / last_total) / math.log(price / last_price)
            steep = min(max(steep, -4.0), -0.2)
        last_price, last_total = price, total
        new = price * math.exp(-math.log(total) / steep)
        if not low < new < high:
            new = math.sqrt(low * high) if low > 0.0 and high < math.inf else price * total**2
        band[0] = new
    return tau


@compiled
def _fitting(size: int, latest: float, problem: _Problem) -> int:
    """Leave those that need most of the band out of a cohort that cannot finish by ``latest``.

    Gives the number of the devices left, which stand first.
    """
    t, nodes, members, costs = problem.t, problem.nodes, problem.members, problem.costs
    total = 0.0
    for member in range(size):
        costs[member] = least_share(latest, members[member], t, nodes)
        total += costs[member]
    while total >= 1.0 and size > 1:
        most = np.argmax(costs[:size])
        total -= costs[most]
        size -= 1
        members[most], costs[most] = members[size], costs[size]
    return size


@compiled
def _reprice(problem: _Problem) -> None:
    """Keep the tangents below the costs after a change of the price.

    Costs grow with the price, and are concave in it and not negative, so that they fall by no more
    than the price does, relative.
    """
    t, tangents, band = problem.t, problem.tangents, problem.band
    ratio = min(1.0, band[0] / band[1])
    for n in range(t.shape[1]):
        queue = t[PARTICIPATION, n]
        tangents[_VALUE, n] = ratio * (tangents[_VALUE, n] + queue) - queue
        tangents[_SLOPE, n] *= ratio
        tangents[_RENEWED, n] = -1.0
    band[1] = band[0]


@compiled
def _best_price(tau: float, goal: float, slack: float, problem: _Problem) -> tuple[float, int]:
    """Set a price with nearly the largest bound on decisions for the deadline tau.

    The bound is concave in the price, and its slope is what is bought beyond the whole band. By the
    secant method, or by where the tangents on both sides meet, the search goes on until no more
    than a fifth of the slack is to be gained, or of what the bound is above the goal. Gives the
    bound, and the number of devices in the cohort there.
    """
    band = problem.band
    low, low_bound, low_slope = 0.0, 0.0, 0.0
    high, high_bound, high_slope = math.inf, 0.0, 0.0
    best, best_price, size = -math.inf, band[0], 0
    last_price, last_total, power = 0.0, 0.0, 1.5
    for step in range(_MOST_PRICES):
        price = band[0]
        value, _, size = _select(tau, tau, tau, problem)
        total, _ = _bought(tau, size, problem)
        bound, slope = value - price, total - 1.0
        if bound > best:
            best, best_price = bound, price
        enough = 0.2 * max(slack, best - goal)
        if slope > 0.0:
            low, low_bound, low_slope = price, bound, slope
        else:
            high, high_bound, high_slope = price, bound, slope
        if last_price > 0.0 and total != last_total:
            power = -math.log(price / last_price) / math.log(total / last_total)
            power = min(max(power, 0.5), 4.0)
        last_price, last_total = price, total
        new = price * max(total, 1e-3) ** power
        if bound == best and 0.5 * abs(slope * (new - price)) <= enough:
            break
        if low > 0.0 and high < math.inf:
            meet = low_bound - high_bound + high_slope * high - low_slope * low
            meet /= high_slope - low_slope
            if low_bound + low_slope * (meet - low) - best <= enough:
                break
            if step % 2 == 1 or not low < new < high:  # where the cohort changes there is a kink
                new = meet
        if not low < new < high:
            break
        band[0] = new
        _reprice(problem)
    if band[0] != best_price:
        band[0] = best_price
        _reprice(problem)
        _, _, size = _select(tau, tau, tau, problem)
    return best, size


@compiled
def _improve(
    size: int, tau: float, best: float, latest: float, problem: _Problem, chosen: BoolArray
) -> tuple[float, float, float]:
    """Alternate between the best split of a cohort and the best cohort at its price and deadline.

    Gives the deadline, the price and the value if that is below ``best``, and notes the cohort.
    """
    V, _, _, _, members, _, band = problem
    best_tau, best_price = -1.0, 0.0
    for _ in range(100):
        tau = _split(size, tau, latest, problem)
        _, value = _bought(tau, size, problem)
        value += V * tau
        if not value < best or best - value <= 1e-10 * abs(value):
            break
        best, best_tau, best_price = value, tau, band[0]
        chosen[:] = False
        for member in range(size):
            chosen[members[member]] = True
        _reprice(problem)
        bound, _, size = _select(tau, tau, tau, problem)
        if bound - band[0] >= value - 1e-12 * abs(value):
            break
    _reprice(problem)
    return best_tau, best_price, best


@compiled
def _share(
    problem: _Problem, tolerance: float, latest: float, chosen: BoolArray
) -> tuple[float, float]:
    """`_search` where the band is shared out; notes the cohort, and sets the price of its split."""
    V, t, nodes, tangents, _, costs, band = problem
    band[0], least = 0.0, math.inf
    floor = _least_costs(problem)
    band[0] = math.inf
    for n in range(t.shape[1]):
        tangents[_START, n] = V / costs.size
        if t[FIRST, n] < math.inf:  # the price at which K devices with equal parts have the same
            least = min(least, t[LEAST, n])
            log, _, _, _ = expected_log(costs.size * t[P_MAX, n], n, nodes)
            band[0] = min(band[0], V * t[UPLOAD, n] * costs.size / log)
    band[1] = band[0]
    at = _start(latest, problem)
    _, count = _best_price(at, math.inf, tolerance * V * at, problem)
    tau, price, best = _improve(count, at, math.inf, latest, problem, chosen)
    at, lower = tau, best
    stack = np.empty((128, 2))  # intervals of deadlines
    stack[0, 0], stack[0, 1] = least, latest
    size, used = 1, 0
    while size > 0:
        size -= 1
        a, b = stack[size, 0], stack[size, 1]
        b = min(b, (1.0 + _ROUNDING) * (best - floor) / V)  # beyond, time alone costs too much
        if not a <= b:
            continue
        used += 1
        if b - a <= 1e-12 * b or size + 2 > len(stack) or used > _MOST_SHARED:
            value, _, _ = _select(b, b, b, problem)
            lower = min(lower, value - band[0] - V * (b - a))  # costs fall with the deadline
            continue
        if used > 1:
            at = 0.5 * (a + b)
        slack = tolerance * max(abs(best), V * least)
        bound, count = _best_price(at, best - slack, slack, problem)
        if bound < best - slack:
            own_price = band[0]
            new, new_price, value = _improve(count, at, best, latest, problem, chosen)
            band[0] = own_price
            if value < best:
                best, tau, price = value, new, new_price
                if a <= new <= b:
                    at, band[0] = new, new_price
            _reprice(problem)
            bound, _, _ = _select(at, at, at, problem)
            bound -= band[0]
        goal = min(best, bound + slack, lower + slack) - slack + band[0]
        right, bound = _reach_right(at, b, goal, goal + 0.1 * slack, problem)
        lower = min(lower, bound - band[0])
        left, bound = _reach_left(at, a, goal, goal + 0.1 * slack, problem)
        lower = min(lower, bound - band[0])
        if a < left:
            stack[size, 0], stack[size, 1] = a, left
            size += 1
        if right < b:
            stack[size, 0], stack[size, 1] = right, b
            size += 1
    band[0] = price
    return tau, min(lower, best)


# Rows of a batch


@compiled
def _problem(V: float, cohort_size: int, constants: FloatArray, num_nodes: int) -> _Problem:
    """Room for the problems of rounds with so many nodes."""
    t, nodes = begin_table(constants, num_nodes)
    size = min(cohort_size, t.shape[1])
    tangents = np.zeros((6, t.shape[1]))
    members, costs, band = np.empty(size, dtype=np.int64), np.empty(size), np.full(2, -1.0)
    return _Problem(V, t, nodes, tangents, members, costs, band)


@compiled
def _admit(
    row: int, participation: FloatArray, available: BoolArray, latest: float, problem: _Problem
) -> float:
    """Write who may come in, and give the time by which they finish: infinity if nobody can."""
    t = problem.t
    reach = math.inf
    for n in range(t.shape[1]):
        t[PARTICIPATION, n] = participation[row, n]
        there = available.shape[0] == 0 or available[row, n]
        t[FIRST, n] = t[LEAST, n] if there else math.inf
        if t[FIRST, n] <= latest:
            reach = latest
    for n in range(t.shape[1]):
        if t[FIRST, n] > reach:
            t[FIRST, n] = math.inf
    return reach


@entry
def solve_rows(
    begin: int,
    end: int,
    gain: FloatArray,
    probability: FloatArray,
    queue: FloatArray,
    constants: FloatArray,
    V: float,
    cohort_size: int,
    participation: FloatArray,
    available: BoolArray,
    latest: float,
    tolerance: float,
    bound_only: bool,
    shared: bool,
    f: FloatArray,
    p: FloatArray,
    share: FloatArray,
    participates: BoolArray,
    objective: FloatArray,
    lower: FloatArray,
    deadline: FloatArray,
) -> None:
    """Solve the problem of each round, or bound its least value alone.

    ``f``, ``p``, ``share`` of the band and ``participates`` hold the decisions, and ``objective``,
    ``lower`` and ``deadline`` their values, lower bounds on the least ones, and the times of the
    rounds. The shares are written where the band is ``shared``. ``available``, where it has rows,
    is the mask of the devices that may take part. The times of the rounds are at most ``latest``.
    Where nobody can meet that the bound is infinite, and the decision is one without it.
    """
    problem = _problem(V, cohort_size, constants, gain.shape[2])
    t, nodes, tangents = problem.t, problem.nodes, problem.tangents
    num_devices = t.shape[1]
    chosen, part = np.zeros(num_devices, np.bool_), np.ones(num_devices)
    for row in range(begin, end):
        begin_round(gain[row], probability[row], queue[row], t, nodes)
        begin_deadlines(t, nodes)
        reach = _admit(row, participation, available, latest, problem)
        if bound_only and reach > latest:
            lower[row] = math.inf
            continue
        if shared:
            tau, lower[row] = _share(problem, tolerance, reach, chosen)
            if tau > _EARLY * reach:  # nobody is to be late by the errors of the roots
                size = 0
                for n in np.flatnonzero(chosen):
                    problem.members[size] = n
                    size += 1
                tau = _split(size, tau, _EARLY * reach, problem)
        else:
            tau, lower[row] = _search(_start(reach, problem), problem, tolerance, reach)
        if bound_only:
            continue
        if not shared:
            for n in range(num_devices):
                tangents[_RENEWED, n] = -1.0
                chosen[n] = False
            _, _, size = _select(tau, tau, tau, problem)
            for member in range(size):
                chosen[problem.members[member]] = True
        for n in range(num_devices):
            participates[row, n] = chosen[n]
            if chosen[n]:
                f[row, n], p[row, n], part[n] = _decide(tau, n, problem)
        # The root of the price may be a little off.
        whole = max(1.0, part[chosen].sum()) if shared else 1.0
        longest, value = 0.0, 0.0
        for n in range(num_devices):
            if chosen[n]:
                part[n] /= whole
                log, _, _, _ = expected_log(p[row, n] / part[n], n, nodes)
                time, energy = spent(f[row, n], p[row, n], part[n] * log, n, t)
                longest = max(longest, time)
                value += t[QUEUE, n] * energy - t[PARTICIPATION, n]
            if shared:
                share[row, n] = part[n] if chosen[n] else 0.0
        for n in range(num_devices):
            if not chosen[n]:
                f[row, n], p[row, n], _ = _decide(longest, n, problem)
        objective[row] = value + V * longest
        lower[row] = min(lower[row], objective[row])
        deadline[row] = longest


@compiled
def _decide(tau: float, n: int, problem: _Problem) -> tuple[float, float, float]:
    """The f, p and share of device n for a deadline; the share is one where parts are equal."""
    _, t, nodes, tangents, _, _, band = problem
    if band[0] >= 0.0:
        _, _, bought = _buy(tau, n, _EXACT, problem)
        return bought.f, bought.p, bought.share
    f, p, _, _ = on_time(tau, tangents[_START, n], n, t, nodes)
    return f, p, 1.0


@entry
def meet_rows(
    begin: int,
    end: int,
    gain: FloatArray,
    probability: FloatArray,
    queue: FloatArray,
    constants: FloatArray,
    V: float,
    cohort_size: int,
    participates: BoolArray,
    latest: float,
    shared: bool,
    f: FloatArray,
    p: FloatArray,
    share: FloatArray,
) -> None:
    """Give the f and p of a given cohort that minimise ``V max T + sum Q E``, and its shares.

    The least energy that finishes by a deadline is convex in the deadline, which is at most
    ``latest``. A member that cannot meet that gets the least f and p, and the others the best ones
    without it; if nobody can, all get those that are best without ``latest``. Where the band is
    ``shared``, a member that cannot meet it gets next to none of it.
    """
    problem = _problem(V, cohort_size, constants, gain.shape[2])
    t, nodes, tangents, members = problem.t, problem.nodes, problem.tangents, problem.members
    for row in range(begin, end):
        begin_round(gain[row], probability[row], queue[row], t, nodes)
        begin_deadlines(t, nodes)
        reach = math.inf
        for n in range(t.shape[1]):
            if participates[row, n] and t[LEAST, n] <= latest:
                reach = latest
        size = 0
        for n in range(t.shape[1]):
            tangents[_START, n] = V / cohort_size if shared else t[P_MAX, n]
            if participates[row, n] and t[LEAST, n] <= reach:
                members[size] = n
                size += 1
        if shared:
            if reach < math.inf:
                reach *= _EARLY
                size = _fitting(size, reach, problem)
            first = members[0]
            problem.band[0] = V * t[UPLOAD, first] * size / t[LOG_MAX, first]
            deadline = _split(size, 0.0, reach, problem)
        else:
            deadline = _best_deadline(size, 0.0, reach, problem)
        for n in range(t.shape[1]):
            f[row, n], p[row, n], part = _decide(deadline, n, problem)
            meets = False
            for member in range(size):
                meets = meets or members[member] == n
            if shared:
                share[row, n] = part if meets else 0.0
            if participates[row, n] and not meets:
                f[row, n], p[row, n] = t[F_MIN, n], t[P_MIN, n]
                if shared:
                    share[row, n] = _NEXT_TO_NONE
        if shared:
            share[row] /= max(1.0, share[row].sum())

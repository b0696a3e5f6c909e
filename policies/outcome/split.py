"""The outcome problem where the band is shared out, compiled: best splits, and their search.

See `policies.outcome.search` for the bound.
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env.typing import BoolArray
from policies.band import least_share
from policies.compiled import compiled
from policies.device import FIRST, LEAST, P_MAX, PARTICIPATION, UPLOAD, expected_log
from policies.outcome.search import (
    EXACT,
    RENEWED,
    ROUNDING,
    SLOPE,
    START,
    START_U,
    VALUE,
    Problem,
    best_deadline,
    buy,
    least_costs,
    reach_left,
    reach_right,
    select,
    start,
)

# Intervals that the search may spend; what is then left open gets a plain bound.
_MOST_INTERVALS = 400
# Intervals after which the tolerance is ten times as large, and again after as many.
_EASED = 100
# Prices of the band that are tried for a deadline.
_MOST_PRICES = 40
# By which power of what is bought the price may change at most.
_STIFF = 4.0
# By how much the shares of the best split may miss the whole band, and where they are too many.
_WHOLE, _IN_FULL = 1e-8, 1e-6


@compiled
def _bought(tau: float, size: int, problem: Problem) -> tuple[float, float]:
    """Sum of the shares of the cohort found last for a deadline, and of their worths of energy."""
    t, members, band = problem.t, problem.members, problem.band
    total, value = 0.0, 0.0
    for member in range(size):
        n = members[member]
        _, _, bought = buy(tau, n, EXACT, problem)
        total += bought.share
        value += bought.cost - band[0] * bought.share - t[PARTICIPATION, n]
    return total, value


@compiled
def split(size: int, tau: float, latest: float, problem: Problem) -> float:
    """Set the price at which the cohort found last buys the whole band; its best deadline there.

    The secant method between the logarithms of the price and of what is bought, in a bracket.
    """
    band = problem.band
    low, high = 0.0, math.inf
    steep, last_price, last_total = -0.7, 0.0, 0.0
    for _ in range(100):
        tau = best_deadline(size, tau, latest, problem)
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
def fitting(size: int, latest: float, problem: Problem) -> int:
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
def _reprice(problem: Problem) -> None:
    """Keep the tangents below the costs after a change of the price.

    Costs grow with the price, and are concave in it and not negative, so that they fall by no more
    than the price does, relative.
    """
    t, tangents, band = problem.t, problem.tangents, problem.band
    ratio = min(1.0, band[0] / band[1])
    for n in range(t.shape[1]):
        queue = t[PARTICIPATION, n]
        tangents[VALUE, n] = ratio * (tangents[VALUE, n] + queue) - queue
        tangents[SLOPE, n] *= ratio
        tangents[RENEWED, n] = -1.0
    band[1] = band[0]


@compiled
def _best_price(tau: float, goal: float, slack: float, problem: Problem) -> tuple[float, int]:
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
        value, _, size = select(tau, tau, tau, problem)
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
            power = min(max(power, 0.5), _STIFF)
        last_price, last_total = price, total
        new = price * max(total, 1e-3) ** power
        if power == _STIFF:  # the devices need what they buy: until the cohort changes
            new = price * (8.0 if slope > 0.0 else 0.125)
        elif bound == best and 0.5 * abs(slope * (new - price)) <= enough:
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
        _, _, size = select(tau, tau, tau, problem)
    return best, size


@compiled
def _improve(
    size: int, tau: float, best: float, latest: float, problem: Problem, chosen: BoolArray
) -> tuple[float, float, float]:
    """Alternate between the best split of a cohort and the best cohort at its price and deadline.

    Gives the deadline, the price and the value if that is below ``best``, and notes the cohort.
    """
    V, _, _, _, members, _, band = problem
    best_tau, best_price = -1.0, 0.0
    for _ in range(100):
        tau = split(size, tau, latest, problem)
        total, value = _bought(tau, size, problem)
        value += V * tau
        if total > 1.0 + _IN_FULL:  # no split lets all of them finish in time
            break
        if not value < best or best - value <= 1e-10 * abs(value):
            break
        best, best_tau, best_price = value, tau, band[0]
        chosen[:] = False
        for member in range(size):
            chosen[members[member]] = True
        _reprice(problem)
        bound, _, size = select(tau, tau, tau, problem)
        if bound - band[0] >= value - 1e-12 * abs(value):
            break
    _reprice(problem)
    return best_tau, best_price, best


@compiled
def share_out(
    problem: Problem, tolerance: float, latest: float, chosen: BoolArray
) -> tuple[float, float]:
    """`search` where the band is shared out; notes the cohort, and sets the price of its split."""
    V, t, nodes, tangents, _, costs, band = problem
    band[0], least = 0.0, math.inf
    floor = least_costs(problem)
    band[0] = math.inf
    for n in range(t.shape[1]):
        tangents[START, n], tangents[START_U, n] = V / costs.size, 0.0
        if t[FIRST, n] < math.inf:  # the price at which K devices with equal parts have the same
            least = min(least, t[LEAST, n])
            log, _, _, _ = expected_log(costs.size * t[P_MAX, n], n, nodes)
            band[0] = min(band[0], V * t[UPLOAD, n] * costs.size / log)
    band[1] = band[0]
    at = start(latest, problem)
    _, count = _best_price(at, math.inf, tolerance * V * at, problem)
    tau, price, best = _improve(count, at, math.inf, latest, problem, chosen)
    if best == math.inf:  # in time there is at least who finishes first with the whole band
        problem.members[0] = np.argmin(t[FIRST])
        tau, price, best = _improve(1, latest, math.inf, latest, problem, chosen)
    at, lower = tau, best
    stack = np.empty((128, 2))  # intervals of deadlines
    stack[0, 0], stack[0, 1] = least, latest
    size, used = 1, 0
    while size > 0:
        size -= 1
        a, b = stack[size, 0], stack[size, 1]
        b = min(b, (1.0 + ROUNDING) * (best - floor) / V)  # beyond, time alone costs too much
        if not a <= b:
            continue
        used += 1
        last = b - a <= 1e-12 * b or size + 2 > len(stack) or used > _MOST_INTERVALS
        if used > 1:
            at = b if last else 0.5 * (a + b)
        # Where many intervals have not sufficed, it has to be content with a weaker proof.
        slack = tolerance * 10.0 ** (used // _EASED) * max(abs(best), V * least)
        bound, count = _best_price(at, best - slack, slack, problem)
        if bound < best - slack:
            own_price = band[0]
            new, new_price, value = _improve(count, at, best, latest, problem, chosen)
            band[0] = own_price
            if value < best:
                best, tau, price = value, new, new_price
                if a <= new <= b and not last:
                    at, band[0] = new, new_price
            _reprice(problem)
            bound, _, _ = select(at, at, at, problem)
            bound -= band[0]
        if last:
            lower = min(lower, bound - V * (b - a))  # costs fall with the deadline
            continue
        goal = min(best, bound, lower + slack) - slack + band[0]
        right, bound = reach_right(at, b, goal, goal + 0.1 * slack, problem)
        lower = min(lower, bound - band[0])
        left, bound = reach_left(at, a, goal, goal + 0.1 * slack, problem)
        lower = min(lower, bound - band[0])
        if a < left:
            stack[size, 0], stack[size, 1] = a, left
            size += 1
        if right < b:
            stack[size, 0], stack[size, 1] = right, b
            size += 1
    band[0] = price
    return tau, min(lower, best)

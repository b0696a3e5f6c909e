"""The outcome problem compiled: rows of a batch.

The search is that of `policies.outcome.search`, or where the band is shared out that of
`policies.outcome.split`.
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray
from policies.compiled import compiled, entry
from policies.device import (
    F_MIN,
    FIRST,
    LEAST,
    LOG_MAX,
    P_MAX,
    P_MIN,
    PARTICIPATION,
    QUEUE,
    UPLOAD,
    begin_deadlines,
    begin_round,
    expected_log,
    on_time,
    spent,
)
from policies.outcome.search import (
    EXACT,
    RENEWED,
    START,
    START_U,
    Problem,
    best_deadline,
    buy,
    new_problem,
    search,
    select,
    start,
)
from policies.outcome.split import fitting, share_out, split

# Part of the time to the system's deadline that a decision uses where roots have errors.
_EARLY = 1.0 - 1e-7
# Share of a device that would be late with any.
_NEXT_TO_NONE = 1e-11


@compiled
def _admit(
    row: int, participation: FloatArray, available: BoolArray, latest: float, problem: Problem
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
    problem = new_problem(V, cohort_size, constants, gain.shape[2])
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
            tau, lower[row] = share_out(problem, tolerance, reach, chosen)
            if tau > _EARLY * reach:  # nobody is to be late by the errors of the roots
                size = 0
                for n in range(num_devices):
                    if chosen[n]:
                        problem.members[size] = n
                        size += 1
                tau = split(size, tau, _EARLY * reach, problem)
        else:
            tau, lower[row] = search(start(reach, problem), problem, tolerance, reach)
        if bound_only:
            continue
        if not shared:
            for n in range(num_devices):
                tangents[RENEWED, n] = -1.0
                chosen[n] = False
            _, _, size = select(tau, tau, tau, problem)
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
def _decide(tau: float, n: int, problem: Problem) -> tuple[float, float, float]:
    """The f, p and share of device n for a deadline; the share is one where parts are equal."""
    _, t, nodes, tangents, _, _, band = problem
    if band[0] >= 0.0:
        _, _, bought = buy(tau, n, EXACT, problem)
        return bought.f, bought.p, bought.share
    f, p, _, _ = on_time(tau, tangents[START, n], n, t, nodes)
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
    problem = new_problem(V, cohort_size, constants, gain.shape[2])
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
            tangents[START, n] = V / cohort_size if shared else t[P_MAX, n]
            tangents[START_U, n] = 0.0
            if participates[row, n] and t[LEAST, n] <= reach:
                members[size] = n
                size += 1
        if shared:
            if reach < math.inf:
                reach *= _EARLY
                size = fitting(size, reach, problem)
            first = members[0]
            problem.band[0] = V * t[UPLOAD, first] * size / t[LOG_MAX, first]
            deadline = split(size, 0.0, reach, problem)
        else:
            deadline = best_deadline(size, 0.0, reach, problem)
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

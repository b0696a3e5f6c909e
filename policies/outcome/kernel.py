"""The outcome problem compiled: rows of a batch, with the search of `policies.outcome.search`."""

from __future__ import annotations

import math

from fl_edge_env.typing import BoolArray, FloatArray
from policies.outcome.search import (
    RENEWED,
    START,
    Problem,
    best_deadline,
    new_problem,
    search,
    select,
    start,
)
from policies.solvers.compiled import compiled, entry
from policies.solvers.device import (
    F_MIN,
    FIRST,
    LEAST,
    P_MAX,
    P_MIN,
    PARTICIPATION,
    QUEUE,
    SNR,
    begin_deadlines,
    begin_round,
    logarithm,
    on_time,
    spent,
)


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
    queue: FloatArray,
    constants: FloatArray,
    V: float,
    cohort_size: int,
    participation: FloatArray,
    available: BoolArray,
    latest: float,
    tolerance: float,
    bound_only: bool,
    f: FloatArray,
    p: FloatArray,
    participates: BoolArray,
    objective: FloatArray,
    lower: FloatArray,
    deadline: FloatArray,
) -> None:
    """Solve the problem of each round, or bound its least value alone.

    ``f``, ``p`` and ``participates`` hold the decisions, and ``objective``, ``lower`` and
    ``deadline`` their values, lower bounds on the least ones, and the times of the rounds.
    ``available``, where it has rows, is the mask of the devices that may take part. The times of
    the rounds are at most ``latest``. Where nobody can meet that the bound is infinite, and the
    decision is one without it.
    """
    problem = new_problem(V, cohort_size, constants)
    t, tangents = problem.t, problem.tangents
    num_devices = t.shape[1]
    for row in range(begin, end):
        begin_round(gain[row], queue[row], t)
        begin_deadlines(t)
        reach = _admit(row, participation, available, latest, problem)
        if bound_only and reach > latest:
            lower[row] = math.inf
            continue
        tau, lower[row] = search(start(reach, problem), problem, tolerance, reach)
        if bound_only:
            continue
        for n in range(num_devices):
            tangents[RENEWED, n] = -1.0
            participates[row, n] = False
        _, _, size = select(tau, tau, tau, problem)
        for member in range(size):
            participates[row, problem.members[member]] = True
        longest, value = 0.0, 0.0
        for n in range(num_devices):
            if participates[row, n]:
                f[row, n], p[row, n] = _decide(tau, n, problem)
                log, _, _ = logarithm(p[row, n], t[SNR, n])
                time, energy = spent(f[row, n], p[row, n], log, n, t)
                longest = max(longest, time)
                value += t[QUEUE, n] * energy - t[PARTICIPATION, n]
        for n in range(num_devices):
            if not participates[row, n]:
                f[row, n], p[row, n] = _decide(longest, n, problem)
        objective[row] = value + V * longest
        lower[row] = min(lower[row], objective[row])
        deadline[row] = longest


@compiled
def _decide(tau: float, n: int, problem: Problem) -> tuple[float, float]:
    """The f and p of device n for a deadline."""
    f, p, _, _ = on_time(tau, problem.tangents[START, n], n, problem.t)
    return f, p


@entry
def meet_rows(
    begin: int,
    end: int,
    gain: FloatArray,
    queue: FloatArray,
    constants: FloatArray,
    V: float,
    cohort_size: int,
    participates: BoolArray,
    latest: float,
    f: FloatArray,
    p: FloatArray,
) -> None:
    """Give the f and p of a given cohort that minimise ``V max T + sum Q E``.

    The least energy that finishes by a deadline is convex in the deadline, which is at most
    ``latest``. A member that cannot meet that gets the least f and p, and the others the best ones
    without it; if nobody can, all get those that are best without ``latest``.
    """
    problem = new_problem(V, cohort_size, constants)
    t, tangents, members = problem.t, problem.tangents, problem.members
    for row in range(begin, end):
        begin_round(gain[row], queue[row], t)
        begin_deadlines(t)
        reach = math.inf
        for n in range(t.shape[1]):
            if participates[row, n] and t[LEAST, n] <= latest:
                reach = latest
        size = 0
        for n in range(t.shape[1]):
            tangents[START, n] = t[P_MAX, n]
            if participates[row, n] and t[LEAST, n] <= reach:
                members[size] = n
                size += 1
        deadline = best_deadline(size, 0.0, reach, problem)
        for n in range(t.shape[1]):
            f[row, n], p[row, n] = _decide(deadline, n, problem)
            if participates[row, n] and t[LEAST, n] > reach:
                f[row, n], p[row, n] = t[F_MIN, n], t[P_MIN, n]

"""The outcome problem for the rows of a batch, compiled; `policies.outcome.search` solves a row."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray
from policies.outcome.search import (
    RENEWED,
    START,
    best_deadline,
    new_problem,
    search,
    select,
    start,
)
from policies.solvers.compiled import entry
from policies.solvers.device import (
    FIRST,
    LEAST,
    PARTICIPATION,
    QUEUE,
    SNR,
    begin_deadlines,
    begin_round,
    logarithm,
    on_time,
    spent,
)
from policies.solvers.inputs import F_MIN, P_MAX, P_MIN, Rounds


class Options(NamedTuple):
    """Participation queues, limits on cohorts and deadlines, and the accuracy of solutions."""

    participation: FloatArray  # (B, N), the participation queues
    available: BoolArray  # (B, N)
    latest: float  # the longest that a round may take
    tolerance: float
    bound_only: bool
    cohort_only: bool


class Decisions(NamedTuple):
    """Decisions of a batch of rounds, their values, and lower bounds on the optimal values."""

    f: FloatArray  # (B, N)
    p: FloatArray  # (B, N)
    participates: BoolArray  # (B, N)
    deadline: FloatArray  # (B,), the times of the rounds
    objective: FloatArray  # (B,)
    lower: FloatArray  # (B,)


@entry
def solve_rows(begin: int, end: int, rounds: Rounds, options: Options, results: Decisions) -> None:
    """Solve the problem of each round, or only bound its optimal value.

    If no device can finish by ``latest``, decisions ignore it, and with `bound_only` the bound is
    infinite. With `cohort_only` the other devices get f_min and p_min.
    """
    rounds = Rounds(*rounds)
    options = Options(*options)
    problem = new_problem(rounds)
    t = problem.t
    tangents = problem.tangents
    num_devices = t.shape[1]
    f, p, participates, deadline, objective, lower = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], t)
        begin_deadlines(t)
        reach = math.inf  # the deadline, unless no device meets it
        for n in range(num_devices):
            t[PARTICIPATION, n] = options.participation[row, n]
            t[FIRST, n] = t[LEAST, n] if options.available[row, n] else math.inf
            if t[FIRST, n] <= options.latest:
                reach = options.latest
        for n in range(num_devices):
            if t[FIRST, n] > reach:
                t[FIRST, n] = math.inf
        if options.bound_only and reach > options.latest:
            lower[row] = math.inf
            continue
        tau, lower[row] = search(start(reach, problem), problem, options.tolerance, reach)
        if options.bound_only:
            continue
        for n in range(num_devices):
            tangents[RENEWED, n] = -1.0
            participates[row, n] = False
        _, _, size = select(tau, tau, tau, problem)
        for member in range(size):
            participates[row, problem.members[member]] = True
        longest = 0.0
        value = 0.0
        for n in range(num_devices):
            if participates[row, n]:
                f[row, n], p[row, n] = on_time(tau, tangents[START, n], n, t)[:2]
                log, _, _ = logarithm(p[row, n], t[SNR, n])
                time, energy = spent(f[row, n], p[row, n], log, n, t)
                longest = max(longest, time)
                value += t[QUEUE, n] * energy - t[PARTICIPATION, n]
        for n in range(num_devices):
            if not participates[row, n]:
                if options.cohort_only:
                    f[row, n] = t[F_MIN, n]
                    p[row, n] = t[P_MIN, n]
                else:
                    f[row, n], p[row, n] = on_time(longest, tangents[START, n], n, t)[:2]
        objective[row] = value + problem.V * longest
        lower[row] = min(lower[row], objective[row])
        deadline[row] = longest


@entry
def meet_rows(
    begin: int,
    end: int,
    rounds: Rounds,
    options: tuple[BoolArray, float],
    results: tuple[FloatArray, FloatArray],
) -> None:
    """Write the f and p of a given cohort that minimise ``V max T + sum Q E``.

    Options are the cohort's mask and the latest deadline. The least energy for a deadline is convex
    in the deadline. A member that cannot meet the latest deadline gets f_min and p_min, and the
    others are optimised without it. If no member can meet it, the deadline has no limit.
    """
    rounds = Rounds(*rounds)
    participates, latest = options
    f, p = results
    problem = new_problem(rounds)
    t = problem.t
    tangents = problem.tangents
    members = problem.members
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], t)
        begin_deadlines(t)
        reach = math.inf
        for n in range(t.shape[1]):
            if participates[row, n] and t[LEAST, n] <= latest:
                reach = latest
        size = int(np.int64(0))  # see `select`
        for n in range(t.shape[1]):
            tangents[START, n] = t[P_MAX, n]
            if participates[row, n] and t[LEAST, n] <= reach:
                members[size] = n
                size += 1
        deadline = best_deadline(size, 0.0, reach, problem)
        for n in range(t.shape[1]):
            f[row, n], p[row, n] = on_time(deadline, tangents[START, n], n, t)[:2]
            if participates[row, n] and t[LEAST, n] > reach:
                f[row, n] = t[F_MIN, n]
                p[row, n] = t[P_MIN, n]

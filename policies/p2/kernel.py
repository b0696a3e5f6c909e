"""P2, compiled: Algorithm 2.

`policies.solvers.device` has a device's best f and p at a price of energy. This file uses two
facts. The ratio pi_n / q_n = sum_{k<K} (1 - q_n)^k avoids cancellation, and makes the best f and p
functions of one number, the price of energy. And for a single device,

    m_n(q) = min over f, p of  V q T_n + Q_n pi(q) E_n

is a minimum of concave functions of q, hence concave: its tangents bound it from above, as in the
SUM step of Algorithm 2, and its chords bound it from below, as in `policies.p2.certificate`.

Algorithm 2 loops over all devices without calls or branches, so the processor computes several
devices at once. Their number changes no result, because the order of additions is fixed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env.allocation import LEAST_Q
from fl_edge_env.typing import FloatArray
from policies.solvers.compiled import compiled, entry, merged
from policies.solvers.device import (
    LOG_MAX,
    QUEUE,
    RATE_MAX,
    begin_round,
    begin_table,
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
_STILL = 1e-8
_MOST_ITERATIONS = 100


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


@compiled
def new_problem(rounds: Rounds) -> Problem:
    """Allocate the memory that the rounds of a batch use in turn."""
    memory = np.empty((4, rounds.constants.shape[1]))
    table = begin_table(rounds.constants)
    return Problem(rounds.V, rounds.cohort_size, table, memory[0], memory[1], memory[2], memory[3])


@compiled
def total_of(values: FloatArray) -> float:
    """The sum, in four parts that vectorise."""
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
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
def write_participations(q: FloatArray, problem: Problem) -> None:
    """Write pi/q and (d pi/dq) / K, which are sum_{k<K} (1 - q)^k and (1 - q)^(K-1)."""
    ratio = problem.ratio
    power = problem.power
    for n in range(q.size):
        ratio[n] = 1.0
        power[n] = 1.0
    for _ in range(problem.cohort_size - 1):
        for n in range(q.size):
            power[n] *= 1.0 - q[n]
            ratio[n] += power[n]


@compiled
def write_resources(f: FloatArray, p: FloatArray, problem: Problem) -> None:
    """Write the best f and p at the ratio ``pi / q``, with their times and energies.

    This is `best_at` for each device, in loops of which all but one vectorise.
    """
    V, _, t, ratio, _, time, energy = problem
    price = time  # until these are known
    log = energy
    for n in range(ratio.size):
        price[n] = t[QUEUE, n] * ratio[n] / V
    for n in range(ratio.size):
        f[n] = best_f(price[n], t[CAPACITANCE, n], t[F_MIN, n], t[F_MAX, n])
    for n in range(ratio.size):
        p[n] = t[P_MAX, n]
        log[n] = t[LOG_MAX, n]
    for n in range(ratio.size):
        if price[n] * t[RATE_MAX, n] > 1.0:
            p[n], log[n] = best_p(price[n], n, t)
    for n in range(ratio.size):
        time[n], energy[n] = spent(f[n], p[n], log[n], n, t)


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
    root_sum = total_of(root)
    # The power mean is below the arithmetic one.
    left = max(left, root_sum**2 - total_of(work) / root_sum)
    nu = max(left, guess + least)
    for _ in range(100):
        for n in range(size):
            inverse = 1.0 / (slope[n] - least + nu)
            q[n] = root[n] * math.sqrt(inverse)
            work[n] = q[n] * inverse
        total = total_of(q)
        step = total * (total * total - 1.0) / total_of(work)
        if abs(step) <= 1e-7 * nu:
            # The last step follows the tangent, with an error that is quadratic in the step.
            nu += step
            for n in range(size):
                q[n] -= 0.5 * step * work[n]
            break
        nu = max(left, nu + step)
    total = total_of(q)
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
    last_f = work[0]
    last_p = work[1]
    start = work[2]
    previous = work[3]
    slope = work[4]
    root = work[5]
    line = work[6]
    queue = work[7]
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
    write_participations(q, problem)
    for _ in range(_MOST_ITERATIONS):
        for n in range(q.size):
            last_f[n] = f[n]
            last_p[n] = p[n]
            start[n] = q[n]
        write_resources(f, p, problem)
        for _ in range(_MOST_ITERATIONS):
            for n in range(q.size):
                previous[n] = q[n]
                slope[n] = V * time[n] + queue[n] * energy[n] * cohort_size * power[n]
            nu = _minimise_on_simplex(slope, root, q, line, nu)
            write_participations(q, problem)
            for n in range(q.size):
                line[n] = (q[n] - previous[n]) ** 2
            if math.sqrt(total_of(line)) <= _STILL:
                break
        for n in range(q.size):
            line[n] = (q[n] - start[n]) ** 2
            line[n] += ((f[n] - last_f[n]) * t[F_SCALE, n]) ** 2
            line[n] += ((p[n] - last_p[n]) * t[P_SCALE, n]) ** 2
        if not math.sqrt(total_of(line)) > _STILL:
            break
    for n in range(q.size):
        line[n] = V * q[n] * time[n] + t[ERROR, n] / q[n]
        line[n] += t[QUEUE, n] * (q[n] * ratio[n] * energy[n] - t[BUDGET, n])
    return total_of(line)


# Rows of a batch


@entry
def solve_rows(
    begin: int, end: int, rounds: Rounds, paper: tuple[bool], results: Decisions
) -> None:
    """Run Algorithm 2 from the q of ``results``, which hold the decisions afterwards."""
    rounds = Rounds(*rounds)
    problem = new_problem(rounds)
    work = np.empty((8, rounds.queue.shape[1]))
    f, p, q, objective = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        objective[row] = _descend(f[row], p[row], q[row], paper[0], problem, work)


@entry
def resource_rows(begin: int, end: int, rounds: Rounds, results: tuple[FloatArray, ...]) -> None:
    """Write the best f and p at q, the first of the results, with their times and energies."""
    rounds = Rounds(*rounds)
    problem = new_problem(rounds)
    q, f, p, time, energy = results
    for row in range(begin, end):
        begin_round(rounds.gain[row], rounds.queue[row], problem.t)
        write_participations(q[row], problem)
        write_resources(f[row], p[row], problem)
        for n in range(q.shape[1]):
            time[row, n] = problem.time[n]
            energy[row, n] = problem.energy[n]

"""The per-round problem P2, solved by Algorithm 2 of the paper, and a proof of optimality.

P2 minimises over f and p in their ranges and q on the simplex

    V sum_n (q_n T_n + lambda w_n^2 / q_n) + sum_n Q_n (pi_n E_n - budget_n),

with T_n and E_n the time and energy of a device and pi_n = 1 - (1 - q_n)^K. The work is done in
`policies.p2.kernel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env.checks import all_true, integer_at_least, is_real, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray, IntArray
from policies.solvers.inputs import Rounds, check_rounds

Variant = Literal["derived", "paper"]


@dataclass(frozen=True, eq=False)
class P2Solution:
    """A solution of P2 for one state or a batch of them.

    Attributes
    ----------
    f, p, q : ndarray, shape (N,) or (B, N)
        The decision, in hertz and watt.
    objective : float or ndarray, shape (B,)
        Its drift-plus-penalty [J^2].
    iterations : int or ndarray, shape (B,)
        Outer iterations of Algorithm 2 from its own starting point.
    """

    f: FloatArray
    p: FloatArray
    q: FloatArray
    objective: float | FloatArray
    iterations: int | IntArray
    _rounds: Rounds

    @cached_property
    def lower_bound(self) -> float | FloatArray:
        """A lower bound on P2's optimal value [J^2], computed when first asked for.

        It is the largest value found of the Lagrangian dual of ``sum q = 1``, in which each
        device's (f, p, q) is minimised globally. Where P2 is not convex that may leave a gap, up to
        a quarter of the objective where 60 devices of the CIFAR-10 system settle. Then the duals of
        parts of P2, by the range of the largest q_n, come within 0.01 % of the optimum in all
        systems that were tried, and a larger distance is that of the decision.
        """
        q, objective = np.atleast_2d(self.q), np.atleast_1d(self.objective)
        bound, *_ = _bound(self._rounds, q, objective, branch=True)
        return float(bound[0]) if self.q.ndim == 1 else bound

    @property
    def gap(self) -> float | FloatArray:
        """Proven distance to the optimum, relative: ``(objective - lower_bound) / scale``.

        The scale is the larger of the objective's magnitude and its penalty part, because the
        objective itself passes through zero.
        """
        errors = _errors(self._rounds.scenario, self.q)
        scale = np.maximum(np.abs(self.objective), errors)
        gap = (self.objective - self.lower_bound) / scale
        return float(gap) if self.q.ndim == 1 else gap


def solve_p2(
    channel_gain: ArrayLike,
    queue: ArrayLike,
    scenario: Scenario,
    *,
    variant: Variant = "derived",
    exact: bool = False,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
) -> P2Solution:
    """Solve P2 by alternating minimisation, Algorithm 2 of the paper.

    f and p follow from q in closed form (Theorems 2 and 3); q follows from f and p by
    successive upper-bound minimisation (SUM), each step of which is a Newton search for one
    multiplier.

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N)
        Channel gains h_n, positive.
    queue : array_like, shape (N,) or (B, N)
        Virtual energy queues Q_n [J], not negative.
    scenario : Scenario
        The system and its weights lambda and V.
    variant : {"derived", "paper"}
        P2.2 as it follows from P2, or as the paper prints it, where the concave term lost
        the queue.
    exact : bool
        Also start from the points that the dual suggests and from single devices, and return
        the best solution. Only where P2 is not convex does this find a better one, by up to 7 %
        where 60 devices of the CIFAR-10 system settle.
    tolerance : float
        Stop when the decision moves by less, f and p measured in units of their ranges; also
        the SUM steps, by q.
    max_iterations : int
        Bound on the outer iterations, and on the SUM steps in each.

    Returns
    -------
    P2Solution

    Raises
    ------
    ValueError
        If a shape or a value is wrong.

    Examples
    --------
    >>> scenario = Scenario.cifar10()
    >>> solution = solve_p2(np.full(120, 0.1), np.zeros(120), scenario)
    >>> bool(np.allclose(solution.q, 1 / 120))
    True
    """
    check_variant(variant, exact)
    if not is_real(tolerance) or not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance!r}")
    integer_at_least(1, "max_iterations", max_iterations)
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    # The certificate comes later: by then the caller may have moved on in the same arrays.
    rounds = Rounds(rounds.gain.copy(), rounds.queue.copy(), scenario)
    q = np.full(rounds.queue.shape, 1.0 / scenario.num_devices)
    options = (variant == "paper", float(tolerance), int(min(max_iterations, 2**31)))
    f, p, objective, iterations = _descend(rounds, q, options)
    if exact:
        _improve(rounds, options, f, p, q, objective)
    if len(shape) == 1:
        return P2Solution(f[0], p[0], q[0], float(objective[0]), int(iterations[0]), rounds)
    return P2Solution(f, p, q, objective, iterations, rounds)


def _run(name: str, rounds: Rounds, *arguments: object) -> None:
    """Run a function of the kernel over the rounds."""
    from policies.p2 import kernel  # here, because numba takes half a second to import

    scenario = rounds.scenario
    rounds.run(getattr(kernel, name), scenario.V, scenario.cohort_size, *arguments)


def _descend(
    rounds: Rounds, q: FloatArray, options: tuple[bool, float, int]
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Algorithm 2 from q, which holds the result: f, p, objectives and iterations."""
    f, p, objective = np.empty_like(q), np.empty_like(q), np.empty(len(q))
    iterations = np.empty(len(q), dtype=np.int64)
    _run("solve_rows", rounds, *options, f, p, q, objective, iterations)
    return f, p, objective, iterations


def _bound(
    rounds: Rounds, q: FloatArray, objective: FloatArray, *, branch: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bounds, and the devices' minimisers on both sides of the best multiplier."""
    low, high, bound = np.empty_like(q), np.empty_like(q), np.empty(len(q))
    _run("bound_rows", rounds, q, objective, branch, low, high, bound)
    return bound, low, high


def _errors(scenario: Scenario, q: FloatArray) -> FloatArray:
    """The sampling error's part of the objectives, ``V sum lambda w^2 / q``."""
    error = scenario.V * scenario.lambda_ * scenario.weights**2
    errors: FloatArray = np.sum(error / q, axis=-1)
    return errors


def _improve(
    rounds: Rounds,
    options: tuple[bool, float, int],
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
    objective: FloatArray,
) -> None:
    """Replace rows of a solution by better ones if other starts lead to them.

    P2 has several local minima only where some devices' costs are not convex. At the best
    multiplier such a device has two minimisers, and the optimum gives what is left of the
    probability to few of them. The starts are the minimisers at both ends of the bracket, the
    lower ones with the rest given to one device, and single devices.
    """
    num_devices = rounds.scenario.num_devices
    bound, low, high = _bound(rounds, q, objective, branch=False)
    scale = np.abs(objective) + _errors(rounds.scenario, q)
    *_, alone = _resources(rounds, np.ones_like(q))
    with np.errstate(invalid="ignore"):  # of infinities nothing is proven
        closed = objective - bound <= 1e-9 * scale
    for row in np.flatnonzero(~closed):
        jumping, cheapest = np.argsort(low[row] - high[row])[:8], np.argsort(alone[row])[:8]
        single = np.full((len(cheapest), num_devices), 1e-3 / num_devices)
        np.put_along_axis(single, cheapest[:, None], 1.0, axis=1)
        rest = np.repeat(low[row, None], len(jumping), axis=0)
        rest[np.arange(len(jumping)), jumping] += max(0.0, 1.0 - low[row].sum())
        starts = np.maximum(np.vstack([low[row], high[row], single, rest]), 1e-9 / num_devices)
        starts /= starts.sum(axis=-1, keepdims=True)
        gain, queue = (np.repeat(part[row, None], len(starts), axis=0) for part in rounds[:2])
        own = Rounds(gain, queue, rounds.scenario)
        *resources, values, _ = _descend(own, starts, options)
        best = np.argmin(values)
        if values[best] < objective[row]:
            objective[row], q[row] = values[best], starts[best]
            f[row], p[row] = (part[best] for part in resources)


def _resources(rounds: Rounds, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The best f and p at q, and what each device costs without its sampling error."""
    f, p, cost = (np.empty_like(q) for _ in range(3))
    _run("resource_rows", rounds, q, f, p, cost)
    return f, p, cost


def check_variant(variant: object, exact: object) -> None:
    """Raise `ValueError` where `solve_p2` would refuse one of these."""
    if not isinstance(variant, str) or variant not in get_args(Variant):
        raise ValueError(f"variant must be 'derived' or 'paper', got {variant!r}")
    if not isinstance(exact, (bool, np.bool_)):
        raise ValueError(f"exact must be True or False, got {exact!r}")


def best_resources(
    channel_gain: ArrayLike, queue: ArrayLike, q: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """The f and p that minimise P2 for a given q, Theorems 2 and 3.

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N)
        Channel gains, positive.
    queue : array_like, shape (N,) or (B, N)
        Virtual energy queues [J].
    q : ndarray, shape (N,) or (B, N)
        Sampling probabilities in (0, 1].
    scenario : Scenario
        The system.

    Returns
    -------
    f, p : ndarray, shape (N,) or (B, N)
        Frequencies [Hz] and powers [W].

    Raises
    ------
    ValueError
        If a shape or a value is wrong.
    """
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    q = real_array("q", q)
    if q.shape != shape and q.shape != shape[-1:]:
        raise ValueError(f"q must have the shape of channel_gain, {shape}, got {q.shape}")
    # Written so that NaN fails the comparisons.
    if not all_true((q > 0) & (q <= 1)):
        raise ValueError(f"q must lie in (0, 1], got values from {q.min()} to {q.max()}")
    f, p, _ = _resources(rounds, np.array(np.atleast_2d(np.broadcast_to(q, shape)), order="C"))
    return f.reshape(shape), p.reshape(shape)

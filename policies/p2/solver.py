"""The per-round problem P2, solved by Algorithm 2 of the paper, with an optimality certificate.

P2 minimises over f and p in their ranges and q on the simplex

    V sum_n (q_n T_n + lambda w_n^2 / q_n) + sum_n Q_n (pi_n E_n - budget_n),

where T_n and E_n are a device's time and energy and pi_n = 1 - (1 - q_n)^K. `policies.p2.kernel`
has the algorithm, and `policies.p2.certificate` the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env.checks import PROBABILITY, one_of
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray
from policies.solvers.inputs import ERROR, Rounds, check_rounds, like_gains, rows

if TYPE_CHECKING:
    from policies.p2.certificate import Bounds
    from policies.p2.kernel import Decisions

Variant = Literal["derived", "paper"]


@dataclass(frozen=True, eq=False)
class P2Solution:
    """A solution of P2 for one state or a batch of them.

    Attributes
    ----------
    f, p, q : ndarray, shape (N,) or (B, N)
        The decision: frequencies [Hz], powers [W] and sampling probabilities.
    objective : float or ndarray, shape (B,)
        Drift-plus-penalty of the decision [J^2].
    """

    f: FloatArray
    p: FloatArray
    q: FloatArray
    objective: float | FloatArray
    _rounds: Rounds

    @cached_property
    def lower_bound(self) -> float | FloatArray:
        """A lower bound on P2's optimal value [J^2], computed on first access.

        The bound is the largest value found of the Lagrangian dual of ``sum q = 1``, which
        minimises over each device's (f, p, q) globally. If P2 is not convex, this may leave a gap
        of up to a quarter of the objective. The duals of parts of P2, split by the range of the
        largest q_n, then raise the bound. It is proven to be a lower bound, but may be below the
        optimum.
        """
        q = np.atleast_2d(self.q)
        bound = _bound(self._rounds, q, np.atleast_1d(self.objective), branch=True).bound
        return bound if self.q.ndim == 2 else float(bound[0])

    @property
    def gap(self) -> float | FloatArray:
        """Proven distance to the optimum, relative: ``(objective - lower_bound) / scale``.

        The scale is the larger of the objective's magnitude and its penalty part, because the
        objective itself passes through zero.
        """
        scale = np.maximum(np.abs(self.objective), _errors(self._rounds, self.q))
        return (self.objective - self.lower_bound) / scale


def solve_p2(
    channel_gain: ArrayLike,
    queue: ArrayLike,
    scenario: Scenario,
    *,
    variant: Variant = "derived",
    exact: bool = False,
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
        P2.2 as it follows from P2, or as the paper prints it, without the queue in the concave
        term.
    exact : bool
        Also start from the points that the dual suggests and from single devices, and return the
        best solution. This can improve the solution only if P2 is not convex, by up to 7 % at the
        settled queues of 60 devices of the CIFAR-10 system.

    Returns
    -------
    P2Solution

    Examples
    --------
    >>> scenario = Scenario.cifar10()
    >>> solution = solve_p2(np.full(120, 0.1), np.zeros(120), scenario)
    >>> bool(np.allclose(solution.q, 1 / 120))
    True
    """
    check_variant(variant, exact)
    paper = variant == "paper"
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    q = np.full(rounds.queue.shape, 1.0 / scenario.num_devices)
    decisions = _descend(rounds, q, paper)
    if exact:
        _improve(rounds, paper, decisions)
    if len(shape) == 1:
        decisions = type(decisions)._make(values[0] for values in decisions)
    return P2Solution(*decisions, rounds)


def _descend(rounds: Rounds, q: FloatArray, paper: bool) -> Decisions:
    """Run Algorithm 2 from q."""
    from policies.p2 import kernel  # here, because numba takes half a second to import

    decisions = kernel.Decisions(np.empty_like(q), np.empty_like(q), q, np.empty(len(q)))
    rounds.run(kernel.solve_rows, (paper,), decisions)
    return decisions


def _bound(rounds: Rounds, q: FloatArray, objective: FloatArray, *, branch: bool) -> Bounds:
    """Bound P2 from below in rounds for which decisions are known."""
    from policies.p2 import certificate

    bounds = certificate.Bounds(np.empty_like(q), np.empty_like(q), np.empty(len(q)))
    rounds.run(certificate.bound_rows, (q, objective, branch), bounds)
    return bounds


def _resources(rounds: Rounds, q: FloatArray) -> tuple[FloatArray, ...]:
    """Return the best f and p at q, with their times and energies."""
    from policies.p2 import kernel

    resources = tuple(np.empty((4, *q.shape)))
    rounds.run(kernel.resource_rows, (q, *resources))
    return resources


def _errors(rounds: Rounds, q: FloatArray) -> FloatArray:
    """The sampling error's part of the objectives, ``V sum lambda w^2 / q``."""
    return np.sum(rounds.constants[ERROR] / q, axis=-1)


def _improve(rounds: Rounds, paper: bool, decisions: Decisions) -> None:
    """Replace rows of a solution for which other starts give better ones.

    P2 has several local minima only if some devices' costs are not convex. At the best multiplier
    such a device has two minimisers, and the optimum gives the remaining probability to few such
    devices. The starts are the minimisers at both ends of the bracket, the lower ones with the
    remaining probability on one device, and single devices.
    """
    q = decisions.q
    objective = decisions.objective
    num_devices = q.shape[1]
    low, high, bound = _bound(rounds, q, objective, branch=False)
    scale = np.abs(objective) + _errors(rounds, q)
    *_, time, energy = _resources(rounds, np.ones_like(q))
    alone = rounds.V * time + rounds.queue * energy
    with np.errstate(invalid="ignore"):  # infinities prove nothing
        closed = objective - bound <= 1e-9 * scale
    for row in np.flatnonzero(~closed):
        jumping = np.argsort(low[row] - high[row])[:8]
        cheapest = np.argsort(alone[row])[:8]
        single = np.full((len(cheapest), num_devices), 1e-3 / num_devices)
        np.put_along_axis(single, cheapest[:, None], 1.0, axis=1)
        rest = np.repeat(low[row, None], len(jumping), axis=0)
        rest[np.arange(len(jumping)), jumping] += max(0.0, 1.0 - low[row].sum())
        starts = np.maximum(np.vstack([low[row], high[row], single, rest]), 1e-9 / num_devices)
        starts /= starts.sum(axis=-1, keepdims=True)
        gain, queue = (np.repeat(part[row, None], len(starts), axis=0) for part in rounds[:2])
        found = _descend(rounds._replace(gain=gain, queue=queue), starts, paper)
        best = np.argmin(found.objective)
        if found.objective[best] < objective[row]:
            for kept, new in zip(decisions, found, strict=True):
                kept[row] = new[best]


def check_variant(variant: object, exact: object) -> None:
    """Raise `ValueError` for invalid options of `solve_p2`."""
    one_of("variant", variant, get_args(Variant))
    if not isinstance(exact, bool):
        raise ValueError(f"exact must be True or False, got {exact!r}")


def best_resources(
    channel_gain: ArrayLike, queue: ArrayLike, q: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Minimise P2 over f [Hz] and p [W] for a given q in (0, 1], Theorems 2 and 3.

    Gains, queues [J] and q have shape (N,) or (B, N); queues and q of one system may serve a batch.
    """
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    f, p, *_ = _resources(rounds, rows(like_gains("q", q, shape, PROBABILITY)))
    return f.reshape(shape), p.reshape(shape)

"""The outcome problem of a round, solved to a proven distance from its global optimum.

It chooses a cohort S of 1 to K distinct devices and their f and p, to minimise

    V max_{n in S} T_n + sum_{n in S} (Q_n E_n - Z_n),

where T_n and E_n are a device's time and energy, Q_n is its energy queue and Z_n its participation
queue. A device has B/K of the bandwidth for every size of S. If the scenario has a deadline, all
devices of S must meet it, unless no device can. `policies.outcome.search` has the algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env import physics
from fl_edge_env.checks import FINITE, PROBABILITY, number_in
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray
from policies.solvers.inputs import Rounds, check_rounds, like_gains, rows

if TYPE_CHECKING:
    from policies.outcome.kernel import Decisions


@dataclass(frozen=True, eq=False)
class RoundSolution:
    """A solution of the outcome problem for one state or a batch of them.

    Attributes
    ----------
    f, p : ndarray, shape (N,) or (B, N)
        Frequencies [Hz] and powers [W] of least energy with which a device meets the deadline, or
        of least time if it cannot. Only the cohort's are used.
    participates : ndarray of bool, shape (N,) or (B, N)
        Whether a device is in the cohort.
    deadline : float or ndarray, shape (B,)
        Longest time in the cohort [s].
    objective : float or ndarray, shape (B,)
        Value of the decision [J^2].
    lower_bound : float or ndarray, shape (B,)
        A lower bound on the values of all decisions that meet the scenario's deadline, or of all
        decisions if none does [J^2].
    """

    f: FloatArray
    p: FloatArray
    participates: BoolArray
    deadline: float | FloatArray
    objective: float | FloatArray
    lower_bound: float | FloatArray
    _V: float

    @property
    def gap(self) -> float | FloatArray:
        """Proven distance to the optimum, relative: ``(objective - lower_bound) / scale``.

        The scale is the larger of the objective's magnitude and its part ``V deadline``, because
        the objective itself passes through zero.
        """
        scale = np.maximum(np.abs(self.objective), self._V * self.deadline)
        return (self.objective - self.lower_bound) / scale


def solve_round(
    channel_gain: ArrayLike,
    energy_queue: ArrayLike,
    participation_queue: ArrayLike,
    scenario: Scenario,
    *,
    V: float | None = None,
    tolerance: float = 1e-6,
    available: BoolArray | None = None,
    cohort_only: bool = False,
) -> RoundSolution:
    """Choose a cohort, its frequencies and powers, and prove the distance to the optimum.

    For a given deadline each device has a least energy, and the cheapest devices are the best
    cohort. Branch and bound over the deadline finds the global optimum: the energies are convex in
    the deadline, and their tangents bound every cohort from below.

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N)
        Channel gains h_n, positive.
    energy_queue : array_like, shape (N,) or (B, N)
        Energy queues Q_n [J], not negative.
    participation_queue : array_like, shape (N,) or (B, N)
        Participation queues Z_n times their scale [J^2], of any sign.
    scenario : Scenario
        The system.
    V : float, optional
        Weight of the time [J^2/s]; by default the scenario's.
    tolerance : float
        Relative distance to the optimum that must be proven; see `RoundSolution.gap`.
    available : ndarray of bool, shape (N,) or (B, N), optional
        Devices that may be in the cohort, at least one in each round; all by default. K does not
        depend on it.
    cohort_only : bool
        Give the devices outside the cohort f_min and p_min, which is faster.

    Returns
    -------
    RoundSolution

    Examples
    --------
    >>> scenario = Scenario.cifar10()
    >>> gain = np.linspace(0.01, 0.5, 120)
    >>> solution = solve_round(gain, np.zeros(120), np.zeros(120), scenario)
    >>> np.flatnonzero(solution.participates).tolist(), solution.gap <= 1e-6
    ([119], True)
    """
    rounds, shape = check_rounds(channel_gain, energy_queue, scenario, V)
    decisions = _search(
        rounds,
        shape,
        participation_queue,
        available,
        scenario.deadline_s,
        tolerance,
        cohort_only=cohort_only,
    )
    if len(shape) == 1:
        decisions = type(decisions)._make(values[0] for values in decisions)
    return RoundSolution(*decisions, rounds.V)


def bound_rounds(
    channel_gain: ArrayLike,
    energy_price: ArrayLike,
    participation_price: ArrayLike,
    scenario: Scenario,
    *,
    tolerance: float = 1e-4,
    available: BoolArray | None = None,
) -> FloatArray:
    """Lower bounds on the priced times of many rounds.

    A bound is the optimal value of `solve_round` with V = 1 and prices instead of queues, to within
    the tolerance and never above. If the scenario has a deadline, it also holds for cohorts with
    late devices, and for rounds that end once the first devices have finished; it is then at most
    the deadline.

    Parameters
    ----------
    channel_gain : array_like, shape (B, N)
        Channel gains h_n of the rounds, positive.
    energy_price : array_like, shape (N,) or (B, N)
        Prices of energy m_n [s/J], not negative.
    participation_price : array_like, shape (N,) or (B, N)
        Prices of participation z_n [s], of any sign.
    scenario : Scenario
        The system.
    tolerance : float
        As in `solve_round`.
    available : ndarray of bool, shape (B, N), optional
        Devices that may be in the cohort, at least one in each round; all by default.

    Returns
    -------
    ndarray, shape (B,)
        The bounds [s].
    """
    rounds, shape = check_rounds(channel_gain, energy_price, scenario, V=1.0)
    # Slightly later, because rounding must not make a device late.
    latest = scenario.deadline_s * (1.0 + 2.0 * physics.ROUNDING)
    bound = _search(
        rounds, shape, participation_price, available, latest, tolerance, bound_only=True
    ).lower
    # Consider a round that ends at tau <= D, by the deadline or once the first devices have
    # finished. A late device costs m E >= 0 and earns no z. The other devices are a cohort that
    # finishes by tau, and so cost at least as much as the best one that finishes by D. If there are
    # no others, the round ends at D and costs at least D.
    return np.minimum(bound, scenario.deadline_s)


def _search(
    rounds: Rounds,
    shape: tuple[int, ...],
    participation: ArrayLike,
    available: BoolArray | None,
    latest: float,
    tolerance: float,
    *,
    bound_only: bool = False,
    cohort_only: bool = False,
) -> Decisions:
    """Check the other arguments, and run the kernel's search over the rounds."""
    from policies.outcome import kernel  # here, because numba takes half a second to import

    queues = like_gains("participation_queue", participation, shape, FINITE)
    mask = np.ones(rounds.queue.shape, np.bool_)
    if available is not None:
        mask = rows(np.asarray(available))
        if np.shape(available) != shape or mask.dtype != np.bool_:
            raise ValueError(
                f"available must be bool with the shape of channel_gain, {shape}, "
                f"got {mask.dtype} of shape {np.shape(available)}"
            )
        if not mask.any(axis=-1).all():
            raise ValueError("available must contain at least one device in every round, got none")
    tolerance = number_in(PROBABILITY, "tolerance", tolerance)
    options = kernel.Options(rows(queues), mask, latest, tolerance, bound_only, cohort_only)
    f = np.empty_like(rounds.queue)
    p = np.empty_like(rounds.queue)
    participates = np.empty(f.shape, np.bool_)
    decisions = kernel.Decisions(f, p, participates, *np.empty((3, len(f))))
    rounds.run(kernel.solve_rows, options, decisions)
    return decisions

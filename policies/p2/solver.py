"""The per-round problem P2, solved by Algorithm 2 of the paper, and a proof of optimality.

P2 minimises over f and p in their ranges and q on the simplex

    V sum_n (q_n T_n + lambda w_n^2 / q_n) + sum_n Q_n (pi_n E_n - budget_n),

with T_n and E_n the time and energy of a device and pi_n = 1 - (1 - q_n)^K. The work is done in
`policies.p2.kernel`. Where the latency is the round time, the mean of the longest T_n in the
cohort stands in the place of ``sum q_n T_n``, and `policies.p2.longest` goes on from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env.channels import GainLaw
from fl_edge_env.channels.protocol import check_law
from fl_edge_env.checks import all_true, integer_at_least, is_real, real_array
from fl_edge_env.lyapunov import LATENCIES
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray, IntArray
from policies.p2 import kernel, longest

Variant = Literal["derived", "paper"]
Latency = Literal["proxy", "round_time"]


@dataclass(frozen=True, eq=False)
class P2Solution:
    """A solution of P2 for one state or a batch of them.

    Attributes
    ----------
    f, p, q : ndarray, shape (N,) or (B, N)
        The decision, in hertz and watt.
    objective : float or ndarray, shape (B,)
        Its drift-plus-penalty [J^2], with the latency that was minimised.
    iterations : int or ndarray, shape (B,)
        Outer iterations of Algorithm 2 from its own starting point; with the round time as
        latency those after the solution for the proxy.
    """

    f: FloatArray
    p: FloatArray
    q: FloatArray
    objective: float | FloatArray
    iterations: int | IntArray
    _gains: kernel.Gains
    _queue: FloatArray
    _scenario: Scenario

    @cached_property
    def lower_bound(self) -> float | FloatArray:
        """A lower bound on P2's optimal value [J^2], computed when first asked for.

        It is the largest value found of the Lagrangian dual of ``sum q = 1``, in which each
        device's (f, p, q) is minimised globally. Where P2 is not convex (small lambda) the
        duality gap may stay open. With the round time as latency it is the bound for the proxy,
        which is at most as long: it holds, but does not close.
        """
        bound_of = kernel.bound_row if self.q.ndim == 1 else kernel.bound_rows
        bound: float | FloatArray = bound_of(
            self._gains, self._queue, kernel_system(self._scenario), self.q, self.objective
        )
        return bound

    @property
    def gap(self) -> float | FloatArray:
        """Proven distance to the optimum, relative: ``(objective - lower_bound) / scale``.

        The scale is the larger of the objective's magnitude and its penalty part, because the
        objective itself passes through zero. With the round time as latency the gap is mostly
        that between the round time and the proxy, and says little about the solution.
        """
        error = kernel_system(self._scenario).error
        scale = np.maximum(np.abs(self.objective), np.sum(error / self.q, axis=-1))
        gap = (self.objective - self.lower_bound) / scale
        return float(gap) if self.q.ndim == 1 else gap


def solve_p2(
    channel_gain: ArrayLike | GainLaw,
    queue: ArrayLike,
    scenario: Scenario,
    *,
    variant: Variant = "derived",
    exact: bool = False,
    latency: Latency | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
) -> P2Solution:
    """Solve P2 by alternating minimisation, Algorithm 2 of the paper.

    f and p follow from q in closed form (Theorems 2 and 3); q follows from f and p by
    successive upper-bound minimisation (SUM), each step of which is a Newton search for one
    multiplier.

    With the round time as latency, the mean of the longest time in the cohort stands in the place
    of the proxy ``sum q T``. The same alternation goes on from the proxy's solution, and ends at
    none that is worse: for a given q the problem in f and p is convex and solved exactly, and for
    given f and p the mean of the longest time is concave in q, which fits the SUM step.

    Of gains that are not known it takes the law, and solves the problem of the expected times and
    energies: in the place of ``1 / ln(1 + h p / N0)`` stands its expectation, and the theorems,
    the convergence and the certificate hold as before (see `policies.p2.kernel`).

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N), or GainLaw, shape (N, J) or (B, N, J)
        Channel gains h_n, positive, or what they may be.
    queue : array_like, shape (N,) or (B, N)
        Virtual energy queues Q_n [J], not negative.
    scenario : Scenario
        The system and its weights lambda and V.
    variant : {"derived", "paper"}
        P2.2 as it follows from P2, or as the paper prints it, where the concave term lost
        the queue.
    exact : bool
        Also start from the points that the dual suggests and from single devices, and return
        the best solution. Only where P2 is not convex does this find a better one. With the
        round time as latency it is the search for the proxy's solution that is exact.
    latency : {"proxy", "round_time"}, optional
        What stands for the round time: the paper's ``sum q T`` or the mean of the longest time
        in the cohort, as in `fl_edge_env.lyapunov.latency`. That of the scenario by default, and
        of a law always the first.
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
    minimised = check_latency(latency, scenario)
    if not is_real(tolerance) or not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance!r}")
    integer_at_least(1, "max_iterations", max_iterations)
    gains, queues = check_gains(channel_gain, queue, scenario)
    if gains.probability is not None:
        if latency == "round_time":
            raise ValueError(
                "latency must be 'proxy' or None where the gains are a law, got 'round_time': the "
                "mean of the longest time is not minimised over gains that are not known"
            )
        minimised = "proxy"
    f, p, q = np.empty_like(queues), np.empty_like(queues), np.empty_like(queues)
    options = kernel.Options(
        variant == "paper", bool(exact), float(tolerance), int(min(max_iterations, 2**31))
    )
    solver = longest if minimised == "round_time" else kernel
    solve = solver.solve_row if queues.ndim == 1 else solver.solve_rows
    objective, iterations = solve(gains, queues, kernel_system(scenario), options, f, p, q)
    # The certificate comes later: by then the caller may have moved on in the same arrays.
    gain, probability = gains
    kept = kernel.Gains(gain.copy(), None if probability is None else probability.copy())
    return P2Solution(f, p, q, objective, iterations, kept, queues.copy(), scenario)


def check_variant(variant: object, exact: object) -> None:
    """Raise `ValueError` where `solve_p2` would refuse one of these."""
    if not isinstance(variant, str) or variant not in get_args(Variant):
        raise ValueError(f"variant must be 'derived' or 'paper', got {variant!r}")
    if not isinstance(exact, (bool, np.bool_)):
        raise ValueError(f"exact must be True or False, got {exact!r}")


def check_latency(latency: object, scenario: Scenario) -> str:
    """The latency that `solve_p2` minimises, or `ValueError` where it would refuse this one."""
    if latency is None:
        return scenario.latency
    if not isinstance(latency, str) or latency not in LATENCIES:
        raise ValueError(
            f"latency must be 'proxy', 'round_time' or None for the scenario's, got {latency!r}"
        )
    return latency


def best_resources(
    channel_gain: ArrayLike | GainLaw, queue: ArrayLike, q: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """The f and p that minimise P2 for a given q, Theorems 2 and 3.

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N), or GainLaw, shape (N, J) or (B, N, J)
        Channel gains, or what they may be; see `solve_p2`.
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
    gains, queues = check_gains(channel_gain, queue, scenario)
    shape = queues.shape
    q = real_array("q", q)
    if q.shape != shape and q.shape != shape[-1:]:
        raise ValueError(f"q must have the shape of channel_gain, {shape}, got {q.shape}")
    # Written so that NaN fails the comparisons.
    if not all_true((q > 0) & (q <= 1)):
        raise ValueError(f"q must lie in (0, 1], got values from {q.min()} to {q.max()}")
    f, p = kernel.resource_rows(
        as_rows(gains),
        np.atleast_2d(queues),
        kernel_system(scenario),
        np.atleast_2d(np.broadcast_to(q, shape)),
    )
    return f.reshape(shape), p.reshape(shape)


def check_gains(
    channel_gain: ArrayLike | GainLaw, queue: ArrayLike, scenario: Scenario
) -> tuple[kernel.Gains, FloatArray]:
    """The state of a round for the kernel, of known gains or of a law of them.

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N), or GainLaw, shape (N, J) or (B, N, J)
        Gains, or what they may be.
    queue : array_like, shape (N,) or (B, N)
        Queues [J].
    scenario : Scenario
        The system.

    Raises
    ------
    ValueError
        As `check_state`; also if probabilities are negative or do not sum to one.
    """
    if not isinstance(channel_gain, GainLaw):
        gains, queues = check_state(channel_gain, queue, scenario)
        return kernel.Gains(gains, None), queues
    nodes = real_array("the gain of channel_gain", channel_gain.gain)
    if nodes.ndim not in (2, 3) or nodes.shape[-2] != scenario.num_devices:
        raise ValueError(
            "the gain of channel_gain must have shape (N, J) or (B, N, J) with "
            f"N = {scenario.num_devices}, got {nodes.shape}"
        )
    gain, probability = check_law("channel_gain", channel_gain, nodes.shape[:-1])
    # The state with one of the nodes tells what is wrong with the queues.
    one, queues = check_state(gain[..., 0], queue, scenario)
    if gain.shape[-1] == 1:
        return kernel.Gains(np.ascontiguousarray(one), None), queues
    gain, probability = (np.ascontiguousarray(part) for part in (gain, probability))
    return kernel.Gains(_writeable(gain), _writeable(probability)), queues


def as_rows(gains: kernel.Gains) -> kernel.Gains:
    """Gains of one state, or of a batch, as those of a batch."""
    gain, probability = gains
    if probability is None:
        return kernel.Gains(np.atleast_2d(gain), None)
    shape = (-1, *gain.shape[-2:])
    return kernel.Gains(gain.reshape(shape), probability.reshape(shape))


def check_state(
    channel_gain: ArrayLike, queue: ArrayLike, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """The state of a round as arrays for the kernel, if it is one of the scenario.

    Parameters
    ----------
    channel_gain, queue : array_like, shape (N,) or (B, N)
        Gains and queues [J].
    scenario : Scenario
        The system.

    Raises
    ------
    ValueError
        If a shape is wrong, a gain not positive and finite, or a queue negative or not finite.
    """
    gains, queues = real_array("channel_gain", channel_gain), real_array("queue", queue)
    if gains.ndim not in (1, 2) or gains.shape[-1] != scenario.num_devices:
        raise ValueError(
            f"channel_gain must have shape (N,) or (B, N) with N = {scenario.num_devices}, "
            f"got {gains.shape}"
        )
    if queues.shape != gains.shape:
        raise ValueError(
            f"queue must have the shape of channel_gain, {gains.shape}, got {queues.shape}"
        )
    if not gains.size:
        raise ValueError(f"channel_gain must hold at least one row, got shape {gains.shape}")
    # Written so that NaN fails the comparisons.
    if not all_true((gains > 0) & (gains < math.inf)):
        raise ValueError(
            f"channel_gain must be positive and finite, got {gains.min()} to {gains.max()}"
        )
    if not all_true((queues >= 0) & (queues < math.inf)):
        raise ValueError(
            f"queue must be finite and not negative, got {queues.min()} to {queues.max()}"
        )
    return _writeable(gains), _writeable(queues)


def _writeable(values: FloatArray) -> FloatArray:
    """A copy of a read-only array, for which numba would compile everything anew."""
    return values if values.flags.writeable else values.copy()


@lru_cache(maxsize=32)
def kernel_system(scenario: Scenario) -> kernel.System:
    """The scenario as the compiled functions read it."""
    return kernel.System(
        V=scenario.V,
        cohort_size=scenario.cohort_size,
        noise=scenario.noise_power_w,
        upload=scenario.upload_bits * scenario.cohort_size * math.log(2) / scenario.bandwidth_hz,
        error=scenario.V * scenario.lambda_ * scenario.weights**2,
        cycles=scenario.cycles_per_round,
        download=scenario.download_time,
        capacitance=scenario.capacitance,
        f_min=scenario.f_min,
        f_max=scenario.f_max,
        p_min=scenario.p_min,
        p_max=scenario.p_max,
        budget=scenario.energy_budget_j,
    )

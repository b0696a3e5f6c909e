"""Rules for f and p of devices that take part: static, dynamic, or to a common deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env import Scenario, physics
from fl_edge_env.channels import GainLaw
from fl_edge_env.checks import finite_number
from fl_edge_env.typing import BoolArray, FloatArray
from policies.p2 import best_resources
from policies.state import check_rounds, check_state, for_kernel

# Who takes part, as a rule of resources is told: nobody knows yet (None), a mask of the devices
# that do (bool), or the probabilities of a draw (float).
TakingPart: TypeAlias = BoolArray | FloatArray | None

# Gives f and p of shape (..., N) for the gains, the queues, the scenario and who takes part.
ResourceRule: TypeAlias = Callable[
    [FloatArray, FloatArray, Scenario, TakingPart], tuple[FloatArray, FloatArray]
]


def static_resources(channel_gain: FloatArray, scenario: Scenario) -> tuple[FloatArray, FloatArray]:
    """The f and p of Uni-S: mid power, and the frequency that the rest of the energy allows.

    f solves ``(E_cmp + E_up) (1 - (1 - 1/N)^K) = budget``, moved to its range; where uploading
    alone exceeds the budget, f is the smallest. A device that takes part as often as under uniform
    sampling then meets its budget. All arrays have shape (..., N).
    """
    p = np.broadcast_to(scenario.p_mid, channel_gain.shape).copy()
    upload_energy = p * physics.upload_time(channel_gain, p, scenario)
    uniform = np.full(channel_gain.shape, 1.0 / scenario.num_devices)
    participation = physics.participation_probability(uniform, scenario.cohort_size)
    remaining = np.maximum(scenario.energy_budget_j / participation - upload_energy, 0.0)
    f = np.sqrt(2.0 * remaining / (scenario.capacitance * scenario.cycles_per_round))
    return np.clip(f, scenario.f_min, scenario.f_max), p


def deadline_resources(
    channel_gain: ArrayLike | GainLaw,
    queue: ArrayLike,
    participates: BoolArray,
    scenario: Scenario,
    *,
    V: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The f and p of a given cohort that minimise ``V max T + sum Q E`` over the cohort.

    A device that finishes before the slowest wastes energy, so all that can finish together do:
    each spends the least energy with which it meets the best common deadline. That is at most the
    scenario's, for the sake of those that can meet it; the others, which are late whatever they do,
    have the least f and p. With queues of one
    and V in place of its kappa it is the resource problem of FEDL (Tran et al., "Federated learning
    over wireless networks: optimization model design and analysis", INFOCOM 2019).

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N), or GainLaw, shape (N, J) or (B, N, J)
        Gains, or what they may be: T and E are then expected ones.
    queue : array_like, shape (N,) or (B, N)
        Worth of energy Q [J].
    participates : ndarray of bool, shape (N,) or (B, N)
        The cohort, from one to K devices in each row.
    scenario : Scenario
        The system.
    V : float, optional
        Weight of the time [J^2/s]; that of the scenario by default.

    Returns
    -------
    f, p : ndarray, shape (N,) or (B, N)
        Frequencies [Hz] and powers [W]. Devices outside the cohort have those with which they
        would meet its deadline.

    Raises
    ------
    ValueError
        If a shape or a value is wrong.
    """
    V = scenario.V if V is None else finite_number("V", V)
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    members = np.asarray(participates)
    most = min(scenario.cohort_size, scenario.num_devices)
    if members.shape != shape or members.dtype != np.bool_:
        raise ValueError(
            f"participates must be bool of shape {shape}, "
            f"got {members.dtype} of shape {members.shape}"
        )
    sizes = np.count_nonzero(members, axis=-1)
    if np.min(sizes) < 1 or np.max(sizes) > most:
        raise ValueError(
            f"participates must name from 1 to {most} devices, got {np.min(sizes)} to "
            f"{np.max(sizes)}"
        )
    from policies.outcome import kernel  # here, because numba takes half a second to import

    f, p = np.empty_like(rounds.queue), np.empty_like(rounds.queue)
    mask = np.atleast_2d(for_kernel(members))
    options = (float(V), scenario.cohort_size, mask, scenario.deadline_s)
    rounds.run(kernel.meet_rows, *options, f, p)
    return f.reshape(shape), p.reshape(shape)


def _static(
    channel_gain: FloatArray,
    queue: FloatArray,
    scenario: Scenario,
    taking_part: TakingPart = None,  # noqa: ARG001 - whoever takes part
) -> tuple[FloatArray, FloatArray]:
    """`static_resources`, whoever takes part."""
    gains, _ = check_state(channel_gain, queue, scenario)
    return static_resources(gains, scenario)


def _dynamic(
    channel_gain: FloatArray, queue: FloatArray, scenario: Scenario, taking_part: TakingPart = None
) -> tuple[FloatArray, FloatArray]:
    """The f and p that minimise the drift-plus-penalty of those who take part.

    While these are unknown, each device is taken by itself.
    """
    if taking_part is not None and taking_part.dtype == np.bool_:
        return deadline_resources(channel_gain, queue, taking_part.astype(np.bool_), scenario)
    q = np.ones(scenario.num_devices) if taking_part is None else taking_part.astype(np.float64)
    return best_resources(channel_gain, queue, q, scenario)


ResourceName = Literal["static", "dynamic"]

RESOURCES: dict[str, ResourceRule] = {"static": _static, "dynamic": _dynamic}

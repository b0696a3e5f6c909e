"""Virtual queues, penalty and drift: equations (11) and (18) to (24) of the paper."""

from __future__ import annotations

import numpy as np

from fl_edge_env import physics
from fl_edge_env.typing import BoolArray, FloatArray, System


def sampling_error(
    q: FloatArray, weights: FloatArray, available: BoolArray | None = None
) -> FloatArray:
    """``sum_n w_n**2 / q_n``, the sampling term of the convergence bound, equation (18).

    Only `available` devices count; the others may have q = 0. Shape (...).
    """
    if available is not None:
        terms = np.where(available, weights**2 / np.where(available, q, 1.0), 0.0)
    else:
        terms = weights**2 / q
    return terms.sum(axis=-1)


def participation_target(system: System) -> FloatArray:
    """Target participation rate, ``min(K w_n, 1)``, shape (N,): in proportion to the data."""
    return np.minimum(system.cohort_size * system.weights, 1.0)


def constraint_costs(
    energy_spent: FloatArray, in_time: BoolArray, system: System
) -> tuple[FloatArray, FloatArray]:
    """Costs of a round in the constrained problem, each (..., N).

    They are each device's ratio of energy to budget, and its missing participation ``2 - x / rho``:
    x is 1 if it took part `in_time`, otherwise 0, and rho is its `participation_target`. In the
    long run their means must be at most 1.
    """
    missing = 2.0 - in_time / participation_target(system)
    return energy_spent / system.energy_budget_j, missing


def latency(device_time: FloatArray, q: FloatArray, system: System) -> FloatArray:
    """Latency in the penalty [s], shape (...).

    By default the paper's proxy ``sum_n q_n T_n``, equation (11); with ``latency="round_time"`` the
    expected longest time in the cohort, which is at least as long.
    """
    if system.latency == "round_time":
        return physics.expected_maximum(device_time, q, system.cohort_size)
    return (q * device_time).sum(axis=-1)


def energy_excess(
    participation: FloatArray, device_energy: FloatArray, system: System
) -> FloatArray:
    """Excess a_n of the expected energy ``pi_n E_n`` over the budget [J], equation (20).

    `participation` is the probability that each device takes part: pi_n of equation (16), or 1 for
    the devices of a chosen cohort and 0 for the others. All have shape (..., N).
    """
    return participation * device_energy - system.energy_budget_j


def next_queue(queue: FloatArray, excess: FloatArray) -> FloatArray:
    """Virtual energy queue of the next round [J], equation (19)."""
    return np.maximum(queue + excess, 0.0)


def drift(queue: FloatArray, excess: FloatArray) -> FloatArray:
    """``sum_n Q_n a_n``, the controllable part of the drift bound, equation (24) [J^2]."""
    return (queue * excess).sum(axis=-1)


def objective(
    device_time: FloatArray,
    device_energy: FloatArray,
    queue: FloatArray,
    q: FloatArray,
    system: System,
    available: BoolArray | None = None,
) -> FloatArray:
    """`drift_plus_penalty` from the times [s] and energies [J] of the devices.

    Unavailable devices must have q = 0 and do not enter the sampling error.
    """
    participation = physics.participation_probability(q, system.cohort_size)
    excess = energy_excess(participation, device_energy, system)
    error = sampling_error(q, system.weights, available)
    penalty = latency(device_time, q, system) + system.lambda_ * error
    return system.V * penalty + drift(queue, excess)

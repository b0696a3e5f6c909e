"""Virtual queues, penalty and drift, and the calibration of lambda and V.

Equations (11) and (18) to (24) of the paper and the estimates of its Section VII-B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fl_edge_env import physics
from fl_edge_env.typing import FloatArray

# What may stand for the round time in the penalty.
LATENCIES = ("proxy", "round_time")

if TYPE_CHECKING:
    from fl_edge_env.scenario import Scenario


def sampling_error(q: FloatArray, weights: FloatArray) -> FloatArray:
    """``sum_n w_n**2 / q_n``, the sampling term of the convergence bound, equation (18).

    Parameters
    ----------
    q : ndarray, shape (..., N)
        Sampling probabilities, positive.
    weights : ndarray, shape (N,)
        Data weights w_n.

    Returns
    -------
    ndarray, shape (...)
    """
    error: FloatArray = (weights**2 / q).sum(axis=-1)
    return error


def latency(device_time: FloatArray, q: FloatArray, scenario: Scenario) -> FloatArray:
    """The part of the penalty that stands for the round time [s].

    By default the paper's proxy ``sum_n q_n T_n``, equation (11); in a scenario with
    ``latency="round_time"`` the mean of the largest time in the cohort, which is at least as
    long.

    Parameters
    ----------
    device_time : ndarray, shape (..., N)
        Time of each device T_n [s].
    q : ndarray, shape (..., N)
        Sampling probabilities.
    scenario : Scenario
        Supplies K and which of the two it is.

    Returns
    -------
    ndarray, shape (...)
    """
    if scenario.latency == "round_time":
        return physics.expected_maximum(device_time, q, scenario.cohort_size)
    proxy: FloatArray = (q * device_time).sum(axis=-1)
    return proxy


def energy_excess(
    q: FloatArray, device_energy: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Expected energy and its excess over the budget, equation (20).

    Parameters
    ----------
    q : ndarray, shape (..., N)
        Sampling probabilities.
    device_energy : ndarray, shape (..., N)
        Energy of each device if it takes part [J].
    scenario : Scenario
        Supplies K and the budgets.

    Returns
    -------
    energy_expected : ndarray, shape (..., N)
        ``(1 - (1 - q_n)**K) E_n`` [J].
    excess : ndarray, shape (..., N)
        a_n, the expected energy less the budget [J].
    """
    energy_expected = physics.participation_probability(q, scenario.cohort_size) * device_energy
    return energy_expected, energy_expected - scenario.energy_budget_j


def next_queue(queue: FloatArray, excess: FloatArray) -> FloatArray:
    """Virtual energy queue of the next round [J], equation (19)."""
    backlog: FloatArray = np.maximum(queue + excess, 0.0)
    return backlog


def drift(queue: FloatArray, excess: FloatArray) -> FloatArray:
    """``sum_n Q_n a_n``, the controllable part of the drift bound, equation (24) [J^2]."""
    total: FloatArray = (queue * excess).sum(axis=-1)
    return total


def drift_plus_penalty(
    channel_gain: FloatArray,
    queue: FloatArray,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
    scenario: Scenario,
) -> FloatArray:
    """Objective of P2: ``V (latency + lambda sum w^2/q) + sum Q a``.

    Parameters
    ----------
    channel_gain, queue, f, p, q : ndarray, shape (..., N)
        State and decision of the round.
    scenario : Scenario
        The system; in P2 the latency is the proxy.

    Returns
    -------
    ndarray, shape (...)
        The objective; the reward of the round is its negative.
    """
    device_time, device_energy = physics.time_and_energy(channel_gain, f, p, scenario)
    return objective(device_time, device_energy, queue, q, scenario)


def objective(
    device_time: FloatArray,
    device_energy: FloatArray,
    queue: FloatArray,
    q: FloatArray,
    scenario: Scenario,
) -> FloatArray:
    """`drift_plus_penalty` from the times [s] and energies [J] of the devices."""
    _, excess = energy_excess(q, device_energy, scenario)
    penalty = latency(device_time, q, scenario) + scenario.lambda_ * sampling_error(
        q, scenario.weights
    )
    value: FloatArray = scenario.V * penalty + drift(queue, excess)
    return value


def calibrate(scenario: Scenario) -> tuple[float, float]:
    """The weights lambda and V of a scenario from its scale factors mu and nu.

    ``lambda = mu T0 / F0`` with T0 the mean device time at the middle of the frequency and
    power ranges and the mean channel, and F0 the sampling error at ``q = w``, which is one.
    ``V = nu mean(a0**2) / (T0 + lambda F0)`` with a0 the energy excess at the same point and
    ``q = 1/N``.

    Parameters
    ----------
    scenario : Scenario
        Supplies the system and the scale factors.

    Returns
    -------
    lambda_ : float
        Weight of the sampling error [s].
    V : float
        Weight of the penalty against the queues [J^2/s].
    """
    device_time, device_energy = physics.time_and_energy(
        np.full(scenario.num_devices, scenario.channel.mean),
        scenario.f_mid,
        scenario.p_mid,
        scenario,
    )
    time_0 = float(np.mean(device_time))
    error_0 = float(sampling_error(scenario.weights, scenario.weights))
    lambda_ = scenario.mu * time_0 / error_0
    uniform = np.full(scenario.num_devices, 1.0 / scenario.num_devices)
    _, excess_0 = energy_excess(uniform, device_energy, scenario)
    return lambda_, scenario.nu * float(np.mean(excess_0**2)) / (time_0 + lambda_ * error_0)

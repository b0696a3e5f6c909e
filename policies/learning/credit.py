"""What a device's own decision is worth: rewards for agents that decide for one device each."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from fl_edge_env import Allocation, Scenario, lyapunov, physics
from fl_edge_env.typing import BoolArray, FloatArray

Credit = Literal["difference", "local", "team"]
CREDITS: tuple[str, ...] = get_args(Credit)


def local_reward(
    channel_gain: FloatArray,
    queue: FloatArray,
    allocation: Allocation,
    scenario: Scenario,
    available: BoolArray | None = None,
) -> FloatArray:
    """Each device's own terms of the reward, which add up to the reward where it is the proxy.

    ``-(V (q_n T_n + lambda w_n^2/q_n) + Q_n a_n)``: it leaves out what a larger q takes from the
    other devices. The time is always counted by the proxy, of which a device has its own part.

    Parameters
    ----------
    channel_gain, queue : ndarray, shape (..., N)
        State of the round; queues in joules.
    allocation : Allocation
        Decision of the round, with fields of that shape.
    scenario : Scenario
        The system.
    available : ndarray of bool, shape (..., N), optional
        Who was there, where devices drop out; `allocation` then has the q that the cohort was drawn
        from, zero for the others.

    Returns
    -------
    ndarray, shape (..., N)
    """
    q = allocation.q
    assert q is not None  # an agent's action is a sampled decision
    device_time, device_energy = physics.time_and_energy(
        channel_gain, allocation.f, allocation.p, scenario
    )
    participation = physics.participation_probability(q, scenario.cohort_size)
    _, excess = lyapunov.energy_excess(participation, device_energy, scenario)
    there = q if available is None else np.where(available, q, np.inf)
    penalty = q * device_time + scenario.lambda_ * scenario.weights**2 / there
    reward: FloatArray = -(scenario.V * penalty + queue * excess)
    return reward


def difference_reward(
    channel_gain: FloatArray,
    queue: FloatArray,
    allocation: Allocation,
    scenario: Scenario,
    available: BoolArray | None = None,
) -> FloatArray:
    """The reward less what it would be, had the device decided for the middle of everything.

    For device n the others keep f, p and the ratios of their q, while n has the middle of both
    ranges and ``q = 1/N``. The difference varies with the device's own decision exactly as the
    reward does, and far less with those of the others. It needs the model of the system. Where
    devices drop out, N counts those that are there, and it is zero for the others.

    Parameters
    ----------
    channel_gain, queue, allocation, scenario, available
        As in `local_reward`.

    Returns
    -------
    ndarray, shape (..., N)
    """
    q = allocation.q
    assert q is not None  # an agent's action is a sampled decision
    if channel_gain.ndim > 1:  # N^2 numbers at a time stay in the cache
        presence = [None] * len(q) if available is None else available
        systems = [
            difference_reward(gain, backlog, Allocation(f, p, q), scenario, there)
            for gain, backlog, f, p, q, there in zip(
                channel_gain, queue, allocation.f, allocation.p, q, presence, strict=True
            )
        ]
        return np.stack(systems)
    time, energy = physics.time_and_energy(channel_gain, allocation.f, allocation.p, scenario)
    default = physics.time_and_energy(channel_gain, scenario.f_mid, scenario.p_mid, scenario)
    # In the rows of (N, N) one device after the other has decided otherwise.
    if available is None:
        uniform = np.full(q.shape, 1.0 / scenario.num_devices)
    else:
        uniform = np.where(available, 1.0 / np.count_nonzero(available), 0.0)
    others = (1.0 - uniform) / _share_of_others(q)
    instead = _with_diagonal(q, uniform, others)
    reward: FloatArray = lyapunov.objective(
        _with_diagonal(time, default[0]),
        _with_diagonal(energy, default[1]),
        queue,
        instead,
        scenario,
        available,
    ) - lyapunov.objective(time, energy, queue, q, scenario, available)
    return reward if available is None else np.where(available, reward, 0.0)


def _share_of_others(q: FloatArray) -> FloatArray:
    """``1 - q`` to full precision, also where a device has almost all of q."""
    summed = _with_diagonal(q, np.zeros(q.shape)).sum(axis=-1)
    share: FloatArray = np.where(q < 0.5, 1.0 - q, summed)
    return np.maximum(share, np.finfo(np.float64).tiny)  # a single device has no others


def _with_diagonal(
    value: FloatArray, diagonal: FloatArray, factor: FloatArray | None = None
) -> FloatArray:
    """Copies of (N,) as the rows of (N, N), each scaled, with another entry n in copy n."""
    copies = np.tile(value, (value.size, 1)) if factor is None else np.outer(factor, value)
    np.fill_diagonal(copies, diagonal)
    return copies

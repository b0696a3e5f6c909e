"""Rewards of single devices by the system's model, for agents that decide for one device each."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation, Scenario, lyapunov, physics
from fl_edge_env.typing import BoolArray, FloatArray


def difference_reward(
    channel_gain: FloatArray,
    queue: FloatArray,
    allocation: Allocation,
    scenario: Scenario,
    available: BoolArray | None = None,
) -> FloatArray:
    """The reward less what it would be, had the device decided for the middle of everything.

    All arrays have shape (..., N), queues are in joules. For device n the others keep f, p and the
    ratios of their q, while n has the middle of both ranges and ``q = 1/N``. Where devices drop
    out, `allocation` has the q that the cohort was drawn from, zero for the unavailable ones: N
    counts the available ones, and the reward of the others is zero.
    """
    q = allocation.q
    assert q is not None  # the objective is the penalty
    if channel_gain.ndim > 1:  # N^2 numbers at a time stay in the cache
        presence = [None] * len(q) if available is None else available
        systems = []
        for row, here in enumerate(presence):
            own = Allocation(allocation.f[row], allocation.p[row], q[row])
            systems.append(difference_reward(channel_gain[row], queue[row], own, scenario, here))
        return np.stack(systems)
    time, energy, _ = physics.by_deadline(channel_gain, allocation.f, allocation.p, scenario)
    default = physics.by_deadline(channel_gain, scenario.f_mid, scenario.p_mid, scenario)
    # In the rows of (N, N) one device after the other has decided otherwise.
    if available is None:
        uniform = np.full(q.shape, 1.0 / scenario.num_devices)
    else:
        uniform = np.where(available, 1.0 / np.count_nonzero(available), 0.0)
    # ``1 - q`` to full precision, also where a device has almost all of q.
    rest = np.where(q < 0.5, 1.0 - q, _with_diagonal(q, np.zeros(q.shape)).sum(axis=-1))
    rest = np.maximum(rest, np.finfo(np.float64).tiny)  # a single device has no others
    instead = _with_diagonal(q, uniform, (1.0 - uniform) / rest)
    reward: FloatArray = lyapunov.objective(
        _with_diagonal(time, default[0]),
        _with_diagonal(energy, default[1]),
        queue,
        instead,
        scenario,
        available,
    ) - lyapunov.objective(time, energy, queue, q, scenario, available)
    return reward if available is None else np.where(available, reward, 0.0)


def _with_diagonal(
    value: FloatArray, diagonal: FloatArray, factor: FloatArray | None = None
) -> FloatArray:
    """Copies of (N,) as the rows of (N, N), each scaled, with another entry n in copy n."""
    copies = np.tile(value, (value.size, 1)) if factor is None else np.outer(factor, value)
    np.fill_diagonal(copies, diagonal)
    return copies

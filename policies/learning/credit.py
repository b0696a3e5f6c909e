"""Rewards of single devices from the system's model, for agents that decide for one device."""

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
    """The reward minus its value if the device had mid f, mid p and ``q = 1/N`` instead.

    All arrays have shape (..., N), queues are in joules. In device n's alternative, the others keep
    f, p and the ratios of their q. If devices drop out, `allocation` has the q that the cohort was
    drawn from, zero for unavailable devices; N counts the available ones, and the reward of the
    others is zero.
    """
    q = allocation.q
    assert q is not None  # the objective is the penalty
    if channel_gain.ndim > 1:  # the N^2 numbers of one system fit into the cache
        of_systems = [None] * len(q) if available is None else available
        systems = []
        for row, own_available in enumerate(of_systems):
            own = Allocation(allocation.f[row], allocation.p[row], q[row])
            systems.append(
                difference_reward(channel_gain[row], queue[row], own, scenario, own_available)
            )
        return np.stack(systems)
    time, energy, _ = physics.by_deadline(channel_gain, allocation.f, allocation.p, scenario)
    default = physics.by_deadline(channel_gain, scenario.f_mid, scenario.p_mid, scenario)
    # Row n of an (N, N) array is the alternative of device n.
    reward: FloatArray = lyapunov.objective(
        _with_diagonal(time, default[0]),
        _with_diagonal(energy, default[1]),
        queue,
        _alternatives(q, available),
        scenario,
        available,
    ) - lyapunov.objective(time, energy, queue, q, scenario, available)
    return reward if available is None else np.where(available, reward, 0.0)


def _alternatives(q: FloatArray, available: BoolArray | None) -> FloatArray:
    """The q of all devices in each device's alternative, shape (N, N)."""
    if available is None:
        uniform = np.full(q.shape, 1.0 / q.size)
    else:
        uniform = np.where(available, 1.0 / np.count_nonzero(available), 0.0)
    # ``1 - q`` to full precision, even if one device has almost all of q.
    rest = np.where(q < 0.5, 1.0 - q, _with_diagonal(q, np.zeros(q.shape)).sum(axis=-1))
    rest = np.maximum(rest, np.finfo(np.float64).tiny)  # a single device has no others
    return _with_diagonal(q, uniform, (1.0 - uniform) / rest)


def _with_diagonal(
    value: FloatArray, diagonal: FloatArray, factor: FloatArray | None = None
) -> FloatArray:
    """Repeat (N,) as rows of (N, N), scaling row n by `factor` and replacing its entry n."""
    copies = np.tile(value, (value.size, 1)) if factor is None else np.outer(factor, value)
    np.fill_diagonal(copies, diagonal)
    return copies

"""What a device's own decision is worth: rewards for agents that decide for one device each."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from fl_edge_env import Allocation, Scenario, lyapunov, physics
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

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


def ranked_difference_reward(
    channel_gain: FloatArray,
    queue: FloatArray,
    participation_queue: FloatArray,
    allocation: Allocation,
    next_device: IntArray,
    scenario: Scenario,
) -> FloatArray:
    """How much more the round would have cost, had the device been left out of the ranking.

    Where the objective is the outcome, the devices ranked highest take part. Without a device of
    the cohort the next one in the ranking takes its place, or nobody where none is left; without
    another one nothing changes, so that their reward is zero. It needs the model of the system,
    and the gains of the round.

    Parameters
    ----------
    channel_gain, queue, participation_queue : ndarray, shape (..., N)
        State of the round; queues in joules and rounds.
    allocation : Allocation
        Decision of the round, with the K devices ranked highest as its cohort.
    next_device : ndarray of int, shape (...)
        The one ranked after them, -1 where there is none.
    scenario : Scenario
        The system.

    Returns
    -------
    ndarray, shape (..., N)
        In J^2.
    """
    assert allocation.cohort is not None
    cohort = allocation.cohort
    time, energy = physics.time_and_energy(channel_gain, allocation.f, allocation.p, scenario)
    own = queue * energy - lyapunov.participation_weight(scenario) * participation_queue
    named = np.concatenate([cohort, next_device[..., None]], axis=-1)
    # Of nobody, -1, the time and the cost are those of a device that takes none.
    times, costs = (
        np.where(named >= 0, np.take_along_axis(values, named, axis=-1), 0.0)
        for values in (time, own)
    )
    places = cohort.shape[-1]
    # In row k the k-th of the cohort has changed places with the next one.
    others = ~np.eye(places, places + 1, dtype=np.bool_)
    instead = np.where(others, times[..., None, :], 0.0).max(axis=-1)
    longer = scenario.V * (instead - times[..., :-1].max(axis=-1, keepdims=True))
    dearer = costs[..., -1:] - costs[..., :-1]
    reward = np.zeros((*time.shape[:-1], time.shape[-1] + 1))  # the last column is nobody's
    np.put_along_axis(reward, cohort, longer + dearer, axis=-1)
    return reward[..., :-1]


def ranked_local_reward(
    channel_gain: FloatArray,
    queue: FloatArray,
    participation_queue: FloatArray,
    allocation: Allocation,
    scenario: Scenario,
) -> FloatArray:
    """What a participant's own energy and participation are worth, less its K-th of its time.

    ``-x_n (V T_n / K + Q_n E_n - kappa Z_n)``, where the objective is the outcome.

    Parameters
    ----------
    channel_gain, queue, participation_queue, allocation, scenario
        As in `ranked_difference_reward`.

    Returns
    -------
    ndarray, shape (..., N)
        In J^2.
    """
    time, energy = physics.time_and_energy(channel_gain, allocation.f, allocation.p, scenario)
    worth = lyapunov.participation_weight(scenario) * participation_queue
    cost = scenario.V * time / scenario.cohort_size + queue * energy - worth
    reward: FloatArray = np.where(allocation.participates, -cost, 0.0)
    return reward

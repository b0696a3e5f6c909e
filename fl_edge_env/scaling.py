"""Observations and rewards of order one, for learning agents.

Every constant follows from the scenario, none from running statistics: what an agent has learned
does not depend on numbers that must be kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fl_edge_env import lyapunov, physics
from fl_edge_env.checks import observed, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.spaces import observation_space
from fl_edge_env.typing import FloatArray

Features: TypeAlias = NDArray[np.float32]

FEATURES = ("device time", "queue", "compute time", "data weight", "compute power")
# Share of the mean penalty that makes one unit of reward.
_REWARD_UNIT = 0.1
# Added to the scaled queue before its logarithm is taken: queues start empty.
_QUEUE_FLOOR = 0.1


class Scaling:
    """What the observation and the reward of a scenario are divided by.

    Each device has the features ``FEATURES``, which are logarithms of ratios: its time at the
    middle of the frequency and power ranges over the mean time at the mean gain; its queue over
    the one for which Theorem 2 gives the middle of the frequency range with uniform sampling;
    and, constant, its compute time, data weight and compute power over their geometric means
    over all devices. Where all devices are alike the constants are 0, whatever their number.

    Parameters
    ----------
    scenario : Scenario
        The system.

    Attributes
    ----------
    queue : ndarray, shape (N,)
        The queue that the queues are divided by [J].
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        uniform = np.full(scenario.num_devices, 1.0 / scenario.num_devices)
        device_time, _ = physics.time_and_energy(
            scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario
        )
        self._time = float(device_time.mean())
        participation = physics.participation_probability(uniform, scenario.cohort_size)
        compute_power = scenario.capacitance * scenario.f_mid**3
        self.queue: FloatArray = scenario.V * uniform / (participation * compute_power)
        compute_time = physics.compute_time(scenario.f_mid, scenario)
        constant = np.log(np.stack([compute_time, scenario.weights, compute_power], axis=-1))
        self._constant = constant - constant.mean(axis=0)
        # The penalty at the middle of everything.
        latency = float(lyapunov.latency(device_time, uniform, scenario))
        error = float(lyapunov.sampling_error(uniform, scenario.weights))
        self._reward_offset = scenario.V * (latency + scenario.lambda_ * error)
        self._reward_unit = _REWARD_UNIT * scenario.V * self._time

    def features(self, observation: Mapping[str, FloatArray]) -> Features:
        """Features of each device.

        Parameters
        ----------
        observation : mapping
            ``channel_gain`` and ``queue`` [J] of shape (..., N).

        Returns
        -------
        ndarray of float32, shape (..., N, 5)

        Raises
        ------
        ValueError
            If the observation is for another number of devices, or holds NaN, infinity or a
            number of the wrong sign.
        """
        scenario = self.scenario
        gain, queue = observed(observation)
        gain, queue = real_array("channel_gain", gain), real_array("queue", queue)
        for name, value in (("channel_gain", gain), ("queue", queue)):
            if value.shape[-1:] != (scenario.num_devices,):
                raise ValueError(
                    f"{name} must have shape (..., {scenario.num_devices}), got {value.shape}"
                )
            if not np.isfinite(value).all():
                raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
        if queue.shape != gain.shape:
            raise ValueError(
                f"queue must have the shape of channel_gain, {gain.shape}, got {queue.shape}"
            )
        if not (gain > 0).all():
            raise ValueError(f"channel_gain must be positive, got {gain.min()}")
        if not (queue >= 0).all():
            raise ValueError(f"queue must not be negative, got {queue.min()}")
        device_time, _ = physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)
        result = np.empty((*gain.shape, len(FEATURES)), dtype=np.float32)
        result[..., 0] = np.log(device_time / self._time)
        result[..., 1] = np.log(queue / self.queue + _QUEUE_FLOOR)
        result[..., 2:] = self._constant
        return result

    def feature_space(self, first_queue: float = 0.0) -> spaces.Box:
        """The box, of shape (N, 5), in which the features lie.

        Parameters
        ----------
        first_queue : float
            Largest queue at the start of an episode, over `queue`.
        """
        raw = observation_space(self.scenario)
        gain, queue = raw["channel_gain"], raw["queue"]
        assert isinstance(gain, spaces.Box)
        assert isinstance(queue, spaces.Box)
        low = self.features({"channel_gain": gain.high, "queue": queue.low})
        queue_max = queue.high + first_queue * self.queue
        high = self.features({"channel_gain": gain.low, "queue": queue_max})
        return spaces.Box(low - 1e-3, high + 1e-3, dtype=np.float32)

    def reward(self, reward: Any) -> Any:
        """The reward of a round, moved and scaled to order one; an array or a number."""
        return (reward + self._reward_offset) / self._reward_unit

    def device_reward(self, reward: FloatArray) -> FloatArray:
        """What a device contributes to the reward, scaled to order one."""
        scaled: FloatArray = reward * (self.scenario.num_devices / self._reward_unit)
        return scaled


class ScaledEnv(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An `FLEdgeEnv` whose observations are the features of the devices, with a scaled reward.

    Parameters
    ----------
    env : gymnasium.Env
        An `FLEdgeEnv`, possibly in other wrappers.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.scaling = Scaling(env.get_wrapper_attr("scenario"))
        self.observation_space = self.scaling.feature_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """Start an episode; see `FLEdgeEnv.reset`.

        Parameters
        ----------
        seed : int, optional
            Seed of the episode.
        options : dict, optional
            Passed on.

        Returns
        -------
        features : ndarray of float32, shape (N, 5)
        info : dict
        """
        observation, info = self.env.reset(seed=seed, options=options)
        return self.scaling.features(observation), info

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """Play one round; see `FLEdgeEnv.step`.

        Parameters
        ----------
        action : ndarray, shape (3, N), or Allocation
            The decision.

        Returns
        -------
        features : ndarray of float32, shape (N, 5)
        reward : float
            Scaled.
        terminated, truncated : bool
        info : dict
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        features = self.scaling.features(observation)
        return features, self.scaling.reward(reward), terminated, truncated, info

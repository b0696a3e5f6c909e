"""Features and rewards of order one for learning agents.

All constants follow from the scenario, none from running statistics, so a trained agent needs no
stored normalisation. Rewards are of order one near good policies.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from fl_edge_env import lyapunov, physics
from fl_edge_env.checks import FINITE, NOT_NEGATIVE, POSITIVE, check_all, real_array
from fl_edge_env.observations import gains_and_queues
from fl_edge_env.scenario import Scenario
from fl_edge_env.spaces import observation_space
from fl_edge_env.typing import Float32Array, FloatArray, Observed

Features: TypeAlias = Float32Array

# Features of a device in every scenario, with objective="outcome", and with csi="participants".
FEATURES = ("device time", "queue", "compute time", "data weight", "compute power")
OUTCOME_FEATURES = ("energy", "participation")
MEMORY_FEATURES = ("age", "measurements", "remembered time")
# Fraction of the mean penalty that is one unit of reward.
_REWARD_UNIT = 0.1
# Added to the scaled queue before taking its logarithm, as queues start empty.
_QUEUE_FLOOR = 0.1
# Cap on a gain's age, in multiples of the device's target interval between participations.
_OLD = 10.0


class Scaling:
    """Scaling of a scenario's observations and rewards.

    Each device has the features ``FEATURES``, which are logarithms of ratios: its time at mid-range
    frequency and power over the devices' average time at their mean gains; its queue over the queue
    at which Theorem 2 gives the mid-range frequency with uniform sampling; and, constant over
    rounds, its compute time, data weight and compute power over their geometric means over all
    devices. The constants are 0 if all devices are alike.

    With ``objective="outcome"`` the queue is divided by the energy that the budget allows for a
    participation, and ``OUTCOME_FEATURES`` are added: the logarithm of the mid-range energy over
    its mean, and the inverse hyperbolic sine of the participation queue.

    With ``csi="participants"`` these features use the last gain that each device measured, and
    ``MEMORY_FEATURES`` are added: the logarithms of the gain's age over the device's target
    interval between participations, of one plus the number of its measurements, and of its time at
    their mean. The devices' true mean gains are not used, as the server does not know them.

    `names` are the feature names; queues are divided by `queue` [J], shape (N,), times by `time`
    [s]. A reward of `FLEdgeEnv` becomes ``(reward + offset) / unit``: `offset` [J^2] is V times the
    penalty at mid-range f and p with uniform sampling, `unit` [J^2] is V times a tenth of `time`.
    With ``objective="outcome"`` they are 0 and 1.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.names: tuple[str, ...] = FEATURES
        if scenario.objective == "outcome":
            self.names += OUTCOME_FEATURES
        gain = scenario.mean_gain
        if scenario.csi == "participants":  # the server does not know which devices are far
            self.names += MEMORY_FEATURES
            gain = np.full(scenario.num_devices, float(scenario.channel.mean))
        device_time, device_energy = self._middle(gain)
        self.time = float(device_time.mean())
        self._energy = float(device_energy.mean())
        self._target = lyapunov.participation_target(scenario)
        compute_power = scenario.capacitance * scenario.f_mid**3
        compute_time = physics.compute_time(scenario.f_mid, scenario)
        constant = np.log(np.stack([compute_time, scenario.weights, compute_power], axis=-1))
        self._constant = constant - constant.mean(axis=0)
        self._outcome = scenario.objective == "outcome"
        if self._outcome:  # the reward is already of order one
            self.queue = scenario.energy_budget_j / self._target
            self.offset = 0.0
            self.unit = 1.0
        else:
            self._scale_by_penalty(device_time, compute_power)

    def _scale_by_penalty(self, device_time: FloatArray, compute_power: FloatArray) -> None:
        """Scale queues and rewards by those at mid-range f and p with uniform sampling."""
        scenario = self.scenario
        uniform = np.full(scenario.num_devices, 1.0 / scenario.num_devices)
        participation = physics.participation_probability(uniform, scenario.cohort_size)
        self.queue = scenario.V * uniform / (participation * compute_power)
        latency = float(lyapunov.latency(device_time, uniform, scenario))
        error = float(lyapunov.sampling_error(uniform, scenario.weights))
        self.offset = scenario.V * (latency + scenario.lambda_ * error)
        self.unit = _REWARD_UNIT * scenario.V * self.time

    def _middle(self, gain: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Time [s] and energy [J] of each device at the middle of all ranges."""
        scenario = self.scenario
        return physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)

    def check(self, observation: Observed) -> None:
        """Raise `ValueError` unless an observation is from the scenario.

        The number of devices may be wrong, an entry missing, or a number NaN, infinite or of the
        wrong sign.
        """
        shape = np.shape(gains_and_queues(observation)[0])
        if shape[-1:] != (self.scenario.num_devices,):
            raise ValueError(
                f"channel_gain must have shape (..., {self.scenario.num_devices}), got {shape}"
            )
        needed = {"channel_gain": POSITIVE, "queue": NOT_NEGATIVE}
        if self._outcome:
            needed["participation_queue"] = FINITE
        if self.scenario.csi == "participants":
            needed["age"] = POSITIVE
        for name, allowed in needed.items():
            if name not in observation:
                raise ValueError(f"observation must hold {name}, got {list(observation)}")
            values = real_array(name, observation[name])
            if values.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
            check_all(name, values, allowed)

    def features(self, observation: Observed) -> Features:
        """Features of each device, float32 of shape (..., N, F), in the order of `names`.

        `observation` is from the scenario, shape (..., N), with ``csi="participants"`` including
        the entries that `FlatView` adds.
        """
        gain = observation["channel_gain"]
        queue = observation["queue"]
        device_time, device_energy = self._middle(gain)
        result = np.empty((*gain.shape, len(self.names)), dtype=np.float32)
        result[..., 0] = np.log(device_time / self.time)
        result[..., 1] = np.log(queue / self.queue + _QUEUE_FLOOR)
        result[..., 2 : len(FEATURES)] = self._constant
        further = []
        if self._outcome:
            further.append(np.log(device_energy / self._energy))
            further.append(np.arcsinh(observation["participation_queue"]))
        if self.scenario.csi == "participants":
            time, _ = self._middle(observation["remembered_gain"])
            further.append(np.log(np.minimum(observation["age"] * self._target, _OLD)))
            further.append(np.log1p(observation["measurements"]))
            further.append(np.log(time / self.time))
        for column, values in enumerate(further, len(FEATURES)):
            result[..., column] = values
        return result

    def feature_space(self) -> spaces.Box:
        """Box of shape (N, F) that contains the features."""
        boxes: Any = observation_space(self.scenario).spaces
        least = {name: box.low for name, box in boxes.items()}
        most = {name: box.high for name, box in boxes.items()}
        # Features rise with every entry but the gains, with which times fall.
        gain = boxes["channel_gain"]
        least["channel_gain"] = gain.high
        most["channel_gain"] = gain.low
        if self.scenario.csi == "participants":
            rounds = np.full(gain.shape, float(self.scenario.num_rounds))
            least |= {"measurements": 0.0 * rounds, "remembered_gain": gain.high}
            most |= {"measurements": rounds, "remembered_gain": gain.low}
        low = self.features(least)
        high = self.features(most)
        return spaces.Box(low - 1e-3, high + 1e-3, dtype=np.float32)

    def feature_bounds(self) -> tuple[Features, Features]:
        """The least and the largest value of each feature in any device, shape (F,)."""
        box = self.feature_space()
        return box.low.min(axis=0), box.high.max(axis=0)

    def reward(self, reward: Any) -> Any:
        """Shift and scale the reward of a round to order one; an array or a number."""
        return (reward + self.offset) / self.unit

    def device_reward(self, reward: FloatArray) -> FloatArray:
        """Scale the contribution of a device to the reward to order one."""
        return reward * (self.scenario.num_devices / self.unit)

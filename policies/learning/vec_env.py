"""The native batch as a `VecEnv` of Stable-Baselines3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from fl_edge_env.checks import one_of
from fl_edge_env.flat import FlatVectorEnv
from fl_edge_env.typing import BoolArray, Float32Array, FloatArray
from policies.agents import DeviceForm
from policies.learning.credit import difference_reward

# Training seed s plays the episodes of seeds from s + 1 times this, far from the small seeds of
# comparisons.
_FIRST_EPISODE = 1_000_000


class BatchVecEnv(VecEnv):
    """A batch of systems with a row for each device, so that one agent decides for all devices.

    A row observes the device's features and their mean and standard deviation over all devices,
    shape (3 F,); its action is the device's column of `FLEdgeEnv`'s action: f, p and score.

    Parameters
    ----------
    num_envs : int
        Number of systems B.
    scenario : Scenario or str
        The system, or the name of a preset.
    credit : {"team", "difference"}
        Reward of a device: the system's, or the part due to the device's decision, which is
        computed from the model of the system; see `difference_reward`.

    Raises
    ------
    ValueError
        If `credit` is none of these, or ``"difference"`` with the objective ``"outcome"``.
    """

    def __init__(
        self,
        num_envs: int,
        scenario: Scenario | str,
        *,
        credit: Literal["team", "difference"] = "team",
    ) -> None:
        one_of("credit", credit, ("team", "difference"))
        self.systems = FLEdgeVectorEnv(num_envs, scenario, autoreset_mode=AutoresetMode.SAME_STEP)
        scenario = self.systems.scenario
        if credit == "difference" and scenario.objective == "outcome":
            raise ValueError("credit='difference' needs objective='penalty', got 'outcome'")
        self.batch = FlatVectorEnv(self.systems)
        self.credit = credit
        self.scaling = self.batch.scaling
        self.form = DeviceForm(self.scaling)
        super().__init__(num_envs * scenario.num_devices, *self.form.spaces)

    @property
    def scenario(self) -> Scenario:
        """The system of every row, which is read-only."""
        return self.systems.scenario

    def reset(self) -> Float32Array:
        """Start an episode in every system; after a call of `seed`, the first of that seed."""
        seed = self._seeds[0]
        first = None if seed is None else _FIRST_EPISODE * (seed + 1)
        self._reset_seeds()
        observation, _ = self.batch.reset(seed=first)
        return self._seen(observation)

    def step_async(self, actions: Float32Array) -> None:
        """Store the actions of the coming step, one for each row."""
        if np.shape(actions) != (self.num_envs, 3):
            raise ValueError(
                f"actions must have shape {(self.num_envs, 3)}, got {np.shape(actions)}"
            )
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[Float32Array, Float32Array, BoolArray, list[dict[str, Any]]]:
        """Play one round in every system; infos are empty except at the end of an episode."""
        simulator = self.systems.simulator
        before = simulator.channel_gain.copy(), simulator.queue.copy()
        actions = self._actions.reshape(self.batch.num_envs, -1, 3)
        decision = self.systems.decode(actions.swapaxes(-1, -2))
        observation, reward, _, truncated, info = self.batch.step(decision)
        if self.credit == "difference":
            reward = self._differences(*before, decision, info)
        else:
            reward = np.repeat(reward, self.scenario.num_devices)
        done = np.repeat(truncated, self.scenario.num_devices)
        infos = self._infos(truncated, info)
        return self._seen(observation), reward.astype(np.float32), done, infos

    def _infos(self, truncated: BoolArray, info: dict[str, Any]) -> list[dict[str, Any]]:
        """The info of each row, with its last observation if the episode has ended."""
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for system in np.flatnonzero(truncated).tolist():
            ends = self._seen(info["final_obs"][system][np.newaxis])
            for row, end in enumerate(ends, system * self.scenario.num_devices):
                infos[row] = {"terminal_observation": end, "TimeLimit.truncated": True}
        return infos

    def _seen(self, observation: Float32Array) -> Float32Array:
        """Flat observations of systems, shape (B, N F), as rows."""
        features = observation.reshape(len(observation), self.scenario.num_devices, -1)
        rows = self.form.seen(features)
        return rows.reshape(-1, rows.shape[-1])

    def _differences(
        self, gain: FloatArray, queue: FloatArray, decision: Allocation, info: dict[str, Any]
    ) -> FloatArray:
        """The difference reward of each device, scaled to order one, shape (B N,)."""
        if "q" in info:  # as renormalised over the available devices
            decision = replace(decision, q=info["q"])
        own = difference_reward(gain, queue, decision, self.scenario, info.get("available"))
        return self.scaling.device_reward(own).ravel()

    # The rest of `VecEnv`'s interface; rows are not separate objects.

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the batch, the same for every row."""
        return [getattr(self.batch, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002
        """Raise `AttributeError`, because the rows share one batch."""
        raise AttributeError(f"the rows share one batch: {attr_name} cannot be set for each")

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        """Raise `AttributeError`, because the rows share one batch."""
        raise AttributeError(f"the rows share one batch: {method_name} cannot be called on each")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """False for all rows, which have no wrappers."""
        return [False] * len(list(self._get_indices(indices)))

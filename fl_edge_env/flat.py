"""Flat observations and actions, as reinforcement learning libraries expect them.

``gym.make("FLEdgeFlat-v0")`` makes a `FlatEnv` around an `FLEdgeEnv`, and ``gym.make_vec`` a
`FlatVectorEnv` around an `FLEdgeVectorEnv`; both take the keywords of ``FLEdge-v0``.
``"FLEdgeCMDP-v0"`` is the same with ``objective="outcome"``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.checks import real_array
from fl_edge_env.env import FLEdgeEnv, fixed
from fl_edge_env.features import Features, Scaling
from fl_edge_env.memory import GainMemory
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray
from fl_edge_env.vector_env import FLEdgeVectorEnv


class FlatEnv(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An `FLEdgeEnv`, possibly in other wrappers, with flat observations and actions.

    The observation concatenates the features of all devices (see `fl_edge_env.features.Scaling`),
    float32 of shape (N F,): ``observation.reshape(N, F)`` has a row for each device. The action
    concatenates the rows of `FLEdgeEnv`'s action, ``Box(-1, 1, (3 N,), float32)``: N frequencies, N
    powers and N scores. The reward is scaled. `scaling` holds the scales and the feature `names`.

    Put wrappers that change observations outside this one. Raises `TypeError` if there is no
    `FLEdgeEnv` inside.
    """

    scaling: Scaling = fixed("scaling")

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        scenario = _scenario_of(env, "FlatEnv", FLEdgeEnv)
        super().__init__(env)
        self._scaling = Scaling(scenario)
        self.observation_space, self.action_space = flat_spaces(self.scaling)
        self._memory = GainMemory(scenario, (scenario.num_devices,))

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """See `FLEdgeEnv.step`: the action has shape (3 N,), the observation (N F,)."""
        observation, reward, terminated, truncated, info = self.env.step(
            _rows(action, self.scaling.scenario.num_devices)
        )
        features = self._features(observation)
        return features, self.scaling.reward(reward), terminated, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeEnv.reset`; the observation has shape (N F,)."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._memory.start()
        self.scaling.features(self._memory.added_to(observation))  # wrappers may have changed it
        return self._features(observation), info

    def _features(self, observation: Mapping[str, FloatArray]) -> Features:
        self._memory.note(observation)
        return self.scaling.scaled(self._memory.added_to(observation)).ravel()


# In older versions of Gymnasium this class has no type parameters.
class FlatVectorEnv(VectorWrapper, gym.utils.RecordConstructorArgs):
    """An `FLEdgeVectorEnv`, possibly in other wrappers, with flat observations and actions.

    Each sub-environment equals a `FlatEnv` with its seed, bit for bit, in every autoreset mode.
    `scaling` and `autoreset_mode` are as in `FlatEnv` and `FLEdgeVectorEnv`. Raises `TypeError` if
    there is no `FLEdgeVectorEnv` inside.
    """

    scaling: Scaling = fixed("scaling")
    autoreset_mode: AutoresetMode = fixed("autoreset_mode")

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        scenario = _scenario_of(env, "FlatVectorEnv", FLEdgeVectorEnv)
        super().__init__(env)
        self._autoreset_mode = self.metadata["autoreset_mode"]
        self._scaling = Scaling(scenario)
        self.single_observation_space, self.single_action_space = flat_spaces(self.scaling)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        shape = (self.num_envs, scenario.num_devices)
        self._memory = GainMemory(scenario, shape)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeVectorEnv.reset`; the observation has shape (B, N F)."""
        observation, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._memory.start((options or {}).get("reset_mask"))
        self.scaling.features(self._memory.added_to(observation))  # wrappers may have changed it
        return self._flat(observation), info

    def step(
        self, actions: Any
    ) -> tuple[Features, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """See `FLEdgeVectorEnv.step`: actions have shape (B, 3 N), observations (B, N F).

        The reward is scaled, and 0 if a step only started the next episode. In same-step mode
        ``final_obs`` is also flat.
        """
        actions = _rows(actions, self.scaling.scenario.num_devices, (self.num_envs,))
        observation, reward, terminated, truncated, info = self.env.step(actions)
        played = info["_round_time"]  # False if the step was a reset
        self._memory.start(~played)
        if "final_obs" in info:
            info = info | {"final_obs": self._end(observation, info["final_obs"], truncated)}
        else:
            self._memory.note(observation)
        reward = np.where(played, self.scaling.reward(reward), 0.0)
        return self._flat(observation), reward, terminated, truncated, info

    def _end(
        self, observation: Mapping[str, FloatArray], final: NDArray[Any], ended: BoolArray
    ) -> NDArray[Any]:
        """Flatten the last observations of the episodes that have ended, and clear their memory."""
        last = {name: values.copy() for name, values in observation.items()}
        for index in np.flatnonzero(ended):
            for name, values in final[index].items():
                last[name][index] = values
        self._memory.note(last)
        flat = np.full(self.num_envs, None, dtype=object)
        for index, values in zip(np.flatnonzero(ended), self._flat(last)[ended], strict=True):
            flat[index] = values
        self._memory.start(ended)
        return flat

    def _flat(self, observation: Mapping[str, FloatArray]) -> Features:
        seen = self._memory.added_to(observation)
        return self.scaling.scaled(seen).reshape(self.num_envs, -1)


def make_flat(**keywords: Any) -> FlatEnv:
    """Make ``FLEdgeFlat-v0``, a `FlatEnv`, with the keywords of `FLEdgeEnv`."""
    return FlatEnv(FLEdgeEnv(**keywords))


def make_flat_vector(**keywords: Any) -> FlatVectorEnv:
    """Make the native batch of ``FLEdgeFlat-v0``, with the keywords of `FLEdgeVectorEnv`."""
    return FlatVectorEnv(FLEdgeVectorEnv(**keywords))


def flat_spaces(scaling: Scaling) -> tuple[Box, Box]:
    """Boxes of flat observations, widened to include 0 (TorchRL pads with it), and of actions."""
    box = scaling.feature_space()
    low = np.minimum(box.low, 0.0)
    high = np.maximum(box.high, 0.0)
    action = Box(-1.0, 1.0, (3 * scaling.scenario.num_devices,), np.float32)
    return Box(low.ravel(), high.ravel(), dtype=np.float32), action


def _rows(action: Any, devices: int, batch: tuple[int, ...] = ()) -> Any:
    """Split a flat action into rows, shape (*batch, 3, N); an allocation stays as it is."""
    if isinstance(action, Allocation):
        return action
    flat = (*batch, 3 * devices)
    rows = (*batch, 3, devices)
    values = real_array("action", action)
    if values.shape != flat:
        raise ValueError(
            f"action must be an Allocation or an array of shape {flat}, the frequencies, then the "
            f"powers, then the scores of {devices} devices, got shape {values.shape}"
        )
    return values.reshape(rows)


def _scenario_of(env: Any, wrapper: str, kind: type[FLEdgeEnv] | type[FLEdgeVectorEnv]) -> Scenario:
    """Return the scenario of the wrapped environment; `TypeError` if it is of another kind."""
    base = getattr(env, "unwrapped", None)
    if not isinstance(base, kind):
        raise TypeError(
            f"{wrapper} wraps an {kind.__name__}, got {env!s:.200}: FlatEnv is for one system "
            "(in make_vec as wrappers=[FlatEnv]), FlatVectorEnv for a batch made with "
            'vectorization_mode="vector_entry_point"'
        )
    return base.scenario

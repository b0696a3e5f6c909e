"""Flat observations and actions, as reinforcement learning libraries expect them.

``gym.make("FLEdgeFlat-v0")`` makes a `FlatEnv` around an `FLEdgeEnv`, and ``gym.make_vec`` a
`FlatVectorEnv` around an `FLEdgeVectorEnv`; both take the keywords of ``FLEdge-v0``.
``"FLEdgeCMDP-v0"`` is the same with ``objective="outcome"``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fl_edge_env.core import ReadsThrough, fixed
from fl_edge_env.env import FLEdgeEnv
from fl_edge_env.features import Features, Scaling
from fl_edge_env.flat_view import FlatView, flat_spaces
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, Observed
from fl_edge_env.vector_env import FLEdgeVectorEnv, Seeds


class FlatEnv(ReadsThrough, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An `FLEdgeEnv`, possibly in other wrappers, with flat observations and actions.

    The observation concatenates the features of all devices (see `fl_edge_env.features.Scaling`),
    float32 of shape (N F,): ``observation.reshape(N, F)`` has a row for each device. The action
    concatenates the rows of `FLEdgeEnv`'s action, ``Box(-1, 1, (3 N,), float32)``: N frequencies, N
    powers and N scores. The reward is scaled. `scaling` holds the scales and the feature `names`.

    Put wrappers that change observations outside this one. Raises `TypeError` if there is no
    `FLEdgeEnv` inside.
    """

    scaling: Scaling = fixed("scaling", "_view.scaling")

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        scenario = _scenario_of(env, "FlatEnv", FLEdgeEnv)
        super().__init__(env)
        self._view = FlatView(scenario)
        self.observation_space, self.action_space = flat_spaces(self.scaling)

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """See `FLEdgeEnv.step`: the action has shape (3 N,), the observation (N F,)."""
        observation, reward, *ended, info = self.env.step(self._view.rows(action))
        return self._view.see(observation).ravel(), self.scaling.reward(reward), *ended, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeEnv.reset`; the observation has shape (N F,)."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.scaling.check(observation)  # wrappers may have changed it
        self._view.reset()
        return self._view.see(observation).ravel(), info


# In older versions of Gymnasium this class has no type parameters.
class FlatVectorEnv(ReadsThrough, VectorWrapper, gym.utils.RecordConstructorArgs):
    """An `FLEdgeVectorEnv`, possibly in other wrappers, with flat observations and actions.

    Each sub-environment equals a `FlatEnv` with its seed, bit for bit, in every autoreset mode.
    `scaling` and `autoreset_mode` are as in `FlatEnv` and `FLEdgeVectorEnv`. Raises `TypeError` if
    there is no `FLEdgeVectorEnv` inside.
    """

    scaling: Scaling = fixed("scaling", "_view.scaling")
    autoreset_mode: AutoresetMode = fixed("autoreset_mode", "unwrapped.autoreset_mode")

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        scenario = _scenario_of(env, "FlatVectorEnv", FLEdgeVectorEnv)
        super().__init__(env)
        self._view = FlatView(scenario, (self.num_envs,))
        self.single_observation_space, self.single_action_space = flat_spaces(self.scaling)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeVectorEnv.reset`; the observation has shape (B, N F)."""
        observation, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self.scaling.check(observation)  # wrappers may have changed it
        self._view.reset((options or {}).get("reset_mask"))
        # An observation under way is already remembered, and a new one holds no measurement.
        return self._flat(self._view.features(observation)), info

    def step(
        self, actions: Any
    ) -> tuple[Features, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """See `FLEdgeVectorEnv.step`: actions have shape (B, 3 N), observations (B, N F).

        The reward is scaled, and 0 if a step only started the next episode. In same-step mode
        ``final_obs`` is also flat.
        """
        observation, reward, terminated, truncated, info = self.env.step(self._view.rows(actions))
        played = info["_round_time"]  # False if the step was a reset
        self._view.reset(~played)
        if "final_obs" in info:
            features, final = self._end(observation, info["final_obs"], truncated)
            info = info | {"final_obs": final}
        else:
            features = self._view.see(observation)
        reward = np.where(played, self.scaling.reward(reward), 0.0)
        return self._flat(features), reward, terminated, truncated, info

    def _end(
        self, observation: Observed, final: NDArray[Any], ended: BoolArray
    ) -> tuple[Features, NDArray[Any]]:
        """Features of a step that has ended episodes, and the flat last observations of these."""
        last = {name: values.copy() for name, values in observation.items()}
        for index in np.flatnonzero(ended):
            for name, values in final[index].items():
                last[name][index] = values
        features = self._view.see(last)
        flat = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            flat[index] = features[index].ravel()
        self._view.reset(ended)
        return self._view.features(observation), flat

    def _flat(self, features: Features) -> Features:
        return features.reshape(self.num_envs, -1)


def make_flat(**keywords: Any) -> FlatEnv:
    """Make ``FLEdgeFlat-v0``, a `FlatEnv`, with the keywords of `FLEdgeEnv`."""
    return FlatEnv(FLEdgeEnv(**keywords))


def make_flat_vector(**keywords: Any) -> FlatVectorEnv:
    """Make the native batch of ``FLEdgeFlat-v0``, with the keywords of `FLEdgeVectorEnv`."""
    return FlatVectorEnv(FLEdgeVectorEnv(**keywords))


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

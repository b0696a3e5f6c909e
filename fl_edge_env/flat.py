"""Flat observations and actions, as reinforcement learning libraries expect them.

``gym.make("FLEdgeFlat-v0")`` makes a `FlatEnv` around an `FLEdgeEnv`, and ``gym.make_vec`` a
`FlatVectorEnv` around an `FLEdgeVectorEnv`; both take the keywords of ``FLEdge-v0``.
``"FLEdgeRule-v0"`` is the same with ``rule=True``, ``"FLEdgeCMDP-v0"`` with
``objective="outcome"``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fl_edge_env.checks import natural_number
from fl_edge_env.core import ReadsThrough, fixed
from fl_edge_env.env import FLEdgeEnv
from fl_edge_env.features import Features, Scaling
from fl_edge_env.flat_view import FlatForm, FlatView
from fl_edge_env.rule import RuleForm
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, Observed
from fl_edge_env.vector_env import FLEdgeVectorEnv, Seeds

# `policies.evaluate` takes seeds below 2^63.
_LEARNING = 2**64


class FlatEnv(ReadsThrough, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An `FLEdgeEnv`, possibly in other wrappers, with flat observations and actions.

    The observation concatenates the features of all devices (see `fl_edge_env.features.Scaling`),
    float32 of shape (N F,): ``observation.reshape(N, F)`` has a row for each device. The action
    concatenates the rows of `FLEdgeEnv`'s action, ``Box(-1, 1, (3 N,), float32)``: N frequencies, N
    powers and N scores. With `rule`, the action is one rule for all devices instead, and the
    observation pools their features; see `fl_edge_env.rule.RuleForm`. The reward is scaled.
    `scaling` holds the scales and the feature `names`.

    A seed starts different episodes than in `FLEdgeEnv`, so agents never train on the episodes of
    an evaluation: see `learning_seed`.

    Put wrappers that change observations outside this one. Raises `TypeError` if there is no
    `FLEdgeEnv` inside.
    """

    scaling: Scaling = fixed("scaling", "_view.scaling")

    def __init__(self, env: gym.Env[Any, Any], *, rule: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, rule=rule)
        scenario = _scenario_of(env, "FlatEnv", FLEdgeEnv)
        super().__init__(env)
        self._view = FlatView(scenario)
        self._form = (RuleForm if rule else FlatForm)(self.scaling)
        self.observation_space, self.action_space = self._form.spaces

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """See `FLEdgeEnv.step`: action and observation are of these spaces."""
        rows = self._form.checked_rows(action, self._view.current)
        observation, reward, *ended, info = self.env.step(rows)
        seen = self._form.seen(self._view.see(observation))
        return seen, self.scaling.reward(reward), *ended, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeEnv.reset`, but a seed starts other episodes: see `learning_seed`."""
        observation, info = self.env.reset(seed=learning_seed(seed), options=options)
        self.scaling.check(observation)  # wrappers may have changed it
        self._view.reset()
        return self._form.seen(self._view.see(observation)), info


# In older versions of Gymnasium this class has no type parameters.
class FlatVectorEnv(ReadsThrough, VectorWrapper, gym.utils.RecordConstructorArgs):
    """An `FLEdgeVectorEnv`, possibly in other wrappers, with flat observations and actions.

    Each sub-environment equals a `FlatEnv` with its seed, bit for bit, in every autoreset mode.
    `scaling` and `autoreset_mode` are as in `FlatEnv` and `FLEdgeVectorEnv`. Raises `TypeError` if
    there is no `FLEdgeVectorEnv` inside.
    """

    scaling: Scaling = fixed("scaling", "_view.scaling")
    autoreset_mode: AutoresetMode = fixed("autoreset_mode", "unwrapped.autoreset_mode")

    def __init__(self, env: VectorEnv[Any, Any, Any], *, rule: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, rule=rule)
        scenario = _scenario_of(env, "FlatVectorEnv", FLEdgeVectorEnv)
        super().__init__(env)
        self._view = FlatView(scenario, (self.num_envs,))
        self._form = (RuleForm if rule else FlatForm)(self.scaling)
        self.single_observation_space, self.single_action_space = self._form.spaces
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Features, dict[str, Any]]:
        """See `FLEdgeVectorEnv.reset`, but seeds start other episodes: see `learning_seed`."""
        base: Any = self.unwrapped
        own: Any = [*map(learning_seed, base.seeds(seed))]
        observation, info = self.env.reset(seed=own, options=options)
        self.scaling.check(observation)  # wrappers may have changed it
        self._view.reset((options or {}).get("reset_mask"))
        # An observation under way is already remembered, and a new one holds no measurement.
        return self._form.seen(self._view.features(observation)), info

    def step(
        self, actions: Any
    ) -> tuple[Features, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """See `FLEdgeVectorEnv.step`: actions and observations have a row for each system.

        The reward is scaled, and 0 if a step only started the next episode. In same-step mode
        ``final_obs`` is also flat.
        """
        rows = self._form.checked_rows(actions, self._view.current)
        observation, reward, terminated, truncated, info = self.env.step(rows)
        played = info["_round_time"]  # False if the step was a reset
        self._view.reset(~played)
        if "final_obs" in info:
            final = self._end(observation, info["final_obs"], truncated)
            info = info | {"final_obs": final}
            self._view.reset(truncated)
            features = self._view.features(observation)
        else:
            features = self._view.see(observation)
        reward = np.where(played, self.scaling.reward(reward), 0.0)
        return self._form.seen(features), reward, terminated, truncated, info

    def _end(self, observation: Observed, final: NDArray[Any], ended: BoolArray) -> NDArray[Any]:
        """The last observations of the episodes that have ended in this step, for agents."""
        last = {name: values.copy() for name, values in observation.items()}
        for index in np.flatnonzero(ended):
            for name, values in final[index].items():
                last[name][index] = values
        seen = self._form.seen(self._view.see(last))
        ends = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            ends[index] = seen[index]
        return ends


def learning_seed(seed: int | None) -> int | None:
    """The seed in `FLEdgeEnv` of the episodes that an agent learns from; None stays None.

    It is the seed plus 2^64, so that no agent has seen the episodes of an evaluation, which has
    smaller seeds. Raises `ValueError` unless the seed is a natural number.
    """
    return None if seed is None else natural_number("seed", seed) + _LEARNING


def make_flat(*, rule: bool = False, **keywords: Any) -> FlatEnv:
    """Make ``FLEdgeFlat-v0``, with `rule` ``FLEdgeRule-v0``; takes the keywords of `FLEdgeEnv`."""
    return FlatEnv(FLEdgeEnv(**keywords), rule=rule)


def make_flat_vector(*, rule: bool = False, **keywords: Any) -> FlatVectorEnv:
    """Make the native batch of these, with the keywords of `FLEdgeVectorEnv`."""
    return FlatVectorEnv(FLEdgeVectorEnv(**keywords), rule=rule)


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

"""The vector environment: the simulator of many systems with Gymnasium's interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.checks import natural_number, one_of, positive_integer, read_only
from fl_edge_env.core import (
    EnvCore,
    ScenarioSource,
    check_softmax_scale,
    fixed,
    resolve_scenario,
)
from fl_edge_env.env import Observation
from fl_edge_env.round import Round
from fl_edge_env.simulator import Simulator
from fl_edge_env.spaces import action_space, observation_space
from fl_edge_env.typing import BoolArray, Float32Array, FloatArray

# The seed of the first system, or a seed for each; None continues.
Seeds: TypeAlias = int | Sequence[int | None] | None


class FLEdgeVectorEnv(EnvCore, VectorEnv[Any, Any, NDArray[Any]]):
    """A batch of `FLEdgeEnv`, computed together.

    Each sub-environment equals the single environment with its seed, bit for bit. Make it with
    ``gym.make_vec("FLEdge-v0", num_envs=B, vectorization_mode="vector_entry_point")``.

    Parameters
    ----------
    num_envs : int
        Number of sub-environments B.
    scenario : Scenario, str or dict
        The system, the name of a preset, a TOML file of `Scenario.save`, or its values.
    softmax_scale : float
        As in `FLEdgeEnv`.
    autoreset_mode : AutoresetMode or str
        When a finished sub-environment starts its next episode: in the next step (the default), in
        the same step, or only by ``reset(options={"reset_mask": mask})``. The action that a
        restarting step ignores must still be valid.
    max_episode_steps : int, optional
        Rounds of an episode, if fewer than the scenario's.
    render_mode : None
        Must be None: a batch is not rendered.
    **fields
        Fields of the scenario to change.

    Raises
    ------
    ValueError
        If an argument or a field is invalid, or the preset does not exist.
    TypeError
        If a keyword is not a field of `Scenario`.
    """

    num_envs: int = fixed("num_envs")
    autoreset_mode: AutoresetMode = fixed("autoreset_mode")

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioSource = "cifar10",
        *,
        softmax_scale: float = 2.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        render_mode: None = None,
        **fields: Any,
    ) -> None:
        self._num_envs = num_envs = positive_integer("num_envs", num_envs)
        if render_mode is not None:
            raise ValueError(
                f"render_mode must be None, as a batch is not rendered, got {render_mode!r}: "
                "render a single environment"
            )
        self._scenario = resolve_scenario(scenario, **fields)
        if max_episode_steps is not None:
            rounds = positive_integer("max_episode_steps", max_episode_steps)
            if rounds < self._scenario.num_rounds:
                self._scenario = self._scenario.replace(num_rounds=rounds)
        self._softmax_scale = check_softmax_scale(softmax_scale)
        mode = getattr(autoreset_mode, "value", autoreset_mode)
        modes = [each.value for each in AutoresetMode]
        self._autoreset_mode = AutoresetMode(one_of("autoreset_mode", mode, modes))
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self._simulator = Simulator(self.scenario, num_envs)
        self.single_observation_space = observation_space(self.scenario)
        self.single_action_space = action_space(self.scenario)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._started = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every sub-environment, or in those that ``reset_mask`` selects.

        ``options`` may hold ``reset_mask``, bool of shape (B,). An integer seeds sub-environment i
        with ``seed + i``; a sequence has one seed, or None, for each. The observation has shape (B,
        N), the info is empty. Raises `ValueError` if the number of seeds or the mask does not fit.
        """
        if options and [*options] != ["reset_mask"]:
            raise ValueError(f"reset takes no options but reset_mask, got {options!r}")
        seeds = self.seeds(seed)
        mask = (options or {}).get("reset_mask")
        self.simulator.reset(seeds, mask)
        self._started |= True if mask is None else mask
        return self.simulator.observe(), {}

    def seeds(self, seed: Seeds) -> list[int | None]:
        """The seed of each sub-environment, None to continue; `ValueError` if one is wrong."""
        if isinstance(seed, Iterable):
            return [None if each is None else natural_number("seed", each) for each in seed]
        if seed is None:
            return [None] * self.num_envs
        first = natural_number("seed", seed)
        return [first + index for index in range(self.num_envs)]

    def step(
        self, actions: Float32Array | Allocation
    ) -> tuple[Observation, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Play one round in every sub-environment; see `FLEdgeEnv.step`.

        `actions` have shape (B, 3, N), or are an `Allocation` with fields of shape (B, N). The
        reward is 0 if the step only started an episode. The info holds the fields of `Round` for
        the round just played, with Gymnasium's masks under ``_name``; in same-step mode also
        ``final_obs`` and ``final_info`` of the episodes that ended.
        """
        observation, reward, terminated, truncated, info = super().step(actions)
        if truncated.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            info |= self._finals(observation, read_only(truncated.copy()))
            self.simulator.reset([None] * self.num_envs, truncated)
            observation = self.simulator.observe()
        return observation, reward, terminated, truncated, info

    def _check_under_way(self) -> None:
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        if not self._started.all() or (self.simulator.done.any() and not next_step):
            raise gym.error.ResetNeeded(
                "a sub-environment has no episode under way: call reset() before step()"
            )

    def _play(self, decision: Allocation) -> Round:
        self._restarting = self.simulator.done
        outcome = super()._play(decision)
        if self._restarting.any():  # in next-step mode: the round just played is discarded
            self.simulator.reset([None] * self.num_envs, self._restarting)
        return outcome

    def _reward(self, outcome: Round) -> FloatArray:
        return np.where(self._restarting, 0.0, outcome.reward)

    def _info(self, outcome: Round) -> dict[str, Any]:
        return _masked(outcome, ~self._restarting)

    def _finals(self, observation: Observation, ended: BoolArray) -> dict[str, Any]:
        """The entries of the info for the episodes that have ended in this step."""
        last = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            last[index] = {name: values[index] for name, values in observation.items()}
        return {
            "final_info": _masked(self.last_round, ended),
            "final_obs": last,
            "_final_info": ended,
            "_final_obs": ended,
        }


def _masked(outcome: Round, mask: BoolArray) -> dict[str, Any]:
    info = outcome.info()
    return info | dict.fromkeys([f"_{name}" for name in info], read_only(mask))

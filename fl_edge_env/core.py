"""The step and the other parts that the single environment and the batch share."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation, decode_action
from fl_edge_env.checks import Range, number_in
from fl_edge_env.round import Round
from fl_edge_env.scenario import Scenario, toml
from fl_edge_env.scenario.tiers import with_named_devices
from fl_edge_env.simulator import Simulator
from fl_edge_env.tasks import TASKS, check_frozen
from fl_edge_env.typing import Float32Array, FloatArray

# A scenario, the name of a preset, a TOML file, or its values.
ScenarioSource: TypeAlias = Scenario | str | Path | dict[str, Any]

_SCALES = Range("be positive and at most 100", lambda scale: 0 < scale <= 100)


def fixed(name: str, source: str = "") -> Any:
    """Return a property for an attribute from which an environment was made: it cannot be set.

    The property's value is the attribute with an underscore, or the `source`.
    """

    def refuse(_: object, value: object) -> None:
        raise AttributeError(f"{name} is read-only, got {value!r:.60}: make another environment")

    return property(attrgetter(source or f"_{name}"), refuse)


class ReadsThrough:
    """Attributes of the inner environment that wrappers show, read-only."""

    scenario: Scenario = fixed("scenario", "unwrapped.scenario")
    simulator: Simulator = fixed("simulator", "unwrapped.simulator")
    softmax_scale: float = fixed("softmax_scale", "unwrapped.softmax_scale")


class PlainSpec(EnvSpec):
    """A spec of Gymnasium whose JSON has a `Scenario` as its fields."""

    def to_json(self) -> str:
        """See `EnvSpec.to_json`; raises `TypeError` if a channel is user-defined."""
        try:
            kwargs = toml.plain(self.kwargs)
            if isinstance(kwargs.get("scenario"), Scenario):
                kwargs["scenario"] = kwargs["scenario"].saved_fields()
        except ValueError as error:
            raise TypeError(f"{self.id} cannot be written as JSON: {error}") from None
        return EnvSpec.to_json(dataclasses.replace(self, kwargs=kwargs))


class EnvCore:
    """Base of `FLEdgeEnv` and `FLEdgeVectorEnv`: the system, and the step."""

    scenario: Scenario = fixed("scenario")
    simulator: Simulator = fixed("simulator")
    softmax_scale: float = fixed("softmax_scale")
    action_space: gym.Space[Any]
    cost_limit: float = 1.0  # on the mean of each entry of the info's ``costs``
    last_decision: Allocation | None = None
    _spec: EnvSpec | None = None
    _last_round: Round | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec, with max_episode_steps set to the length of an episode."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            if spec.id in TASKS:
                check_frozen(spec)
            limit = spec.max_episode_steps
            given = {
                each.name: getattr(spec, each.name)
                for each in dataclasses.fields(spec)
                if each.init
            }
            spec = PlainSpec(**given)
            rounds = self.scenario.num_rounds
            spec.max_episode_steps = rounds if limit is None else min(limit, rounds)
        self._spec = spec

    @property
    def last_round(self) -> Round:
        """The last round in full, including what the server does not know."""
        if self._last_round is None:
            raise gym.error.ResetNeeded("no round has been played: call step() first")
        return self._last_round

    def decode(self, action: NDArray[np.floating]) -> Allocation:
        """The decision of an array of shape (3, N) or (B, 3, N) for the coming round.

        See `decode_action`; raises `ValueError` for another shape.
        """
        simulator = self.simulator
        decision = decode_action(action, self.scenario, self.softmax_scale, simulator.available)
        if decision.f.shape != simulator.queue.shape:
            raise ValueError(
                f"action must have shape {self.action_space.shape}, got {np.shape(action)}"
            )
        return decision

    def step(self, action: Float32Array | Allocation) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one round; see `gymnasium.Env.step`.

        The `action` is an array of shape (3, N) with rows f, p and q, or an `Allocation` with
        fields of shape (N,). The info holds the fields of `Round`. Raises `ValueError` if the
        action is invalid, and `gymnasium.error.ResetNeeded` if no episode is under way.
        """
        self._check_under_way()
        decision = self._decide(action)
        outcome = self._play(decision)
        observation = self._observe()
        reward = self._reward(outcome)
        terminated, truncated = self._end()
        return observation, reward, terminated, truncated, self._info(outcome)

    @abstractmethod
    def _check_under_way(self) -> None:
        """Raise `gymnasium.error.ResetNeeded` if no episode is under way."""

    def _decide(self, action: Float32Array | Allocation) -> Allocation:
        """The decision of an action, checked."""
        if isinstance(action, Allocation):
            return action.of_shape(self.simulator.queue.shape).validate(self.simulator.scenario)
        return self.decode(action)

    def _play(self, decision: Allocation) -> Round:
        """Play a checked decision."""
        self._last_round = self.simulator.advance(decision, checked=True)
        self.last_decision = decision
        return self._last_round

    def _observe(self) -> dict[str, FloatArray]:
        """The observation of the coming round."""
        return self.simulator.observe()

    def _reward(self, outcome: Round) -> Any:
        """The reward of a round."""
        return outcome.reward

    def _end(self) -> tuple[Any, Any]:
        """The flags `terminated`, which is never set, and `truncated`."""
        truncated = self.simulator.done
        return np.zeros_like(truncated), truncated

    def _info(self, outcome: Round) -> dict[str, Any]:
        """The info of a step."""
        return outcome.info()


def resolve_scenario(
    scenario: ScenarioSource,
    *,
    tiers: str | None = None,
    work: str | None = None,
    **fields: Any,
) -> Scenario:
    """Return a scenario, given as such, its fields, a preset or a TOML file, with some changes."""
    if isinstance(scenario, Path | str) and Path(scenario).suffix.lower() == ".toml":
        scenario = Scenario.load(scenario, **fields)
    elif isinstance(scenario, str):
        scenario = Scenario.preset(scenario, **fields)
    elif isinstance(scenario, dict):
        scenario = Scenario.from_dict(scenario, **fields)
    elif not isinstance(scenario, Scenario):
        raise TypeError(
            f"scenario must be a Scenario, its fields, a preset or a file, got {scenario!r}"
        )
    elif fields:
        scenario = scenario.replace(**fields)
    return with_named_devices(scenario, tiers=tiers, work=work)


def check_softmax_scale(value: object) -> float:
    """Return `value` as a float if the smallest q, exp(-2 softmax_scale) / N, stays in range."""
    return number_in(_SCALES, "softmax_scale", value)

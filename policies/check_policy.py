"""A check of a policy before a benchmark runs for hours."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from fl_edge_env.typing import FloatArray
from policies.base import Policy

_ROUNDS = 5
_SEEDS = (0, 1, 2)


def check_policy(policy: Policy, *, scenario: Scenario | None = None) -> None:
    """Check that a policy decides validly, and that its decisions follow from the seed.

    Like Gymnasium's `check_env`, it plays short episodes without training and raises an error at
    the first thing that is wrong. The policy itself is not changed.

    Parameters
    ----------
    policy : Policy
        The policy.
    scenario : Scenario, optional
        The system to play; the policy's own by default.

    Raises
    ------
    ValueError
        If a decision is no valid `Allocation`; if `decide` changes the observation or draws from
        NumPy's or Python's global generator; if an episode depends on the one before it; if a batch
        is not decided as its systems are one by one; or if decisions differ after a state was saved
        and restored.

    Examples
    --------
    >>> from policies import LROA
    >>> check_policy(LROA(Scenario.digits()))
    """
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy must be an instance of Policy, got {policy!r}: put a selector into a Scheduler"
        )
    system = scenario if scenario is not None else policy.scenario
    name = policy.name
    used = copy.deepcopy(policy)
    before = _global_state()
    batch = _episode(used, system, _SEEDS)
    if _global_state() != before:
        raise ValueError(
            f"{name} draws from a global random generator, so that a seed does not repeat a run: "
            "make a numpy.random.Generator from the seed in reset"
        )
    if not _same(_episode(used, system, _SEEDS), batch):
        raise ValueError(
            f"a second episode of {name} with the same seeds decides otherwise: reset must forget "
            "what earlier episodes have left, and draw anew from the seed"
        )
    for index, seed in enumerate(_SEEDS):
        alone = _episode(copy.deepcopy(policy), system, (seed,))
        if not _same(alone, [{k: v[index : index + 1] for k, v in one.items()} for one in batch]):
            raise ValueError(
                f"{name} decides otherwise for a batch of systems than for each alone: take "
                "everything along the last axis, with one random stream for each seed"
            )
    if not policy.resumable:
        return
    if not _same(_episode(used, system, _SEEDS, saved_after=_ROUNDS // 2), batch):
        raise ValueError(
            f"{name} decides otherwise after restore(state()): state must hold all that decide and "
            "feedback remember"
        )


def _global_state() -> Any:
    state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - to see whether it moves
    return state[1].tobytes(), state[2:], random.getstate()


def _episode(
    policy: Policy, scenario: Scenario, seeds: tuple[int, ...], *, saved_after: int | None = None
) -> list[dict[str, FloatArray]]:
    """The decisions of some rounds; where asked for, the policy takes up its state on the way."""
    env = FLEdgeVectorEnv(len(seeds), scenario.replace(num_rounds=_ROUNDS + 1))
    observation, info = env.reset(seed=list(seeds))
    policy.reset(list(seeds))
    policy.feedback(info)
    decisions = []
    for number in range(_ROUNDS):
        if number == saved_after:
            state = {name: np.array(value) for name, value in policy.state().items()}
            policy.reset(list(seeds))
            policy.restore(state)
        allocation = _decision(policy, observation, env.scenario)
        decisions.append(allocation)
        decided: dict[str, Any] = dict(allocation)
        observation, *_, info = env.step(Allocation(**decided))
        policy.feedback(info)
    return decisions


def _decision(
    policy: Policy, observation: Mapping[str, FloatArray], scenario: Scenario
) -> dict[str, FloatArray]:
    """The checked decision as arrays by name."""
    given = copy.deepcopy(dict(observation))
    allocation: object = policy.decide(observation)
    if not isinstance(allocation, Allocation):
        kind = type(allocation).__name__
        raise ValueError(f"decide of {policy.name} must return an Allocation, got a {kind}")
    if not _same([dict(observation)], [given]):
        raise ValueError(f"decide of {policy.name} changes the observation: work on a copy")
    shape = given["channel_gain"].shape
    if allocation.f.shape != shape:
        raise ValueError(
            f"decide of {policy.name} must give f and p of the observation's shape {shape}, "
            f"got {allocation.f.shape}"
        )
    try:
        allocation.validate(scenario)
    except ValueError as error:
        raise ValueError(f"decide of {policy.name} is not valid: {error}") from None
    values = {field.name: getattr(allocation, field.name) for field in fields(allocation)}
    return {name: value.copy() for name, value in values.items() if value is not None}


def _same(left: list[dict[str, FloatArray]], right: list[dict[str, FloatArray]]) -> bool:
    return all(
        one.keys() == other.keys()
        and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
        for one, other in zip(left, right, strict=True)
    )

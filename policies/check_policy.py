"""A quick check of a policy before a benchmark runs for hours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from types import MappingProxyType

import numpy as np

from fl_edge_env import FLEdgeVectorEnv
from fl_edge_env.streams import policy_seed
from fl_edge_env.typing import FloatArray
from policies.base import Policy, checked_decision
from policies.global_random import seeded

_ROUNDS = 5
_SEEDS = 0, 1, 2  # of the systems; the policy's seeds differ
# Relative tolerance between a network's outputs for a batch and for one system.
_ROUNDING = 1e-5


def check_policy(policy: Policy) -> None:
    """Check that decisions are valid, reproducible, and the same alone and in a batch.

    Like Gymnasium's `check_env`, it plays short episodes without training, and raises an error at
    the first fault. Observations and infos are read-only: writing to one raises NumPy's or Python's
    error on the line that writes.

    Parameters
    ----------
    policy : Policy
        The policy; its own scenario is played.

    Raises
    ------
    ValueError
        If a decision is not a valid `Allocation` or depends on random numbers that do not come from
        the seed; if an episode depends on the previous one; or if decisions for a batch differ from
        the decisions for each of its systems.

    Notes
    -----
    A network rounds differently in a batch than for one system. Real numbers of the two may differ
    by a relative 1e-5, a hundred times the rounding of float32; cohorts must be equal. All other
    comparisons are exact.

    Examples
    --------
    >>> from policies import LROA
    >>> check_policy(LROA(Scenario.digits()))
    """
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy must be an instance of Policy, got {policy!r}: put a selector into a Scheduler"
        )
    why = beyond_seeds(policy)
    if why:
        raise ValueError(f"{policy.name} {why}")


def beyond_seeds(policy: Policy, rounds: int = _ROUNDS) -> str:
    """What a policy's decisions depend on beyond its seed and what it observes, or empty.

    Plays the policy itself, which `reset` must return to its first state.
    """
    batch = _episode(policy, _SEEDS, rounds)
    if not _same(_episode(policy, _SEEDS, rounds), batch):
        return (
            "decides differently in a second episode with the same seeds: reset must clear the "
            "state of earlier episodes and restart random generators from the seed"
        )
    if not _same(_episode(policy, _SEEDS, rounds, entropy=1), batch):
        return (
            "draws random numbers that its seed does not determine: create a "
            "numpy.random.Generator from the seed in reset"
        )
    for index, seed in enumerate(_SEEDS):
        alone = _episode(policy, (seed,), rounds)
        part = [{k: v[index : index + 1] for k, v in one.items()} for one in batch]
        if not _same(alone, part, tolerance=_ROUNDING):
            return (
                "decides differently for a batch of systems than for each alone: compute along "
                "the last axis, with one random stream for each seed"
            )
    return ""


def _episode(
    policy: Policy, seeds: Sequence[int], rounds: int, *, entropy: int = 0
) -> list[dict[str, FloatArray]]:
    """Play some rounds with read-only inputs of the policy; return its decisions by field.

    `entropy` seeds the global generators.
    """
    env = FLEdgeVectorEnv(len(seeds), policy.scenario.replace(num_rounds=rounds + 1))
    decisions = []
    with seeded(entropy):
        observation, info = env.reset(seed=list(seeds))
        policy.reset([policy_seed(seed) for seed in seeds])
        policy.feedback(MappingProxyType(info))
        for _ in range(rounds):
            decision = checked_decision(policy, policy.decide(MappingProxyType(observation)))
            try:
                decision = copy.deepcopy(decision.of_shape(observation["queue"].shape))
                observation, *_, info = env.step(decision)
            except ValueError as error:
                raise ValueError(f"decide of {policy.name} is not valid: {error}") from None
            values = {field.name: getattr(decision, field.name) for field in fields(decision)}
            decisions.append({name: value for name, value in values.items() if value is not None})
            policy.feedback(MappingProxyType(info))
    return decisions


def _same(
    left: list[dict[str, FloatArray]], right: list[dict[str, FloatArray]], tolerance: float = 0.0
) -> bool:
    def alike(one: FloatArray, other: FloatArray) -> bool:
        relative = 0.0 if one.dtype.kind in "iub" else tolerance
        return one.shape == other.shape and np.allclose(
            one, other, rtol=relative, atol=0.0, equal_nan=True
        )

    return all(
        one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
        for one, other in zip(left, right, strict=True)
    )

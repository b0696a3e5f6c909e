"""A check of a policy before a benchmark runs for hours."""

from __future__ import annotations

import copy
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from fl_edge_env.checks import integer_at_least
from fl_edge_env.streams import policy_seed
from fl_edge_env.typing import FloatArray
from policies.base import Policy

_ROUNDS = 5
_SYSTEMS = 3
# Of a batched network against the same network for one system, relative.
_ROUNDING = 1e-5


def check_policy(
    policy: Policy, *, scenario: Scenario | None = None, seed: int | None = None
) -> None:
    """Check that a policy decides validly, by its own seed, and changes nothing that it is given.

    Like Gymnasium's `check_env`, it plays short episodes without training and raises an error at
    the first thing that is wrong. The policy itself is not changed. The episodes have seeds drawn
    in secret, of which those given to the policy tell nothing.

    Parameters
    ----------
    policy : Policy
        The policy.
    scenario : Scenario, optional
        The system to play; the policy's own by default.
    seed : int, optional
        Seed of the first of three systems, to repeat a check: a note of each error names it.

    Raises
    ------
    ValueError
        If a decision is no valid `Allocation`; if `decide` or `feedback` changes the observation,
        the info or the scenario; if a decision draws from NumPy's or Python's global generator; if
        an episode depends on the one before it; or if a batch is not decided as its systems are one
        by one.

    Notes
    -----
    A network computes a batch in another order than one system. The numbers of a batch may differ
    from those of its systems by a relative 1e-5, a hundred times the rounding of float32, but not
    its cohorts. All else is compared to the bit.

    Examples
    --------
    >>> from policies import LROA
    >>> check_policy(LROA(Scenario.digits()))
    """
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy must be an instance of Policy, got {policy!r}: put a selector into a Scheduler"
        )
    first = secrets.randbits(62) if seed is None else integer_at_least(0, "seed", seed)
    system = scenario if scenario is not None else policy.scenario
    try:
        _check(policy, system, range(first, first + _SYSTEMS))
    except Exception as error:
        error.add_note(f"check_policy(..., seed={first}) plays the same episodes again")
        raise


def _check(policy: Policy, system: Scenario, seeds: Sequence[int]) -> None:
    name = policy.name
    used = copy.deepcopy(policy)
    before = _global_state()
    batch = _episode(used, system, seeds)
    if _global_state() != before:
        raise ValueError(
            f"{name} draws from a global random generator, so that a seed does not repeat a run: "
            "make a numpy.random.Generator from the seed in reset"
        )
    if not _same(_episode(used, system, seeds), batch):
        raise ValueError(
            f"a second episode of {name} with the same seeds decides otherwise: reset must forget "
            "what earlier episodes have left, and draw anew from the seed"
        )
    for index, seed in enumerate(seeds):
        alone = _episode(copy.deepcopy(policy), system, (seed,))
        part = [{k: v[index : index + 1] for k, v in one.items()} for one in batch]
        if not _same(alone, part, tolerance=_ROUNDING):
            raise ValueError(
                f"{name} decides otherwise for a batch of systems than for each alone: take "
                "everything along the last axis, with one random stream for each seed"
            )


def _global_state() -> Any:
    state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - to see whether it moves
    return state[1].tobytes(), state[2:], random.getstate()


class _Watched:
    """A policy that is given copies, and must leave them and its scenario as they are."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._scenario = policy, policy.scenario
        self._before = copy.deepcopy(policy.scenario)
        self._given: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def call(self, method: str, what: str, values: Mapping[str, Any]) -> Any:
        """What a method makes of an observation or an info, which `what` says."""
        given = copy.deepcopy(dict(values))
        self._given.append((what, given, dict(values)))
        result = getattr(self._policy, method)(given)
        who = f"{method} of {self._policy.name}"
        for kind, now, before in self._given:  # also those that it may have kept
            if changed := _changed(now, before):
                raise ValueError(
                    f"{who} changes {', '.join(changed)} in the {kind}: work on copies, "
                    f"dict({kind}) and np.array({kind}[{changed[0]!r}])"
                )
        kinds = np.ndarray | float | int | str
        now = {name: v for name, v in vars(self._scenario).items() if isinstance(v, kinds)}
        if changed := _changed(now, {name: getattr(self._before, name, None) for name in now}):
            raise ValueError(
                f"{who} changes {', '.join(changed)} of the scenario: "
                "scenario.replace makes a copy with other values"
            )
        return result


def _changed(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Names of the values that are not what they were, or were not there."""

    def content(values: Mapping[str, Any], name: str) -> bytes | None:
        return np.asarray(values[name]).tobytes() if name in values else None

    return sorted(n for n in now.keys() | before.keys() if content(now, n) != content(before, n))


def _episode(
    policy: Policy, scenario: Scenario, seeds: Sequence[int]
) -> list[dict[str, FloatArray]]:
    """The decisions of some rounds."""
    env = FLEdgeVectorEnv(len(seeds), scenario.replace(num_rounds=_ROUNDS + 1))
    own_seeds, watched = [policy_seed(seed) for seed in seeds], _Watched(policy)
    observation, info = env.reset(seed=list(seeds))
    policy.reset(own_seeds)
    watched.call("feedback", "info", info)
    decisions = []
    for _ in range(_ROUNDS):
        allocation = watched.call("decide", "observation", observation)
        decisions.append(_decision(policy, allocation, env.scenario, len(seeds)))
        decided: dict[str, Any] = dict(decisions[-1])
        observation, *_, info = env.step(Allocation(**decided))
        watched.call("feedback", "info", info)
    return decisions


def _decision(
    policy: Policy, allocation: object, scenario: Scenario, num_systems: int
) -> dict[str, FloatArray]:
    """The checked decision as arrays by name."""
    if type(allocation) is not Allocation:
        kind = type(allocation).__name__
        raise ValueError(f"decide of {policy.name} must return an Allocation, got a {kind}")
    try:
        allocation = allocation.of_shape((num_systems, scenario.num_devices))
        allocation.validate(scenario)
    except ValueError as error:
        raise ValueError(f"decide of {policy.name} is not valid: {error}") from None
    values = {field.name: getattr(allocation, field.name) for field in fields(allocation)}
    return {name: value.copy() for name, value in values.items() if value is not None}


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

"""Frozen tasks for learning agents, and the score of a policy in each."""

from __future__ import annotations

from typing import Any, NamedTuple

from gymnasium.envs.registration import EnvSpec

from fl_edge_env.checks import one_of
from fl_edge_env.scenario import Scenario

# Keywords of Gymnasium that leave a task as it is.
_FREE = "render_mode", "num_envs", "autoreset_mode", "vectorization_mode", "rule"
SEEDS = range(20)  # held out: agents train, and settings are tuned, on other seeds


class FrozenTask(NamedTuple):
    """A frozen environment, the result of the best static policy in it, and the best possible one.

    The static policy uses the same f and p for all devices in all rounds, and q = 1/N; if the task
    chooses cohorts, the devices take turns. In ``FLEdgeBlind-v0`` it spends 1.34 times the
    budget: without knowledge of the fading, 16 of the 120 devices cannot keep theirs.

    Attributes
    ----------
    fields : dict
        Keywords of ``FLEdgeFlat-v0``.
    measure : str
        Column of `policies.evaluate` to score: the distance to the bound with full information.
    f, p : float
        Frequency [Hz] and power [W] of the best static policy.
    static : float
        Mean measure of the static policy over ``SEEDS``.
    bound : float
        A lower bound on the mean measure of every policy: 0, or the distance of the bound for
        policies that know the past only, averaged over ``SEEDS``.
    """

    fields: dict[str, Any]
    measure: str
    f: float
    p: float
    static: float
    bound: float = 0.0

    @property
    def scenario(self) -> Scenario:
        """The scenario of the task."""
        fields = dict(self.fields)
        return Scenario.preset(fields.pop("scenario"), **fields)


_LONGEST = {"scenario": "cifar10", "latency": "round_time"}
_BLIND = {
    "scenario": "cell",
    "channel": "cell:0.9",  # with new fading in each round, the past would say nothing
    "objective": "outcome",
    "csi": "participants",
}

TASKS = {
    "FLEdgePaper-v0": FrozenTask({"scenario": "cifar10"}, "gap", 1.74e9, 0.1, 0.02925),
    "FLEdgeLongest-v0": FrozenTask(_LONGEST, "gap", 1.74e9, 0.1, 0.15739),
    "FLEdgeBlind-v0": FrozenTask(_BLIND, "outcome_gap", 1.86e9, 0.1, 2.8835, 0.0615),
}


def check_frozen(spec: EnvSpec) -> None:
    """Raise `ValueError` if a keyword of the spec would change its frozen task.

    Gymnasium's `TimeLimit`, which ``gym.make(…, max_episode_steps=…)`` adds, is around the task.
    """
    own = {"max_episode_steps": Scenario.num_rounds} | TASKS[spec.id].fields
    for name, value in spec.kwargs.items():
        if name not in _FREE and (name, value) not in own.items():
            given = ", ".join(f"{n}={v!r}" for n, v in spec.kwargs.items() if n not in _FREE)
            raise ValueError(
                f"{spec.id} is frozen and cannot have {name}={value!r}: use "
                f'gym.make("FLEdgeFlat-v0", {given}), which is another task, or FLEdge-v0'
            )


def normalized_score(task: str, value: Any) -> Any:
    """Turn a task's measure into a score: 0 for the best static policy, 1 at the bound.

    A score is valid only if the policy's status is ok. Raises `ValueError` for an unknown task.
    """
    frozen = TASKS[one_of("task", task, list(TASKS))]
    return 1.0 - (value - frozen.bound) / (frozen.static - frozen.bound)

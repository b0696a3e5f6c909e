"""Frozen tasks for learning agents, and the score of a policy in each."""

from __future__ import annotations

from typing import Any, NamedTuple

from fl_edge_env.checks import one_of
from fl_edge_env.scenario import Scenario

SEEDS = range(20)  # held back: agents train, and settings are tuned, on other episodes


class FrozenTask(NamedTuple):
    """A frozen environment, and what the best static policy reaches in it.

    The static policy has the same f and p for all devices in all rounds, and q = 1/N; if the task
    chooses cohorts, the devices take turns instead.

    Attributes
    ----------
    fields : dict
        Keywords of ``FLEdgeFlat-v0``.
    measure : str
        Column of `policies.evaluate` that counts: the distance to the bound with full information.
    f, p : float
        Frequency [Hz] and power [W] of the static policy with the least measure.
    static : float
        The mean of its measure over ``SEEDS``.
    """

    fields: dict[str, Any]
    measure: str
    f: float
    p: float
    static: float

    @property
    def scenario(self) -> Scenario:
        """The system."""
        fields = dict(self.fields)
        return Scenario.preset(fields.pop("scenario"), **fields)


_LONGEST = {"scenario": "cifar10", "latency": "round_time"}
_BLIND = {"scenario": "cell", "objective": "outcome", "csi": "participants"}

TASKS = {
    "FLEdgePaper-v0": FrozenTask({"scenario": "cifar10"}, "gap", 1.74e9, 0.1, 0.02925),
    "FLEdgeLongest-v0": FrozenTask(_LONGEST, "gap", 1.74e9, 0.1, 0.15739),
    "FLEdgeBlind-v0": FrozenTask(_BLIND, "outcome_gap", 1.86e9, 0.1, 2.8711),
}


def normalized_score(task: str, value: Any) -> Any:
    """The score of a task's measure: 0 for the best static policy, and 1 at the bound.

    A score counts only if the policy's status is ok. Raises `ValueError` if there is no such task.
    """
    return 1.0 - value / TASKS[one_of("task", task, list(TASKS))].static

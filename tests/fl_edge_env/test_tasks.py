"""The frozen tasks: their systems, and the references of their scores."""

from __future__ import annotations

import gymnasium as gym
import pytest

from fl_edge_env.tasks import SEEDS, TASKS, normalized_score
from policies import evaluate
from tests.support import example


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_task__is_its_environment_and_its_reference_the_best_static_policy(name):
    task = TASKS[name]
    assert gym.make(name).unwrapped.scenario == task.scenario
    static = example("tasks").Static
    near = [static(task.scenario, scale * task.f, task.p) for scale in (0.97, 1.0)]
    for policy, label in zip(near, ("slower", "reference"), strict=True):
        policy.name = label
    table = evaluate(near, task.scenario, SEEDS, progress=False).groupby("policy")
    measure = table[task.measure].mean()
    assert measure["reference"] == pytest.approx(task.static, rel=2e-4)
    assert measure["slower"] > measure["reference"]
    assert normalized_score(name, measure["reference"]) == pytest.approx(0.0, abs=2e-4)
    assert normalized_score(name, 0.0) == 1.0

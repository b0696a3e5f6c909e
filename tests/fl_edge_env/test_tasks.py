"""The frozen tasks: their systems, and the references of their scores."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import pytest

from fl_edge_env.tasks import SEEDS, TASKS, normalized_score
from policies import evaluate
from tests.support import example

CHANGES = [{"num_rounds": 7}, {"scenario": "digits"}, {"softmax_scale": 1.0}, {"csi": "delayed"}]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_task__accepts_nothing_that_changes_it(name, change):
    batches = {"num_envs": 2, "vectorization_mode": "vector_entry_point"}
    for make in (partial(gym.make, name), partial(gym.make_vec, name, **batches)):
        with pytest.raises(ValueError, match=r'frozen .* use gym.make\("FLEdgeFlat-v0", '):
            make(**change)
    with pytest.raises(ValueError, match="cannot have max_episode_steps=7"):
        gym.make_vec(name, **batches, max_episode_steps=7)
    again = gym.make_vec(gym.make_vec(name, **batches).spec)
    for env in (again, gym.make(name, render_mode="rgb_array")):
        assert env.unwrapped.scenario == TASKS[name].scenario
    assert gym.make_vec(name, **batches).unwrapped.scenario == TASKS[name].scenario


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_task__reference_is_the_best_static_policy(name):
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

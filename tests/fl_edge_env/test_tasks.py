"""The frozen tasks: their systems, and the references of their scores."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env.tasks import SEEDS, TASKS, normalized_score
from policies.benchmark.bounds import outcome_path_bound, past_path_bound
from policies.outcome import outcome_prices
from tests.scripts import example

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
    for env in (again, gym.make(name, render_mode="rgb_array", rule=True)):
        assert env.unwrapped.scenario == TASKS[name].scenario


def test_tasks__mark_a_policy_that_knows_the_held_out_seeds():
    tasks = example("tasks")
    scores = np.random.default_rng(0).normal(size=30)
    lroa = tasks.Result(scores[:20], scores[20:], "ok")
    knows = lroa._replace(held_out=scores[:20] + 0.1)
    found = [tasks.row([result], lroa)["status"] for result in (lroa, knows)]
    assert found == ["ok", "differs on fresh seeds"]


@pytest.mark.slow
@pytest.mark.usefixtures("whole_searches")
@pytest.mark.parametrize("name", TASKS)
def test_task__reference_is_the_best_static_policy(name):
    task = TASKS[name]
    script = example("tasks")
    slower, reference = (
        script.score(script.Static(task.scenario, scale * task.f, task.p), name, SEEDS)[0].mean()
        for scale in (0.97, 1.0)
    )
    assert slower < reference == pytest.approx(0.0, abs=2e-4)
    assert normalized_score(name, task.bound) == 1.0


@pytest.mark.usefixtures("whole_searches")
def test_blind_task__has_the_bound_of_the_past():
    task = TASKS["FLEdgeBlind-v0"]
    prices = outcome_prices(task.scenario)
    past, known = (
        np.array([bound(task.scenario, seed, prices).mean() for seed in SEEDS])
        for bound in (past_path_bound, outcome_path_bound)
    )
    assert np.mean(past / known) - 1.0 == pytest.approx(task.bound, abs=1e-4)

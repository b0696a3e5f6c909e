"""The name of the environment, known where only Gymnasium is imported and in spawned workers."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from fl_edge_env import (
    ExponentialChannel,
    MarkovChannel,
    Scenario,
    TraceChannel,
    with_phones,
    with_proportional_work,
)
from fl_edge_env.scenario.presets import PRESETS

IMPORTS_IT = "fl_edge_env:FLEdge-v0"


def test_make__needs_no_heavy_package():
    code = f"""
import sys
import gymnasium
assert "fl_edge_env" not in sys.modules
env = gymnasium.make("{IMPORTS_IT}", scenario="digits", num_rounds=2)
env.reset(seed=0)
env.step(env.action_space.sample())
heavy = {{"torch", "stable_baselines3", "pandas", "matplotlib", "numba", "joblib"}}
assert not heavy & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("name", ["FLEdge-v0", IMPORTS_IT])
def test_make_vec__spawned_workers_give_what_one_process_gives(name):
    make = partial(gym.make_vec, name, 2, scenario="digits", num_devices=5, num_rounds=2)
    action = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5)).astype(np.float32)
    rewards = []
    for mode, options in (("async", {"context": "spawn"}), ("sync", {})):
        envs = make(vectorization_mode=mode, vector_kwargs=options)
        envs.reset(seed=[3, 4])
        rewards.append(envs.step(action)[1])
        envs.close()
    np.testing.assert_array_equal(*rewards)


@pytest.mark.parametrize("name", ["FLEdge-v0", "FLEdgeFlat-v0"])
def test_make__takes_the_words_of_the_command_line(name):
    words = {"channel": "markov:0.8", "tiers": "phones", "work": "proportional"}
    plain = Scenario.femnist(num_devices=5, channel=MarkovChannel.correlated(0.8))
    expected = with_proportional_work(with_phones(plain))
    for scenario in ("femnist", Scenario.femnist(num_devices=5)):
        fields = {"scenario": scenario, "num_devices": 5} | words
        one = gym.make(name, **fields)
        batch = gym.make_vec(name, 2, vectorization_mode="vector_entry_point", **fields)
        assert one.unwrapped.scenario == batch.unwrapped.scenario == expected
    assert expected.replace(channel="markov:0.8") == expected


@pytest.mark.parametrize("name", ["FLEdge-v0", "FLEdgeFlat-v0", "FLEdgeCMDP-v0"])
@pytest.mark.parametrize("preset", PRESETS)
def test_json__of_a_spec_makes_the_same_system(preset, name, tmp_path, monkeypatch):
    (tmp_path / "gains.csv").write_text("round,0,1\n0,0.1,0.3\n1,0.2,0.1\n")
    monkeypatch.chdir(tmp_path)
    own = MarkovChannel(np.array([0.1, 1 / 3]), np.array([[0.9, 0.1], [0.2, 0.8]]))
    for channel in (Scenario.preset(preset).channel, own, TraceChannel("gains.csv", True)):
        scenario = Scenario.preset(preset, num_devices=2, channel=channel, mu=0.1)
        budgets = scenario.energy_budget_j * [1 / 3, 7.0]
        options = {"scenario": scenario, "energy_budget_j": budgets, "cohort_size": np.int64(1)}
        for make in (gym.make, gym.make_vec):
            env = make(name, tiers="phones", **options)
            text = env.spec.to_json()
            json.loads(text, parse_constant=pytest.fail)  # as in "Infinity", which JSON lacks
            monkeypatch.chdir("/")
            again = make(EnvSpec.from_json(text)).unwrapped.scenario
            assert again == env.unwrapped.scenario
            assert again.replace(mu=1.0) == env.unwrapped.scenario.replace(mu=1.0)  # calibrated
            monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("where", ["scenario", "channel"])
def test_json__refuses_a_channel_class_of_the_user(where):
    class Own(ExponentialChannel):
        pass

    given = {"channel": Own(), "scenario": Scenario.digits(channel=Own())}
    env = gym.make("FLEdge-v0", **{where: given[where]})
    with pytest.raises(
        TypeError, match=r"FLEdge-v0 .* JSON: only channels of type exp.*, got .*Own"
    ):
        env.spec.to_json()

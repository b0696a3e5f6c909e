"""The name of the environment, known where only Gymnasium is imported and in spawned workers."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import MarkovChannel, Scenario, with_phones, with_proportional_work

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
    options = {"scenario": "digits", "num_devices": 5, "num_rounds": 2}
    envs = gym.make_vec(
        name,
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn"},
        **options,
    )
    action = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
    envs.reset(seed=[3, 4])
    rewards = envs.step(np.stack([action, action]))[1]
    envs.close()
    for reward, seed in zip(rewards, (3, 4), strict=True):
        env = gym.make(name, **options)
        env.reset(seed=seed)
        assert env.step(action)[1] == reward
    assert not np.array_equal(*(env.reset()[0]["channel_gain"] for _ in range(2)))


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

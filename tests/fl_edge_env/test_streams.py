"""The seeds of policies and of trainings, apart from the streams of evaluations."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env.streams import policy_seed

SEEDS = [*range(300), 2**31, 2**63, 2**100]


def test_policy_seed__is_the_same_in_each_process():
    own = [policy_seed(seed) for seed in SEEDS]
    assert len({*SEEDS, *own}) == 2 * len(SEEDS)
    assert policy_seed(0) == 3732504019415209689
    assert max(own) < 2**63


@pytest.mark.parametrize("name", ["FLEdgeFlat-v0", "FLEdgeRule-v0", "FLEdgePaper-v0"])
def test_training__never_sees_an_evaluations_episode(name):
    batch = {"num_envs": 2, "vectorization_mode": "vector_entry_point"}
    known = set()
    for seed in range(40):
        observation, _ = gym.make("FLEdge-v0").reset(seed=seed)
        known.add(observation["channel_gain"].tobytes())
    for seed in range(20):
        for env, given in ((gym.make(name), seed), (gym.make_vec(name, **batch), [seed, None])):
            env.reset(seed=given)
            for _ in range(2):
                rows = np.atleast_2d(env.unwrapped.simulator.channel_gain)
                assert known.isdisjoint(row.tobytes() for row in rows)
                env.reset()

"""The seeds of policies and of trainings, apart from the streams of evaluations."""

from __future__ import annotations

import gymnasium as gym

from fl_edge_env.streams import policy_seed

SEEDS = [*range(300), 2**31, 2**63, 2**100]


def test_policy_seed__is_the_same_in_each_process():
    own = [policy_seed(seed) for seed in SEEDS]
    assert len({*SEEDS, *own}) == 2 * len(SEEDS)
    assert policy_seed(0) == 3732504019415209689
    assert max(own) < 2**63


def test_training__never_sees_an_evaluations_episode():
    plain = gym.make("FLEdge-v0")
    known = {plain.reset(seed=seed)[0]["channel_gain"].sum() for seed in range(40)}
    batch = gym.make_vec("FLEdgeRule-v0", 20, vectorization_mode="vector_entry_point")
    for env in (gym.make("FLEdgePaper-v0"), batch):
        for seed in (*range(20), None):
            env.reset(seed=seed)
            gains = env.unwrapped.simulator.channel_gain
            assert known.isdisjoint(gains.sum(axis=-1, keepdims=True).flat)

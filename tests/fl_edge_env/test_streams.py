"""The seeds of policies and of trainings, apart from the streams of evaluations."""

from __future__ import annotations

import gymnasium as gym
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
    plain = gym.make("FLEdge-v0")
    known = {plain.reset(seed=seed)[0]["channel_gain"].sum() for seed in range(40)}
    batch = gym.make_vec(name, 20, vectorization_mode="vector_entry_point")
    for env, seed in ((batch, 0), (batch, [*range(20)]), *((gym.make(name), s) for s in range(9))):
        for given in (seed, None):
            env.reset(seed=given)
            assert known.isdisjoint(
                env.unwrapped.simulator.channel_gain.sum(-1, keepdims=True).flat
            )

"""What the scripts for other libraries share: a small system, and the mean reward of a round in it.

There are 20 devices, of which one takes part in each round, and episodes of 100 rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import fl_edge_env  # noqa: F401 - registers FLEdgeFlat-v0
from policies import UniD

SYSTEM = {"scenario": "digits", "num_devices": 20, "cohort_size": 1, "num_rounds": 100}


def make_batch(num_envs: int, **keywords: Any) -> gym.vector.VectorEnv:
    """Several systems, computed together."""
    return gym.make_vec(
        "FLEdgeFlat-v0",
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        **SYSTEM,
        **keywords,
    )


def mean_reward(decide: Callable[[np.ndarray], Any]) -> float:
    """Mean scaled reward of a round in the first episodes of ten seeds.

    `decide` takes observations of shape (10, N F) and gives actions of shape (10, 3 N).
    """
    return _mean_reward(make_batch(10), decide)


def uni_d_reward() -> float:
    """The same of Uni-D, which samples all devices alike and chooses f and p by a formula."""
    envs = make_batch(10)
    policy, simulator = UniD(envs.unwrapped.scenario), envs.unwrapped.simulator
    return _mean_reward(envs, lambda _: policy.decide(simulator.observe()))


def _mean_reward(envs: gym.vector.VectorEnv, decide: Callable[[np.ndarray], Any]) -> float:
    observation, _ = envs.reset(seed=0)
    rewards = []
    for _ in range(SYSTEM["num_rounds"]):
        observation, reward, *_ = envs.step(decide(observation))
        rewards.append(reward)
    return float(np.mean(rewards))

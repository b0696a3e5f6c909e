"""Copied or pickled in the middle of an episode, policies and environments continue alike."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

import fl_edge_env  # noqa: F401
from fl_edge_env import Scenario
from policies import make_policy
from policies.registry import POLICIES
from train_fl import TrainingEnvFactory

SCENARIO = Scenario.digits(
    num_devices=6, cohort_size=2, num_rounds=6, availability=0.8, upload_failure=0.1
)


@pytest.fixture(scope="module")
def training() -> TrainingEnvFactory:
    return TrainingEnvFactory(SCENARIO, "digits").fitted()


def play(run, rounds: int) -> list:
    env, policy, observation = run
    results = []
    for _ in range(rounds):
        decision = policy.decide(observation)
        observation, reward, _, _, info = env.step(decision)
        policy.feedback(info)
        results.append((decision.f, decision.p, decision.q, decision.cohort, reward, info))
    run[2] = observation
    return results


@pytest.mark.parametrize("name", POLICIES)
def test_policies__continue_alike_with_a_copy_of_their_environment(training, name):
    policy = make_policy(name, training.scenario)
    env = training(policy)
    policy.reset(3)
    observation, info = env.reset(seed=2**64 + 5)
    policy.feedback(info)
    run = [env, policy, observation]
    play(run, 3)
    copies = copy.deepcopy(run), pickle.loads(pickle.dumps(run))
    expected = play(run, 3)
    for each in copies:
        np.testing.assert_equal(play(each, 3), expected)


def test_flat_environment__continues_alike_with_what_it_remembers():
    env = gym.make("FLEdgeFlat-v0", scenario=SCENARIO, csi="participants", objective="outcome")
    env.reset(seed=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (6, *env.action_space.shape))
    for action in actions[:3].astype(np.float32):
        env.step(action)
    copies = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    expected = [env.step(action)[:4] for action in actions[3:].astype(np.float32)]
    for each in copies:
        played = [each.step(action)[:4] for action in actions[3:].astype(np.float32)]
        np.testing.assert_equal(played, expected)

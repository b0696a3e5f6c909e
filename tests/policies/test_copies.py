"""Copied or pickled in the middle of an episode, policies and environments continue alike."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from fl_edge_env import Scenario
from policies import make_policy
from policies.registry import POLICIES
from train_fl import TrainingEnvFactory

SCENARIO = Scenario.digits(
    num_devices=6,
    cohort_size=2,
    num_rounds=6,
    availability=0.8,
    upload_failure=0.1,
    compression="topk:0.1",
)


@pytest.fixture(scope="module")
def training() -> TrainingEnvFactory:
    return TrainingEnvFactory(SCENARIO, "digits", server="fedadam").fitted()


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
    np.testing.assert_equal([each[0].reset() for each in copies], [env.reset()] * 2)

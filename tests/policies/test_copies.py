"""Copied or pickled in the middle of an episode, policies and environments continue alike."""

from __future__ import annotations

import copy
import pickle
from itertools import combinations, product

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Scenario
from policies import make_policy
from policies.learning.vec_env import BatchVecEnv
from train_fl import TrainingEnvFactory

SCENARIO = Scenario.digits(
    num_devices=6,
    cohort_size=2,
    num_rounds=6,
    local_epochs=1,
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


MAKERS = {
    "single": lambda: gym.make("FLEdge-v0", scenario=SCENARIO),
    "flat": lambda: gym.make("FLEdgeFlat-v0", scenario=SCENARIO),
    "batch": lambda: gym.make_vec(
        "FLEdge-v0", 2, vectorization_mode="vector_entry_point", scenario=SCENARIO
    ),
    "flat batch": lambda: gym.make_vec("FLEdgeFlat-v0", 2, scenario=SCENARIO),
    "rows": lambda: BatchVecEnv(2, SCENARIO),
    "training": lambda: TrainingEnvFactory(SCENARIO, "digits").fitted()(
        make_policy("uni-s", SCENARIO)
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_environments__copied_before_a_reset_differ(kind):
    env = MAKERS[kind]()
    copies = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for each in copies:
        each.reset()
    gains = [getattr(one, "systems", one.unwrapped).simulator.channel_gain for one in copies]
    assert not any(np.array_equal(one, other) for one, other in combinations(gains, 2))


BUILT_WITH = [
    *("scenario", "simulator", "softmax_scale", "scaling", "task"),
    *("num_envs", "autoreset_mode"),
]


@pytest.mark.parametrize("kind", MAKERS)
def test_environments__cannot_be_changed_by_half(kind):
    env = MAKERS[kind]()
    outer = getattr(env, "batch", env)  # around the rows' systems
    layers = [outer.unwrapped, getattr(outer, "env", outer), outer]
    for layer, name in product(layers, BUILT_WITH):
        if name in dir(layer):
            with pytest.raises(AttributeError, match=f"{name}.*(read-only|has no setter)"):
                setattr(layer, name, getattr(layer, name))
    if isinstance(env, gym.Env):
        with pytest.raises(AttributeError, match="scenario is read-only"):
            env.set_wrapper_attr("scenario", SCENARIO)
        with pytest.raises(gym.error.ResetNeeded, match="no episode is under way"):
            env.get_wrapper_attr("training_seed")


# Those that remember something, each in its own way.
REMEMBER = "divfl opportunistic round-robin proportional-fair oort adaptive-sampling quickest"


@pytest.mark.parametrize("name", REMEMBER.split())
def test_policies__continue_alike_with_a_copied_environment(training, name):
    policy = make_policy(name, training.scenario)
    env = training(policy)
    policy.reset(3)
    observation, info = env.reset(seed=2**64 + 5)
    policy.feedback(info)
    run = [env, policy, observation]
    play(run, 2)
    copies = copy.deepcopy(run), pickle.loads(pickle.dumps(run))
    expected = play(run, 2)
    for each in copies:
        np.testing.assert_equal(play(each, 2), expected)
    np.testing.assert_equal([each[0].reset() for each in copies], [env.reset()] * 2)

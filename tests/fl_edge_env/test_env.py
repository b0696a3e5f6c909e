"""The single environment: checkers, seeds, bounds, and refusals."""

from __future__ import annotations

import copy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, Scenario
from tests.support import channel_of, chosen, spoil

IDS = ["FLEdge-v0", "FLEdgeFlat-v0", "FLEdgeRule-v0", "FLEdgeCMDP-v0"]
FIELDS = [{}, {"availability": 0.7, "latency": "round_time"}, {"upload_failure": 0.2}]


# Warnings are errors: but that it is a wrapper the checker has nothing to criticise.
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # of FLEdgeRule-v0
@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("csi", ["full", "delayed", "participants"])
@pytest.mark.parametrize(
    ("name", "objective"), [(i, "outcome") for i in IDS] + [(i, "penalty") for i in IDS[1:3]]
)
def test_env__passes_gymnasiums_checker_with_every_id_and_option(name, objective, csi, fields):
    env = gym.make(name, scenario="digits", objective=objective, csi=csi, deadline_s=4.0, **fields)
    check_env(env, skip_render_check=True)


def test_env__that_renders_passes_gymnasiums_checker():
    check_env(gym.make("FLEdge-v0", scenario="digits", num_devices=1).unwrapped)


@pytest.mark.parametrize("name", IDS)
def test_make_vec__takes_what_gymnasium_passes_on(name):
    assert gym.make(name, scenario="digits").spec.max_episode_steps == 300
    make = partial(gym.make_vec, name, 2, vectorization_mode="vector_entry_point")
    envs = make(scenario="digits", max_episode_steps=3, render_mode=None)
    assert envs.spec.max_episode_steps == 3
    assert envs.unwrapped.cost_limit == 1.0
    envs.reset(seed=0)
    ends = [envs.step(envs.action_space.sample())[3].tolist() for _ in range(3)]
    assert ends == [[False, False], [False, False], [True, True]]
    assert make(max_episode_steps=9_999).unwrapped.scenario.num_rounds == 1000
    for wrong, message in (
        ({"max_episode_steps": 0}, "max_episode_steps must be an integer of at least 1, got 0"),
        ({"render_mode": "human"}, r"render_mode must be None, .* got 'human': render a"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**wrong)


# The second factor is within the tolerance of `Allocation.validate`: it is clipped.
@pytest.mark.parametrize("factor", [1.0, 1 + 9e-8])
def test_observation__growing_queues_stay_inside_the_space(factor):
    # One device, always drawn, at full speed and power on the worst channel: the bound itself
    env = FLEdgeEnv(Scenario(num_devices=1, channel=channel_of("narrow", 0.1)))
    observation, _ = env.reset(seed=0)
    for _ in range(1000):
        observation, *_ = env.step(Allocation([factor * 2e9], [factor * 0.1], [1.0]))
    bound = env.observation_space["queue"].high
    np.testing.assert_allclose(observation["queue"], bound, rtol=1e-6)
    assert env.observation_space.contains(observation)


def test_observation__idle_queues_stay_inside_the_space():
    env = FLEdgeEnv("digits", num_devices=2, num_rounds=20, objective="outcome")
    env.reset(seed=0)
    for _ in range(20):
        observation, *_ = env.step(chosen(env.scenario, 0))
    np.testing.assert_allclose(observation["participation_queue"], [0, 20], atol=1e-12)
    assert env.observation_space.contains(observation)


def test_step__truncates_after_the_last_round():
    env = FLEdgeEnv(num_rounds=3)
    action = np.zeros((3, 120), np.float32)
    for _ in range(2):  # before the first episode, and after it
        with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step"):
            env.step(action)
        env.reset()
        ends = [env.step(action)[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("mode", [None, "NextStep", "SameStep"])
@pytest.mark.parametrize("kind", ["sampled", "chosen"])
def test_episode__writing_into_its_arrays_changes_nothing(mode, kind):
    fields = {"availability": 0.8} if kind == "sampled" else {"objective": "outcome"}
    scenario = Scenario.digits(
        num_devices=6, num_rounds=4, csi="participants", upload_failure=0.3, **fields
    )
    batch = (3,) if mode else ()
    choice = {"q": np.full((*batch, 6), 1 / 6)}
    if kind == "chosen":
        choice = {"cohort": np.full((*batch, 1), 2)}

    def played(spoiled: bool):
        env = FLEdgeVectorEnv(3, scenario, autoreset_mode=mode) if mode else FLEdgeEnv(scenario)
        decision = Allocation(scenario.f_mid, scenario.p_mid, **choice)
        observation, _ = env.reset(seed=3)
        told = [copy.deepcopy(observation)]
        for _ in range(9 if mode else 4):
            if spoiled:
                spoil(observation)
            observation, *_, info = env.step(decision)
            ends = list(info.pop("final_obs", ()))
            told.append(copy.deepcopy((observation, info, ends, env.last_round)))
            if spoiled:
                spoil(info, ends, env.last_round)
        return told

    np.testing.assert_equal(played(True), played(False))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scenario": 3}, TypeError, "must be a Scenario, its fields, a preset or a file, got 3"),
        ({"softmax_scale": 0}, ValueError, "softmax_scale must be positive and at most 100, got 0"),
        ({"softmax_scale": True}, ValueError, "softmax_scale must be .* got True"),
        ({"softmax_scale": 101}, ValueError, "softmax_scale must be .* at most 100, got 101"),
    ],
)
def test_make__names_what_is_wrong(arguments, error, message):
    with pytest.raises(error, match=message):
        gym.make("FLEdge-v0", **arguments)

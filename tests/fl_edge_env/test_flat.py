"""The flat environments, for one system and for batches."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation

from fl_edge_env import Allocation, FlatEnv, FlatVectorEnv, Scenario
from fl_edge_env.flat import learning_seed
from fl_edge_env.flat_view import FlatView
from tests.support import random_actions

PLAIN = Scenario.femnist(num_devices=5, cohort_size=3, num_rounds=4)
RANKING = PLAIN.replace(objective="outcome", availability=0.6)
# Everything at once: what participants measure must also be forgotten when an episode ends.
PARTIAL = PLAIN.replace(objective="outcome", csi="participants")
FAILING = PLAIN.replace(csi="participants", availability=0.7, upload_failure=0.4)
SCENARIOS = [PLAIN, RANKING, FAILING, PARTIAL]
NATIVE = {"num_envs": 3, "vectorization_mode": "vector_entry_point"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_flat_env__has_the_features_of_each_device_in_turn(scenario):
    flat = gym.make("FLEdgeFlat-v0", scenario=scenario)
    raw = gym.make("FLEdge-v0", scenario=scenario)
    assert flat.action_space == gym.spaces.Box(-1.0, 1.0, (15,), np.float32)
    # Where an observation is missing, TorchRL has zeros, and wants them in the space.
    assert flat.observation_space.contains(np.zeros_like(flat.reset(seed=0)[0]))
    for seed in (4, None):
        view = FlatView(scenario)
        observation = flat.reset(seed=seed)[0]
        seen = raw.reset(seed=learning_seed(seed))[0]
        for played, rows in enumerate(random_actions(4, 3, 5)):
            np.testing.assert_array_equal(observation, np.concatenate(view.see(seen)))
            assert flat.observation_space.contains(observation)
            observation, reward, terminated, truncated, info = flat.step(np.concatenate(rows))
            seen, expected, *_, expected_info = raw.step(rows)
            assert reward == view.scaling.reward(expected)
            assert isinstance(reward, float)
            assert (terminated, truncated) == (False, played == 3)
            np.testing.assert_equal(info, expected_info)


# Rows 0 and 2 start anew after two rounds, so that the episodes end at different times.
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("rule", [False, True])
def test_batch__equals_a_batch_of_single_environments(rule, scenario, mode):
    name = "FLEdgeRule-v0" if rule else "FLEdgeFlat-v0"
    native = gym.make_vec(name, scenario=scenario, autoreset_mode=mode, **NATIVE)
    reference = gym.make_vec(
        "FLEdge-v0",
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        wrappers=[partial(FlatEnv, rule=rule)],
        scenario=scenario,
    )
    assert native.observation_space == reference.observation_space
    assert native.action_space == reference.action_space
    np.testing.assert_equal(native.reset(seed=7), reference.reset(seed=7))
    ended = 0
    for step, action in enumerate(random_actions(11, *native.action_space.shape)):
        if step == 2:
            mask = np.array([True, False, True])
            again = [envs.reset(options={"reset_mask": mask}) for envs in (native, reference)]
            np.testing.assert_array_equal(again[0][0][mask], again[1][0][mask])
        result = native.step(action)
        expected = reference.step(action)
        np.testing.assert_equal(result[:4], expected[:4])
        assert ("final_obs" in result[4]) == ("final_obs" in expected[4])
        for row in np.flatnonzero(expected[4].get("_final_obs", [])):
            ended += 1
            np.testing.assert_array_equal(
                result[4]["final_obs"][row], expected[4]["final_obs"][row]
            )
    assert ended == (6 if mode == "SameStep" else 0)


@pytest.mark.parametrize(
    ("wrap", "rounds"),
    [
        (lambda env: env, 1003),  # more than in any preset
        (lambda env: env.spec.make(), 3),
        (lambda env: FlatEnv(gym.make("FLEdge-v0", **env.spec.kwargs)), 3),
        (lambda env: FlatEnv(gym.make("FLEdge-v0", **env.spec.kwargs)).spec.make(), 3),
    ],
)
def test_spec__tells_the_rounds(wrap, rounds):
    env = wrap(gym.make("FLEdgeFlat-v0", num_devices=2, num_rounds=rounds))
    assert env.spec.max_episode_steps == rounds


def test_spec__keeps_a_shorter_limit():
    raw = gym.make("FLEdge-v0", scenario=PLAIN, max_episode_steps=2)
    env = FlatEnv(gym.wrappers.RecordEpisodeStatistics(raw))
    assert env.spec.max_episode_steps == 2
    assert env.spec.make().spec == env.spec
    env.reset(seed=2)
    # Decisions in SI units pass as they are.
    decision = Allocation(PLAIN.f_mid, PLAIN.p_max, np.array([0.1, 0.2, 0.3, 0.2, 0.2]))
    flat = [env.step(decision) for _ in range(2)]
    assert [step[3] for step in flat] == [False, True]
    raw.reset(seed=learning_seed(2))
    assert [step[1] for step in flat] == [env.scaling.reward(raw.step(decision)[1]) for _ in flat]


def test_wrappers__refuse_other_environments():
    single = gym.make("FLEdge-v0")
    batch = gym.make_vec("FLEdge-v0", **NATIVE)
    for wrap, env, message in [
        (FlatEnv, PLAIN, "FlatEnv wraps .* got Scenario"),
        (FlatEnv, batch, "got FLEdgeVectorEnv.*FlatVectorEnv for a batch made with"),
        (FlatVectorEnv, single, "an FLEdgeVectorEnv, got <FLEdgeEnv.*: FlatEnv is for one system"),
    ]:
        with pytest.raises(TypeError, match=message):
            wrap(env)
    with pytest.raises(ValueError, match="must be a mapping with channel_gain and queue, got"):
        FlatEnv(FlattenObservation(single)).reset(seed=0)


@pytest.mark.parametrize(
    ("make", "action", "message"),
    [
        (gym.make, np.zeros((3, 5)), r"array of shape \(15,\), .* got shape \(3, 5\)"),
        (gym.make, [[1.0, 2.0], [3.0]], "action must hold real numbers"),
        (partial(gym.make, rule=True), np.zeros(15), r"shape \(18,\), the coefficients of f, "),
        (partial(gym.make_vec, **NATIVE), np.zeros(15), r"shape \(3, 15\), .*, got shape \(15,\)"),
    ],
)
def test_step__refuses_other_actions(make, action, message):
    env = make("FLEdgeFlat-v0", scenario=PLAIN)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)

"""The batch as rows for Stable-Baselines3: the single environments, device by device."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor

from fl_edge_env import FLEdgeEnv, Scenario, with_tiers
from fl_edge_env.allocation import decode_action
from fl_edge_env.features import FEATURES, Scaling
from policies.learning.credit import difference_reward
from policies.learning.vec_env import BatchVecEnv

SCENARIO = with_tiers(Scenario.femnist(num_devices=6, cohort_size=3, num_rounds=4))
LATE = SCENARIO.replace(csi="delayed", latency="round_time")
UNRELIABLE = SCENARIO.replace(availability=0.5, upload_failure=0.5)
F = len(FEATURES)


def actions(rows: BatchVecEnv, rounds: int) -> np.ndarray:
    shape = (rounds, rows.num_envs, *rows.action_space.shape)
    return np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)


def seen(env: FLEdgeEnv) -> np.ndarray:
    """Features of each device beside mean and spread over all, by plain sums."""
    features = Scaling(env.scenario).features(env.simulator.observe()).astype(float)
    mean = sum(features) / 6
    spread = np.sqrt(sum((row - mean) ** 2 for row in features) / 6)
    return np.array([np.concatenate([row, mean, spread]) for row in features])


@pytest.mark.parametrize("credit", ["difference", "team"])
@pytest.mark.parametrize("scenario", [SCENARIO, LATE, UNRELIABLE], ids=["plain", "late", "drop"])
def test_devices__are_those_of_single_environments_and_rewarded_by_the_credit(scenario, credit):
    batch = BatchVecEnv(2, scenario, credit=credit)
    batch.seed(3)
    rows, scaling = batch.reset(), Scaling(scenario)
    assert rows.dtype == np.float32
    envs = [FLEdgeEnv(scenario) for _ in range(2)]
    for system, env in enumerate(envs):
        env.reset(seed=4_000_000 + system)
    np.testing.assert_allclose(rows, np.vstack([seen(env) for env in envs]), rtol=1e-4, atol=1e-5)
    for played, action in enumerate(actions(batch, 9)):
        expected, last = [], []
        for system, env in enumerate(envs):
            joint = np.empty((3, 6), dtype=np.float32)
            for n in range(6):
                joint[:, n] = action[6 * system + n]  # f, p and q of device n
            simulator = env.simulator
            gain, queue, there = simulator.channel_gain, simulator.queue.copy(), simulator.available
            allocation = decode_action(joint, scenario, 2.0)
            if there is not None:
                there = there.copy()
                q = np.where(there, allocation.q, 0.0)
                allocation = replace(allocation, q=q / q.sum())
            _, team, _, truncated, _ = env.step(joint)
            assert truncated == (played % 4 == 3)
            if credit == "team":
                expected += [scaling.reward(team)] * 6
            else:
                share = difference_reward(gain, queue, allocation, scenario, there)
                # In units of the team's reward, times N.
                unit = scaling.reward(1.0) - scaling.reward(0.0)
                expected += (6 * unit * share).tolist()
            last.append(seen(env))
            if truncated:
                env.reset()
        rows, reward, done, info = batch.step(action)
        np.testing.assert_allclose(reward, expected, rtol=1e-5, atol=1e-6)
        assert done.tolist() == [played % 4 == 3] * 12
        assert [bool(entry) for entry in info] == done.tolist()
        if done.any():
            ends = [entry["terminal_observation"] for entry in info]
            np.testing.assert_allclose(ends, np.vstack(last), rtol=1e-4, atol=1e-5)
            assert all(entry["TimeLimit.truncated"] is True for entry in info)
        shown = np.vstack([seen(env) for env in envs])
        np.testing.assert_allclose(rows, shown, rtol=1e-4, atol=1e-5)
        assert batch.observation_space.contains(rows[0])


def test_systems__are_the_flat_environments():
    batch = BatchVecEnv(2, LATE, rows="systems")
    batch.seed(0)
    shown = [batch.reset()]
    sequence = actions(batch, 6)
    results = [batch.step(action) for action in sequence]
    shown += [rows for rows, *_ in results]
    for system in range(2):
        env = gym.make("FLEdgeFlat-v0", scenario=LATE)
        assert env.observation_space == batch.observation_space
        assert env.action_space == batch.action_space
        observation, _ = env.reset(seed=1_000_000 + system)
        np.testing.assert_array_equal(shown[0][system], observation)
        for action, (rows, rewards, done, info) in zip(sequence, results, strict=True):
            observation, reward, _, truncated, _ = env.step(action[system])
            assert rewards[system] == pytest.approx(reward, rel=1e-6)
            assert done[system] == truncated
            if truncated:
                np.testing.assert_array_equal(info[system]["terminal_observation"], observation)
                observation, _ = env.reset()
            np.testing.assert_array_equal(rows[system], observation)


@pytest.mark.parametrize(
    ("scenario", "options", "message"),
    [
        (SCENARIO, {"rows": "device"}, "rows must be .*got 'device': did you mean 'devices'"),
        (SCENARIO, {"credit": "own"}, "credit must be .*, got 'own'"),
        (SCENARIO, {"credit": "difference", "rows": "systems"}, "is for rows of devices"),
        (SCENARIO.replace(objective="outcome"), {"credit": "difference"}, "objective 'penalty'"),
    ],
)
def test_batch__names_what_is_wrong(scenario, options, message):
    with pytest.raises(ValueError, match=message):
        BatchVecEnv(2, scenario, **options)


def test_batch__takes_presets_by_name_and_names_actions_of_another_shape():
    batch = BatchVecEnv(2, "digits")
    assert batch.num_envs == 2 * Scenario.digits().num_devices
    batch.reset()
    with pytest.raises(ValueError, match=r"actions must have shape \(80, 3\), got \(7, 3\)"):
        batch.step(np.zeros((7, 3), np.float32))


def test_batch__gives_its_attributes_and_refuses_to_treat_rows_apart():
    batch = BatchVecEnv(2, SCENARIO)
    assert batch.get_attr("num_envs", [0, 1]) == [2, 2]
    assert batch.env_is_wrapped(Monitor, indices=[0]) == [False]
    with pytest.raises(AttributeError, match="one batch: softmax_scale cannot be set"):
        batch.set_attr("softmax_scale", 1.0)
    with pytest.raises(AttributeError, match="one batch: reset cannot be called"):
        batch.env_method("reset")

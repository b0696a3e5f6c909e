"""The batch as rows for Stable-Baselines3: the single environments, device by device."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from fl_edge_env import FLEdgeEnv, Scenario, with_phones
from fl_edge_env.features import FEATURES, Scaling
from fl_edge_env.flat import learning_seed
from policies.learning.credit import difference_reward
from policies.learning.vec_env import BatchVecEnv

SCENARIO = with_phones(Scenario.femnist(num_devices=6, cohort_size=3, num_rounds=4))
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
def test_devices__are_those_of_single_environments(scenario, credit):
    batch = BatchVecEnv(2, scenario, credit=credit)
    batch.seed(3)
    rows = batch.reset()
    scaling = Scaling(scenario)
    assert rows.dtype == np.float32
    envs = [FLEdgeEnv(scenario) for _ in range(2)]
    for system, env in enumerate(envs):
        env.reset(seed=learning_seed(4_000_000 + system))
    np.testing.assert_allclose(rows, np.vstack([seen(env) for env in envs]), rtol=1e-4, atol=1e-5)
    for played, action in enumerate(actions(batch, 9)):
        expected = []
        last = []
        for system, env in enumerate(envs):
            joint = action[6 * system : 6 * system + 6].T  # f, p and q
            gain = env.simulator.channel_gain
            queue = env.simulator.queue.copy()
            there = copy.copy(env.simulator.available)
            _, team, _, truncated, info = env.step(joint)
            assert truncated == (played % 4 == 3)
            if credit == "team":
                expected += [scaling.reward(team)] * 6
            else:
                drawn = replace(env.last_decision, q=info.get("q", env.last_decision.q))
                share = difference_reward(gain, queue, drawn, scenario, there)
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


@pytest.mark.parametrize(
    ("scenario", "options", "message"),
    [
        (SCENARIO, {"credit": "own"}, "credit must be .*, got 'own'"),
        (SCENARIO.replace(objective="outcome"), {"credit": "difference"}, "objective='penalty'"),
    ],
)
def test_batch__names_what_is_wrong(scenario, options, message):
    with pytest.raises(ValueError, match=message):
        BatchVecEnv(2, scenario, **options)


def test_batch__takes_presets_and_refuses_other_shapes():
    batch = BatchVecEnv(2, "digits")
    assert batch.num_envs == 2 * Scenario.digits().num_devices
    batch.reset()
    with pytest.raises(ValueError, match=r"actions must have shape \(80, 3\), got \(7, 3\)"):
        batch.step(np.zeros((7, 3), np.float32))

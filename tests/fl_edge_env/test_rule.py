"""The environment whose action is a rule, against the rule applied device by device."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Scenario, with_phones
from fl_edge_env.flat import learning_seed
from fl_edge_env.flat_view import FlatView
from tests.support import random_actions

PLAIN = with_phones(Scenario.femnist(num_devices=5, cohort_size=3, num_rounds=6))
OUTCOME = PLAIN.replace(objective="outcome", csi="participants", availability=0.6)
FIXED = PLAIN.replace(f_min=1e9, f_max=1e9, latency="round_time")


def by_hand(action: np.ndarray, features: np.ndarray, scenario: Scenario) -> tuple[list, list]:
    """The f, p and scores of the devices, one after the other, and what agents see of them."""
    parts = np.clip(action.astype(float), -8, 8).reshape(3, -1)
    usual = np.mean(features[:, 0], dtype=float)
    rows = []
    for device, own in enumerate(features.astype(float)):
        known = [1.0, own[0] - usual, *own[1:]]
        f, p, score = (0.35 * sum(map(float.__mul__, part.tolist(), known)) for part in parts)
        f = np.clip(scenario.f_mid[device] * math.exp(f), scenario.f_min, scenario.f_max)[device]
        p = np.clip(scenario.p_mid[device] * math.exp(p), scenario.p_min, scenario.p_max)[device]
        rows.append((f, p, score))
    columns = [sorted(column.tolist()) for column in features.T]
    pooled = [
        [sum(column) / 5 for column in columns],
        [np.std(column) for column in columns],
        [column[0] for column in columns],
        [column[-1] for column in columns],
    ]
    return rows, np.concatenate(pooled).tolist()


@pytest.mark.parametrize("scenario", [PLAIN, OUTCOME, FIXED], ids=["plain", "outcome", "fixed"])
def test_rule__is_the_same_for_every_device(scenario):
    env = gym.make("FLEdgeRule-v0", scenario=scenario, softmax_scale=1.5)
    plain = gym.make("FLEdge-v0", scenario=scenario, softmax_scale=1.5)
    view = FlatView(scenario)
    seen, _ = env.reset(seed=1)
    raw, _ = plain.reset(seed=learning_seed(1))
    for action in 3 * random_actions(6, *env.action_space.shape):
        rows, pooled = by_hand(action, view.see(raw), scenario)
        np.testing.assert_allclose(seen, pooled, rtol=1e-5, atol=1e-6)
        assert env.observation_space.contains(seen)
        seen, reward, _, truncated, _ = env.step(action)
        decision = env.unwrapped.last_decision
        f, p, score = np.transpose(rows)
        np.testing.assert_allclose(decision.f, f, rtol=1e-9)
        np.testing.assert_allclose(decision.p, p, rtol=1e-9)
        if scenario.objective == "outcome":
            there = np.flatnonzero(raw["available"])
            best = there[np.argsort(-score[there])][:3]
            assert set(decision.cohort[decision.cohort >= 0]) == set(best)
        else:
            score -= score.mean()
            odds = np.exp(1.5 * score / max(2.0, abs(score).max()))
            np.testing.assert_allclose(decision.q, odds / odds.sum(), rtol=1e-9)
        raw, expected, *_ = plain.step(decision)
        assert reward == view.scaling.reward(expected)
    assert truncated


@pytest.mark.parametrize("scenario", [PLAIN, OUTCOME, FIXED], ids=["plain", "outcome", "fixed"])
def test_zero__is_the_same_action_as_in_the_flat_environment(scenario):
    found = []
    for name in ("FLEdgeFlat-v0", "FLEdgeRule-v0"):
        env = gym.make(name, scenario=scenario)
        env.reset(seed=4)
        found.append([env.step(np.zeros(env.action_space.shape))[1] for _ in range(6)])
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_step__refuses_other_actions():
    env = gym.make("FLEdgeRule-v0", scenario=PLAIN)
    env.reset(seed=0)
    for action, message in (
        (np.zeros(15), r"shape \(18,\), the coefficients of f, .*, got shape \(15,\)"),
        (np.full(18, np.nan), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            env.step(action)

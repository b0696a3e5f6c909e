"""The environment whose action is a rule, against the rule in single steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Scenario, with_phones
from fl_edge_env.flat import learning_seed
from fl_edge_env.flat_view import FlatView
from tests.support import random_actions

PLAIN = with_phones(Scenario.femnist(num_devices=5, cohort_size=3, num_rounds=6))
OUTCOME = PLAIN.replace(objective="outcome", csi="participants", availability=0.6)
FIXED = PLAIN.replace(f_min=1e9, f_max=1e9)


@pytest.mark.parametrize("scenario", [PLAIN, OUTCOME, FIXED], ids=["plain", "outcome", "fixed"])
def test_rule__is_the_same_for_every_device(scenario):
    env = gym.make("FLEdgeRule-v0", scenario=scenario, softmax_scale=1.5)
    plain = gym.make("FLEdge-v0", scenario=scenario)
    view = FlatView(scenario)
    seen, _ = env.reset(seed=1)
    raw, _ = plain.reset(seed=learning_seed(1))
    for action in random_actions(6, *env.action_space.shape) * [[0], [1], [3], [9], [1], [1]]:
        known = view.see(raw).astype(float)
        pooled = np.ravel([pool(known, axis=0) for pool in (np.mean, np.std, np.min, np.max)])
        np.testing.assert_allclose(seen, pooled, rtol=1e-5, atol=1e-6)
        assert env.observation_space.contains(seen)
        known[:, 0] -= known[:, 0].mean()
        parts = 0.35 * action.clip(-8, 8).reshape(3, -1)
        f, p, score = (part[0] + known @ part[1:] for part in parts)
        seen, reward, *_ = env.step(action)
        decision = env.unwrapped.last_decision
        f = (scenario.f_mid * np.exp(f)).clip(scenario.f_min, scenario.f_max)
        p = (scenario.p_mid * np.exp(p)).clip(scenario.p_min, scenario.p_max)
        np.testing.assert_allclose([decision.f, decision.p], [f, p], rtol=1e-9)
        if decision.q is None:
            order = np.argsort(np.where(raw["available"], -score, np.inf))[:3]
            assert {*decision.cohort} - {-1} == {n for n in order if raw["available"][n]}
        else:
            score -= score.mean()
            odds = np.exp(1.5 * score / max(2.0, abs(score).max()))
            np.testing.assert_allclose(decision.q, odds / odds.sum(), rtol=1e-9)
        raw, expected, *_ = plain.step(decision)
        assert reward == view.scaling.reward(expected)

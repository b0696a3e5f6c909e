"""One rule for all devices as the action: ``gym.make("FLEdgeRule-v0")``."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from fl_edge_env.env import FLEdgeEnv
from fl_edge_env.features import Features
from fl_edge_env.flat import FlatEnv, FlatVectorEnv
from fl_edge_env.flat_view import FlatForm, box_with_zero
from fl_edge_env.typing import FloatArray
from fl_edge_env.vector_env import FLEdgeVectorEnv

# A coefficient of 1, about a standard deviation of an untrained agent's actions: two double f.
_UNIT = 0.35
_REACH = 8.0  # the largest coefficient
_LARGEST = 30.0  # of a logarithm, so that its exponential is finite
_SCORE = 2.0  # log q of the score 1, with the default softmax_scale


class RuleForm(FlatForm):
    """A rule for all devices from features pooled over them: the same spaces for any N.

    The agent sees the mean, the standard deviation, the least and the largest value of each
    feature, shape (4 F,). Its action, shape (3 (1 + F),), has three parts: for f, p and q, each
    with a constant and a coefficient for each feature. A device's log (f / f_mid), log (p / p_mid)
    and log (N q), up to a constant, are 0.35 times the constant plus the features times their
    coefficients. The device time counts as its difference from the mean over the devices.

    f and p are clipped to their ranges. Scores that exceed `softmax_scale` are scaled down.
    """

    action_holds = "the coefficients of f, then of p, then of q, each a constant and the features'"

    def _spaces(self) -> tuple[Box, Box]:
        low, high = self.scaling.feature_bounds()
        observation = box_with_zero(
            np.concatenate([low, np.zeros_like(low), low, low]),
            np.concatenate([high, high - low, high, high]),
        )
        return observation, Box(-_REACH, _REACH, (3 * (1 + low.size),), np.float32)

    def seen(self, features: Features) -> Features:
        """Pool features of shape (..., N, F), shape (..., 4 F)."""
        pooled = [
            features.mean(axis=-2),
            features.std(axis=-2),
            features.min(axis=-2),
            features.max(axis=-2),
        ]
        return np.concatenate(pooled, axis=-1)

    def _rows(self, action: FloatArray, features: Features) -> FloatArray:
        scenario = self.scaling.scenario
        inside = action.clip(-_REACH, _REACH)
        rule = _UNIT * inside.reshape(*action.shape[:-1], 3, 1, 1 + features.shape[-1])
        known = features.astype(np.float64)
        known[..., 0] -= known[..., 0].mean(axis=-1, keepdims=True)
        logs = rule[..., 0] + (rule[..., 1:] * known[..., np.newaxis, :, :]).sum(axis=-1)
        f, p = np.exp(np.moveaxis(logs[..., :2, :], -2, 0).clip(-_LARGEST, _LARGEST))
        score = logs[..., 2, :]
        score -= score.mean(axis=-1, keepdims=True)
        score /= np.abs(score).max(axis=-1, keepdims=True, initial=_SCORE)
        rows = (
            _to_unit(scenario.f_mid * f, scenario.f_min, scenario.f_max),
            _to_unit(scenario.p_mid * p, scenario.p_min, scenario.p_max),
            score,
        )
        return np.stack(rows, axis=-2)


def _to_unit(value: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Map the range from low to high to [-1, 1], clipped; 0 if the range is a point."""
    half = 0.5 * (high - low)
    return (value.clip(low, high) - low - half) / np.maximum(half, np.finfo(np.float64).tiny)


class RuleEnv(FlatEnv):
    """An `FLEdgeEnv`, possibly in other wrappers, whose action is a rule for all devices.

    See `RuleForm` for its observation and action; the rest, including the scaled reward, is as in
    `FlatEnv`. The zero action is the middle of all ranges with uniform sampling. An agent plays
    systems with any number of devices.
    """

    _form_type = RuleForm


class RuleVectorEnv(FlatVectorEnv):
    """An `FLEdgeVectorEnv` whose actions are rules; see `RuleEnv` and `FlatVectorEnv`."""

    _form_type = RuleForm


def make_rule(**keywords: Any) -> RuleEnv:
    """Make ``FLEdgeRule-v0``, a `RuleEnv`, with the keywords of `FLEdgeEnv`."""
    return RuleEnv(FLEdgeEnv(**keywords))


def make_rule_vector(**keywords: Any) -> RuleVectorEnv:
    """Make the native batch of ``FLEdgeRule-v0``, with the keywords of `FLEdgeVectorEnv`."""
    return RuleVectorEnv(FLEdgeVectorEnv(**keywords))

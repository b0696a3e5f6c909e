"""One rule for all devices as the action: ``gym.make("FLEdgeRule-v0")``."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from fl_edge_env.features import Features, Scaling
from fl_edge_env.flat_view import FlatForm, with_zero
from fl_edge_env.typing import FloatArray

# A coefficient of 1, the standard deviation of an untrained agent's actions: two double f.
_UNIT = 0.35
_REACH = 8.0  # the largest coefficient
_LARGEST = 30.0  # of a logarithm, so that its exponential is finite
_SCORE = 2.0  # log q of the score 1, with the default softmax_scale


class RuleForm(FlatForm):
    """A rule for all devices from features pooled over them: the same shapes for any N.

    The agent sees the mean, the standard deviation, the least and the largest value of each
    feature, shape (4 F,). Its action, shape (3 (1 + F),), has three parts, for f, p and q. Each is
    a constant and a coefficient for each feature, in units of 0.35. Their sum over a device's
    features is the logarithm of f / f_mid, of p / p_mid, and of q up to a constant. The device
    time counts as its difference from the mean over the devices.

    f and p are clipped to their ranges, and log q is scaled down if it exceeds `softmax_scale`.
    """

    shared = True
    holds = "the coefficients of f, then of p, then of q, each a constant and one for each feature"

    def __init__(self, scaling: Scaling) -> None:
        scenario = scaling.scenario
        self._low = np.stack([scenario.f_min, scenario.p_min])
        self._high = np.stack([scenario.f_max, scenario.p_max])
        # A range may be a point.
        self._half = np.maximum((self._high - self._low) / 2.0, np.finfo(np.float64).tiny)
        low, high = scaling.feature_bounds()
        seen = with_zero(
            np.concatenate([low, 0.0 * low, low, low]),
            np.concatenate([high, high - low, high, high]),
        )
        self.spaces = seen, Box(-_REACH, _REACH, (3 * (1 + low.size),), np.float32)

    def seen(self, features: Features) -> Features:
        """See `FlatForm.seen`."""
        pooled = [pool(features, axis=-2) for pool in (np.mean, np.std, np.min, np.max)]
        return np.concatenate(pooled, axis=-1)

    def rows(self, action: FloatArray, features: Features) -> FloatArray:
        """See `FlatForm.rows`."""
        rule = _UNIT * action.clip(-_REACH, _REACH).reshape(*action.shape[:-1], 3, 1, -1)
        known = features.astype(np.float64)
        known[..., 0] -= known[..., 0].mean(axis=-1, keepdims=True)
        rows: FloatArray = rule[..., 0] + (rule[..., 1:] * known[..., np.newaxis, :, :]).sum(
            axis=-1
        )
        middle = self._low + self._half
        value = middle * np.exp(rows[..., :2, :].clip(-_LARGEST, _LARGEST))
        rows[..., :2, :] = (value.clip(self._low, self._high) - middle) / self._half
        score = rows[..., 2, :]
        score -= score.mean(axis=-1, keepdims=True)
        score /= np.abs(score).max(axis=-1, keepdims=True, initial=_SCORE)
        return rows

"""Means over seeds with their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from policies.benchmark.intervals import mean_interval


def test_mean_interval__is_students():
    sample = np.random.default_rng(0).normal(3.0, 2.0, size=5)
    expected = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert mean_interval(sample) == pytest.approx((sample.mean(), *expected))
    np.testing.assert_array_equal(mean_interval([2.0]), [2, np.nan, np.nan])

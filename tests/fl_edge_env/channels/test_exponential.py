"""Channel draws against the distributions they come from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import ExponentialChannel

COUNT = 200_000


@pytest.mark.parametrize(("m", "low", "high"), [(0.1, 0.01, 0.5), (2.0, 0.5, 3.0)])
def test_exponential__clipping_moves_the_outliers_to_the_ends(m, low, high):
    gain = ExponentialChannel(m, low, high).draw(np.random.default_rng(0), COUNT, 1).ravel()
    below = -math.expm1(-low / m)
    above = math.exp(-high / m)
    for share, probability in ((np.mean(gain == low), below), (np.mean(gain == high), above)):
        assert abs(share - probability) < 4 * math.sqrt(probability / COUNT)
    inner = gain[(gain > low) & (gain < high)]
    law = stats.truncexpon(b=(high - low) / m, loc=low, scale=m)
    assert stats.kstest(inner, law.cdf).pvalue > 1e-3


# In the third case the interval lies so far in the tail that the distribution function of the
# whole exponential rounds to one.
@pytest.mark.parametrize(
    ("m", "low", "high"), [(0.1, 0.01, 0.5), (2.0, 0.5, 3.0), (0.001, 0.05, 0.5)]
)
def test_exponential__resampling_truncates_the_distribution(m, low, high):
    channel = ExponentialChannel(m, low, high, filter="resample")
    gain = channel.draw(np.random.default_rng(1), COUNT, 1).ravel()
    law = stats.truncexpon(b=(high - low) / m, loc=low, scale=m)
    assert stats.kstest(gain, law.cdf).pvalue > 1e-3
    assert gain.min() >= low
    assert gain.max() <= high

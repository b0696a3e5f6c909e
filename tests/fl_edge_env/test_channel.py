"""Channel draws against the distributions they come from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import ExponentialChannel

COUNT = 200_000


def test_exponential__clipping_moves_the_outliers_to_the_ends():
    gain = ExponentialChannel().draw(np.random.default_rng(0), COUNT, 1).ravel()
    below, above = -math.expm1(-0.1), math.exp(-5)
    for share, probability in ((np.mean(gain == 0.01), below), (np.mean(gain == 0.5), above)):
        assert abs(share - probability) < 4 * math.sqrt(probability / COUNT)
    inner = gain[(gain > 0.01) & (gain < 0.5)]
    law = stats.truncexpon(b=(0.5 - 0.01) / 0.1, loc=0.01, scale=0.1)
    assert stats.kstest(inner, law.cdf).pvalue > 1e-3
    # E[clip] = min + integral of the tail between the ends
    mean = 0.01 + 0.1 * (math.exp(-0.1) - math.exp(-5))
    assert abs(gain.mean() - mean) < 4 * gain.std() / math.sqrt(COUNT)


def test_exponential__resampling_gives_the_truncated_distribution():
    channel = ExponentialChannel(filter="resample")
    gain = channel.draw(np.random.default_rng(1), COUNT, 1).ravel()
    law = stats.truncexpon(b=(0.5 - 0.01) / 0.1, loc=0.01, scale=0.1)
    assert stats.kstest(gain, law.cdf).pvalue > 1e-3
    assert gain.min() >= 0.01
    assert gain.max() <= 0.5


@pytest.mark.parametrize("filter_", ["clip", "resample"])
def test_exponential__splitting_the_rounds_changes_nothing(filter_):
    channel = ExponentialChannel(filter=filter_)
    whole = channel.draw(np.random.default_rng(3), 10, 4)
    rng = np.random.default_rng(3)
    parts = [channel.draw(rng, 3, 4), channel.draw(rng, 7, 4)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": 0.0}, "mean must be positive and finite, got 0.0"),
        ({"mean": math.nan}, "mean must be positive and finite, got nan"),
        ({"gain_min": 0.0}, "0 < gain_min < gain_max < inf, got 0.0"),
        ({"gain_min": 0.6}, "got 0.6 and 0.5"),
        ({"gain_max": math.inf}, "got 0.01 and inf"),
        ({"filter": "drop"}, "filter must be 'clip' or 'resample', got 'drop'"),
    ],
)
def test_exponential__wrong_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExponentialChannel(**arguments)

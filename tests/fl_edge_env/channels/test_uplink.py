"""Measured uplinks: their rates in a system at the reference, their means and their bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import Scenario, UplinkChannel, physics
from fl_edge_env.channels.uplink import MEASURED_UPLINKS_BPS

COUNT = 40_000


def test_uplinks__rates_have_the_measured_moments_in_the_preset():
    scenario = Scenario.phones(num_devices=19)
    uplink = scenario.channel.uplinks(19)
    assert sorted(uplink) == list(range(19))
    gain = scenario.channel.draw(np.random.default_rng(0), COUNT, 19)
    rate = physics.upload_rate(gain, scenario.p_max, scenario)
    mean, deviation = np.array(MEASURED_UPLINKS_BPS)[uplink].T
    # The interval moves few rates, and those by little.
    error = deviation / math.sqrt(COUNT)
    assert np.all(np.abs(rate.mean(axis=0) - mean) < 4 * error + 1e-3 * mean)
    np.testing.assert_allclose(rate.std(axis=0), deviation, rtol=0.03)
    for index in (0, 7):
        law = stats.gamma((mean / deviation)[index] ** 2, scale=(deviation**2 / mean)[index])
        inner = rate[(rate[:, index] > 0.101 * mean[index]), index]
        cut = law.cdf(0.101 * mean[index])
        assert stats.kstest(inner, lambda r, c=cut, g=law: (g.cdf(r) - c) / (1 - c)).pvalue > 1e-3


def test_uplinks__stay_with_a_device_and_are_equally_frequent():
    channel = UplinkChannel(place_seed=2)
    np.testing.assert_array_equal(channel.uplinks(57)[:30], channel.uplinks(30))
    np.testing.assert_array_equal(np.bincount(channel.uplinks(57)), 3)
    assert not np.array_equal(channel.uplinks(57), UplinkChannel(place_seed=3).uplinks(57))


def test_uplinks__of_ones_own_are_for_their_devices_or_multiples():
    own = UplinkChannel(mean_bps=[1e6] * 4, deviation_bps=[2e5] * 4)
    with pytest.raises(ValueError, match=r"rates of 4 devices.*scenario 6 .*num_devices=4, or a m"):
        Scenario(num_devices=6, channel=own)
    np.testing.assert_array_equal(own.uplinks(8), [0, 1, 2, 3] * 2)

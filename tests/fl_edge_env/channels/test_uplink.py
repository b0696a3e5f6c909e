"""Measured uplinks: their rates in a system at the reference, their means and their bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import Scenario, UplinkChannel, physics
from fl_edge_env.channels.uplink import MEASURED_UPLINKS_BPS, gain_of_rate

COUNT = 40_000


def test_gain_of_rate__is_undone_by_the_upload_rate_of_a_system():
    scenario = Scenario(num_devices=3, bandwidth_hz=6e6, cohort_size=3, noise_power_w=0.02)
    rate = np.array([1e3, 1e6, 2e7])
    gain = gain_of_rate(rate, share_hz=2e6, power_w=0.05, noise_power_w=0.02)
    np.testing.assert_allclose(physics.upload_rate(gain, np.full(3, 0.05), scenario), rate)
    # One bit for each hertz needs as much signal as noise.
    one = gain_of_rate(np.array([2e6]), share_hz=2e6, power_w=0.05, noise_power_w=0.02)
    assert one[0] == pytest.approx(0.02 / 0.05)


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
    assert np.all(rate >= 0.0999 * mean)
    assert np.all(rate <= 5.001 * mean)


def test_uplinks__stay_with_a_device_and_each_is_as_frequent_as_the_others():
    channel = UplinkChannel(place_seed=2)
    np.testing.assert_array_equal(channel.uplinks(57)[:30], channel.uplinks(30))
    np.testing.assert_array_equal(np.bincount(channel.uplinks(57)), 3)
    assert not np.array_equal(channel.uplinks(57), UplinkChannel(place_seed=3).uplinks(57))


MEAN, SPREAD = np.array([2e5, 1e6, 3e6, 8e6]), np.array([0.03, 0.2, 0.5, 0.8])
OWN = UplinkChannel(mean_bps=MEAN, deviation_bps=SPREAD * MEAN, persistence=0.8)


def rates(channel: UplinkChannel, gain: np.ndarray) -> np.ndarray:
    factor = channel.reference_power_w / channel.noise_power_w
    return channel.share_hz * np.log2(1.0 + factor * gain)


def test_uplinks__of_ones_own_have_the_moments_that_were_asked_for():
    rate = rates(OWN, OWN.sample(np.random.default_rng(1), COUNT, 4))
    error = SPREAD * MEAN / math.sqrt(COUNT)
    # The cut moves the moments of the widest by a thousandth and a hundredth.
    assert np.all(np.abs(rate.mean(axis=0) - MEAN) < 4 * error + 1e-3 * MEAN)
    np.testing.assert_allclose(rate.std(axis=0), SPREAD * MEAN, rtol=0.025)
    with pytest.raises(ValueError, match=r"rates of 4 devices .*scenario 3 .*num_devices=4"):
        Scenario(num_devices=3, channel=OWN)


def test_persistence__is_the_correlation_and_leaves_the_long_run_law():
    gain = OWN.draw(np.random.default_rng(2), COUNT, 4)
    rate = rates(OWN, gain)
    # A rate lasts for five rounds on average, so that there are nine times fewer of them.
    error = SPREAD * MEAN / math.sqrt(COUNT / 9)
    assert np.all(np.abs(rate.mean(axis=0) - MEAN) < 4 * error + 1e-3 * MEAN)
    np.testing.assert_allclose(rate.std(axis=0), SPREAD * MEAN, rtol=0.05)
    for lag in (1, 2, 5):
        for device in rate.T:
            correlation = np.corrcoef(device[:-lag], device[lag:])[0, 1]
            assert correlation == pytest.approx(0.8**lag, abs=0.05)
    kept = gain[1:] == gain[:-1]
    np.testing.assert_allclose(kept.mean(axis=0), 0.8, atol=4 * 0.4 / math.sqrt(COUNT))
    # Each device keeps its own.
    assert abs(np.corrcoef(kept[:, 0], kept[:, 1])[0, 1]) < 4 / math.sqrt(COUNT)


def test_conditional__of_a_gain_that_stays_is_an_atom_and_the_law_of_new_ones():
    previous = OWN.sample(np.random.default_rng(3), 2, 4)
    law, new = OWN.conditional(previous), replace(OWN, persistence=0.0).conditional(previous)
    np.testing.assert_array_equal(law.gain[..., 0], previous)
    np.testing.assert_allclose(law.probability[..., 0], 0.8)
    np.testing.assert_array_equal(law.gain[..., 1:], new.gain)
    np.testing.assert_allclose(law.probability[..., 1:], 0.2 * new.probability)

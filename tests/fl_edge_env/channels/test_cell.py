"""Users in a cell: where they are, their mean gains and how their fading changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import CellChannel, Scenario
from fl_edge_env.streams import episode_gains

COUNT = 40_000


def test_cell__places_are_uniform_over_the_area_of_the_ring():
    distance = CellChannel(radius_m=300, least_distance_m=120, place_seed=3).distances(20_000)
    assert distance.min() >= 120
    assert distance.max() <= 300
    share = (distance**2 - 120**2) / (300**2 - 120**2)  # of the ring's area that is nearer
    assert stats.kstest(share, "uniform").pvalue > 1e-3


def test_cell__means_follow_path_loss_and_truncated_shadowing():
    channel = CellChannel(mean=0.2, shadowing_db=6.0, place_seed=1)
    mean = channel.device_mean(20_000)
    assert mean.mean() == pytest.approx(0.2)
    path = 36.7 * np.log10(channel.distances(20_000) / 100)
    ring = 36.7 * np.log10(2.5)
    loss = -10 * np.log10(mean)
    loss -= loss.max() - ring  # of 20,000 users some lose as much as can be lost
    shadowing = path - loss
    assert np.all((shadowing > path - ring - 0.01) & (shadowing < path + 0.01))
    quantile = stats.truncnorm.cdf(shadowing, (path - ring) / 6, path / 6, scale=6.0)
    assert stats.kstest(quantile, "uniform").statistic < 0.015


def test_cell__fading_has_its_distribution():
    def power(**options):
        channel = CellChannel(**options, fading_min=1e-12, fading_max=1e12)  # nothing is cut
        return channel.sample(np.random.default_rng(2), COUNT, 1)[:, 0] / 0.1

    assert stats.kstest(power(), "expon").pvalue > 1e-3
    # With a line of sight 2 (K + 1) times the power is noncentral chi-square: 2 K, two squares.
    law = stats.ncx2(2, 2 * 2.5)
    rician = power(fading="rician", rician_factor=2.5)
    assert stats.kstest(2 * 3.5 * rician, law.cdf).pvalue > 1e-3


def test_cell__a_user_stays_whatever_the_seed_of_the_episode():
    scenario = Scenario.cifar10(num_devices=8, num_rounds=3000, channel=CellChannel())
    means = [np.concatenate(list(episode_gains(scenario, seed))).mean(axis=0) for seed in (0, 1)]
    for mean in means:
        np.testing.assert_allclose(mean, scenario.mean_gain, rtol=5 / math.sqrt(3000))
    assert not np.array_equal(*means)
    assert np.ptp(scenario.mean_gain) > scenario.channel.mean
    distances = scenario.channel.distances(8)
    np.testing.assert_array_equal(distances[:3], scenario.channel.distances(3))
    assert not np.array_equal(distances, CellChannel(place_seed=1).distances(8))


def test_cell__bounds_hold_for_one_far_or_one_near_user():
    # The worst case that can occur: all others at the other end of the ring and of the shadowing.
    channel = CellChannel(shadowing_db=0.0, radius_m=200.0)
    ratio = 2**3.67
    for many in (1, 1e6):
        far = (many + 1) / (many * ratio + 1) * channel.mean
        near = (many + 1) / (many / ratio + 1) * channel.mean
        assert channel.gain_min <= 0.1 * far
        assert channel.gain_max >= 5 * near
    assert channel.gain_min == pytest.approx(0.1 * far, rel=1e-4)
    assert channel.gain_max == pytest.approx(5 * near, rel=1e-4)

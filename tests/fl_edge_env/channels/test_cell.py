"""Users in a cell: where they are, their mean gains and how their fading changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fl_edge_env import CellChannel, Scenario
from fl_edge_env.streams import episode_gains

WIDE = {"fading_min": 1e-12, "fading_max": 1e12}  # nothing is cut
COUNT = 40_000


def test_cell__places_are_uniform_over_the_area_of_the_ring():
    distance = CellChannel(radius_m=300, least_distance_m=120, place_seed=3).distances(20_000)
    assert distance.min() >= 120
    assert distance.max() <= 300
    share = (distance**2 - 120**2) / (300**2 - 120**2)  # of the ring's area that is nearer
    assert stats.kstest(share, "uniform").pvalue > 1e-3


def test_cell__means_follow_the_path_loss_and_the_shadowing_that_is_cut():
    channel = CellChannel(mean=0.2, shadowing_db=6.0, place_seed=1)
    mean = channel.device_mean(20_000)
    assert mean.mean() == pytest.approx(0.2)
    path = 36.7 * np.log10(channel.distances(20_000) / 100)
    ring, loss = 36.7 * np.log10(2.5), -10 * np.log10(mean)
    loss -= loss.max() - ring  # of 20,000 users some lose as much as can be lost
    shadowing = path - loss
    assert np.all((shadowing > path - ring - 0.01) & (shadowing < path + 0.01))
    quantile = stats.truncnorm.cdf(shadowing, (path - ring) / 6, path / 6, scale=6.0)
    assert stats.kstest(quantile, "uniform").statistic < 0.015
    near, far = CellChannel(shadowing_db=0.0).device_mean(2) / 0.1
    a, b = CellChannel(shadowing_db=0.0).distances(2)
    assert near / far == pytest.approx((a / b) ** -3.67)
    assert near + far == pytest.approx(2)


@pytest.mark.parametrize("options", [{}, {"fading": "rician", "rician_factor": 2.5}])
def test_cell__gains_average_to_the_mean_of_each_device(options):
    channel = CellChannel(**options, **WIDE)
    for gains in (
        channel.sample(np.random.default_rng(0), COUNT, 6),
        channel.draw(np.random.default_rng(1), COUNT, 6),
    ):
        error = gains.std(axis=0) / math.sqrt(COUNT)
        assert np.all(np.abs(gains.mean(axis=0) - channel.device_mean(6)) < 4.5 * error)


def test_cell__fading_has_its_distribution():
    def power(**options):
        channel = CellChannel(**options, **WIDE)
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


@given(
    st.fixed_dictionaries(
        {
            "mean": st.floats(1e-3, 10),
            "radius_m": st.floats(50, 2000),
            "least_distance_m": st.floats(1, 50),
            "shadowing_db": st.floats(0, 12),
            "fading": st.sampled_from(["rayleigh", "rician"]),
            "persistence": st.floats(0, 0.99),
            "place_seed": st.integers(0, 2**32),
        }
    ),
    st.integers(1, 30),
    st.integers(0, 2**32),
)
def test_cell__gains_keep_within_their_bounds(parameters, num_devices, seed):
    channel, rng = CellChannel(**parameters), np.random.default_rng(seed)
    mean = channel.device_mean(num_devices)
    assert mean.mean() == pytest.approx(channel.mean)
    for gains in (channel.draw(rng, 20, num_devices), channel.sample(rng, 20, num_devices)):
        assert gains.shape == (20, num_devices)
        assert np.all((gains >= channel.gain_min) & (gains <= channel.gain_max))
        assert np.all((gains >= 0.0999 * mean) & (gains <= 5.001 * mean))


def test_cell__bounds_hold_for_one_far_user_among_near_ones_and_the_other_way_round():
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


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mean": 0.0}, "mean must be positive and finite, got 0.0"),
        ({"radius_m": "far"}, "radius_m must be positive and finite, got 'far'"),
        ({"least_distance_m": 300}, r"least_distance_m must not exceed radius_m, got 300.0 and 25"),
        ({"shadowing_db": -1}, "shadowing_db must be at least zero and finite, got -1"),
        ({"least_distance_m": 1e-90}, "gains must have positive and finite bounds"),
        ({"fading": "nakagami"}, "fading must be one of rayleigh, rician, got 'nakagami'"),
        ({"fading": None}, "fading must be one of rayleigh, rician, got None"),
        ({"rician_factor": 2.0}, "rician_factor belongs to fading='rician', got 2.0"),
        ({"persistence": 1}, r"persistence must lie in \[0, 1\), got 1"),
        ({"place_seed": -1}, "place_seed must be an integer of at least 0, got -1"),
        ({"fading_min": 5}, "fading_min must be below fading_max, got 5.0 and 5.0"),
    ],
)
def test_cell__names_what_is_wrong(parameters, message):
    with pytest.raises(ValueError, match=message):
        CellChannel(**parameters)

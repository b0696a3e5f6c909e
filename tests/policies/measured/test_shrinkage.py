"""Estimates that lean on each other, against dense matrices and simulated laws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import polygamma

from policies.measured import shrinkage
from policies.measured.shrinkage import centre_and_spread, estimate, inverse_trigamma, persistence


def test_own__is_generalised_least_squares_with_the_whole_correlation_matrix(rng):
    time = np.array([0, 1, 4, 5, 9])
    device = np.array([0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2])
    times = np.concatenate([time, [3], time])
    value, apart = rng.standard_normal(11), np.maximum(np.diff(times, prepend=0), 1)
    own = shrinkage._own(value, device, 3, 0.8**apart)
    for n in range(3):
        x, t = value[device == n], times[device == n]
        inverse = np.linalg.inv(0.8 ** np.abs(t[:, None] - t))
        assert own.information[n] == pytest.approx(inverse.sum())
        assert own.mean[n] == pytest.approx((inverse @ x).sum() / inverse.sum())
        rest = x - own.mean[n]
        assert own.squares[n] == pytest.approx(rest @ inverse @ rest, abs=1e-12)


def test_inverse_trigamma__is_the_inverse():
    value = np.geomspace(1e-8, 1e3, 50)
    assert polygamma(1, inverse_trigamma(value)) == pytest.approx(value, rel=1e-9)


def test_centre_and_spread__finds_both_and_no_spread_where_there_is_none(rng):
    variances = rng.uniform(0.1, 1.0, 20_000)
    noise = np.sqrt(variances) * rng.standard_normal(20_000)
    centre, spread = centre_and_spread(3.0 + 0.5 * rng.standard_normal(20_000) + noise, variances)
    assert (centre, spread) == pytest.approx((3.0, 0.25), abs=0.02)
    assert centre_and_spread(np.array([1.0, 1.1]), np.array([1.0, 1.0])) == (1.05, 0.0)


def test_estimate__is_nearer_the_truth_than_plain_means_and_variances(rng):
    plain, leaning = [], []
    for _ in range(40):
        rows = rng.integers(2, 6, 30)
        device = np.repeat(np.arange(30), rows)
        mean, deviation = 0.5 * rng.standard_normal(30), np.exp(0.3 * rng.standard_normal(30))
        value = mean[device] + deviation[device] * rng.standard_normal(len(device))
        law, groups = estimate(value, device, 30), np.split(value, np.cumsum(rows)[:-1])
        own = np.array([[group.mean(), group.var(ddof=1)] for group in groups]).T
        plain.append([np.mean((own[0] - mean) ** 2), np.mean((own[1] - deviation**2) ** 2)])
        leaning.append(
            [
                np.mean((law.mean[:-1] - mean) ** 2),
                np.mean((law.variance[:-1] - deviation**2) ** 2),
            ]
        )
        assert np.all(law.own[:-1] < 1)
        assert law.own[-1] == 0
    assert np.all(np.mean(leaning, axis=0) < 0.6 * np.mean(plain, axis=0))


@pytest.mark.parametrize("rows", [1, 4])
def test_estimate__is_found_where_a_device_at_most_has_several_rows(rows):
    # Then what is in excess of a spread may be rounding alone.
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 100))
        device = np.append(np.zeros(rows - 1, dtype=np.int64), np.arange(count))
        value = rng.choice([0.01, 0.8, 5.0]) * rng.standard_normal(len(device)).round(3)
        law = estimate(value, device, count)
        assert all(np.isfinite(values).all() for values in law)
        if rows == 1:
            assert law.mean[:-1] == pytest.approx(value, abs=1e-9)


def test_estimate__of_devices_without_noise_keeps_each_own_mean():
    law = estimate(np.array([1.0, 1.0, 2.0, 2.0, 4.0]), np.array([0, 0, 1, 1, 2]), 3)
    assert law.mean[:-1] == pytest.approx([1.0, 2.0, 4.0])
    assert law.variance[:-1] == pytest.approx(0.0)


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.9])
def test_persistence__is_recovered_without_bias_by_few_rows_a_device(rho):
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        device, apart = np.repeat(np.arange(100), 8), np.ones(800)
        drawn = 0.5 * np.log(rng.gamma(4.0, size=(8, 100)))
        for before, now in pairwise(drawn):
            kept = rng.random(100) < rho
            now[kept] = before[kept]
        value = (rng.standard_normal(100) + drawn).T.ravel()
        found.append(persistence(value, device, 100, apart))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - rho) < max(3 * error, 0.02)
    assert np.std(found) < 0.08


def test_persistence__is_zero_where_none_is_sure():
    found = []
    for seed in range(100):
        value = np.random.default_rng(seed).standard_normal(200)
        found.append(persistence(value, np.repeat(np.arange(10), 20), 10, np.ones(200)))
    assert np.count_nonzero(found) <= 8  # 2.5 % are above by chance

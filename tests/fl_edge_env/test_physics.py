"""Rates, times and energies against hand-computed cases and enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics

ONE = Scenario(
    num_devices=1,
    cohort_size=2,
    local_epochs=2,
    bandwidth_hz=1e6,
    noise_power_w=0.01,
    model_bits=1e6,
    num_samples=100,
    cycles_per_sample=1e6,
    capacitance=2e-28,
)


def test_times_and_energies__by_hand():
    # h p = N0: one bit per hertz and second, and half of the megahertz for each of two draws.
    gain, f, p = np.array([0.1]), np.array([1e9]), np.array([0.1])
    assert physics.upload_rate(gain, p, ONE) == pytest.approx([5e5])
    assert physics.upload_time(gain, p, ONE) == pytest.approx([2.0])
    assert physics.compute_time(f, ONE) == pytest.approx([2 * 1e6 * 100 / 1e9])
    assert physics.compute_energy(f, ONE) == pytest.approx([2 * 2e-28 * 1e6 * 100 * 1e18 / 2])
    time, energy = physics.time_and_energy(gain, f, p, ONE)
    assert time == pytest.approx([2.2])
    assert energy == pytest.approx([0.02 + 0.1 * 2.0])
    slow = ONE.replace(download_rate_bps=4e6)
    assert physics.time_and_energy(gain, f, p, slow)[0] == pytest.approx([2.45])
    late = slow.replace(overhead_s=3.0)
    assert physics.time_and_energy(gain, f, p, late)[0] == pytest.approx([5.45])
    assert physics.time_and_energy(gain, f, p, late)[1] == energy


def test_upload_rate__keeps_its_precision_in_deep_noise():
    # log2(1 + x) = x / ln 2 up to a relative x / 2
    rate = physics.upload_rate(np.array([1e-14]), np.array([0.01]), ONE)
    assert rate[0] == pytest.approx(5e5 * 1e-14 / math.log(2), rel=1e-13)


@given(st.floats(1e-300, 1.0), st.integers(1, 50))
def test_participation_probability__exact_to_the_last_digits(q, cohort_size):
    exact = 1 - (1 - Fraction(q)) ** cohort_size
    value = physics.participation_probability(np.array([q]), cohort_size)[0]
    assert abs(Fraction(float(value)) - exact) <= exact * Fraction(1, 10**14)


@pytest.mark.parametrize("cohort_size", [1, 2, 4])
def test_participation_probability__equals_the_share_of_all_draws(cohort_size):
    q = np.array([0.1, 0.25, 0.65])
    share = np.zeros(3)
    for draw in itertools.product(range(3), repeat=cohort_size):
        share[list(set(draw))] += np.prod(q[list(draw)])
    np.testing.assert_allclose(physics.participation_probability(q, cohort_size), share, rtol=1e-13)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_expected_maximum__equals_the_mean_over_all_draws(num_devices, cohort_size, seed, ties):
    rng = np.random.default_rng(seed)
    value = rng.integers(0, 3, num_devices).astype(float) if ties else rng.normal(size=num_devices)
    q = rng.dirichlet(np.ones(num_devices))
    draws = itertools.product(range(num_devices), repeat=cohort_size)
    mean = sum(np.prod(q[list(d)]) * value[list(d)].max() for d in draws)
    assert physics.expected_maximum(value, q, cohort_size) == pytest.approx(mean, abs=1e-12)


def test_expected_maximum__broadcasts_values_against_probabilities():
    value, q = np.array([1.0, 2.0, 5.0]), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(physics.expected_maximum(value, q, 2), [1.0, 5.0])
    np.testing.assert_allclose(physics.expected_maximum(q, np.array([0.5, 0.0, 0.5]), 1), 0.5)

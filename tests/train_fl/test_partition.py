"""Splits cover the data, and their mix follows the concentration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train_fl.partition import dirichlet_equal, label_histogram

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


@given(st.integers(1, 60), st.sampled_from([0.01, 0.5, 100.0]), st.integers(0, 2**32 - 1))
def test_dirichlet_equal__every_sample_once_in_parts_of_equal_size(num_devices, alpha, seed):
    labels = LABELS[:203]
    parts = dirichlet_equal(labels, num_devices, alpha, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(203))
    sizes = [len(part) for part in parts]
    assert len(sizes) == num_devices
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_equal__mix_has_the_moments_of_the_dirichlet_distribution():
    # Plenty of data for few devices: the classes do not run out, and a share's variance is
    # that of the Dirichlet distribution plus that of drawing the samples.
    labels = np.tile(np.arange(4), 2_000)
    alpha, size, shares = 2.0, 50, []
    for seed in range(100):
        parts = dirichlet_equal(labels, 160, alpha, np.random.default_rng(seed))[:4]
        shares.append(label_histogram(labels, parts, 4))
    shares = np.concatenate(shares)
    mean, dirichlet = 1 / 4, (1 / 4) * (3 / 4) / (4 * alpha + 1)
    variance = dirichlet + (mean * (1 - mean) - dirichlet) / size
    assert shares.mean(axis=0) == pytest.approx(np.full(4, mean), abs=0.04)
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_dirichlet_equal__small_concentration_gives_devices_few_classes():
    def largest_share(alpha: float) -> float:
        parts = dirichlet_equal(LABELS, 40, alpha, np.random.default_rng(1))
        return float(label_histogram(LABELS, parts, 10).max(axis=1).mean())

    assert largest_share(0.05) > largest_share(0.5) > largest_share(100.0)
    assert largest_share(0.05) > 0.7
    assert largest_share(100.0) < 0.25


def test_label_histogram__counts_by_hand():
    histogram = label_histogram(
        np.array([0, 1, 1, 2]), [np.array([0, 1]), np.array([1, 2, 3, 3])], 4
    )
    np.testing.assert_array_equal(histogram, [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0]])


@pytest.mark.parametrize(
    ("num_devices", "alpha", "message"),
    [
        (0, 0.5, "num_devices must be from 1 to the 2000 samples, got 0"),
        (2001, 0.5, "got 2001"),
        (2.5, 0.5, "got 2.5"),
        (5, "even", "got 'even'"),
        (5, 0.0, "concentration must be positive and finite, got 0.0"),
        (5, float("nan"), "got nan"),
    ],
)
def test_dirichlet_equal__wrong_input_is_named(num_devices, alpha, message):
    with pytest.raises(ValueError, match=message):
        dirichlet_equal(LABELS, num_devices, alpha, np.random.default_rng(0))

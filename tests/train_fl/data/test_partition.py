"""Splits cover the data, and their mix follows the concentration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.support import ANY_SEED
from train_fl.data.partition import (
    by_rank,
    by_writer,
    dirichlet_equal,
    iid,
    label_histogram,
)

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


GAINS = np.random.default_rng(5).permutation(np.geomspace(1e-3, 1.0, 60))


@pytest.mark.parametrize("split", ["dirichlet", "iid", "place"])
@given(st.integers(2, 60), st.sampled_from([0.01, 0.5, 100.0]), ANY_SEED)
def test_equal_parts__every_sample_once_and_the_same_split_again(split, num_devices, alpha, seed):
    labels = LABELS[:203]
    draw = {
        "iid": lambda rng: iid(203, num_devices, rng),
        "place": lambda rng: by_rank(labels, GAINS[:num_devices], alpha, rng),
        "dirichlet": lambda rng: dirichlet_equal(labels, num_devices, alpha, rng),
    }[split]
    parts, again, other = (draw(np.random.default_rng(s)) for s in (seed, seed, seed + 1))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(203))
    sizes = [len(part) for part in parts]
    assert len(sizes) == num_devices
    assert max(sizes) - min(sizes) <= 1
    assert all(map(np.array_equal, parts, again))
    assert not all(map(np.array_equal, parts, other))


def test_dirichlet_equal__has_the_moments_of_a_dirichlet():
    # Plenty of data for few devices: the classes do not run out, and a share's variance is
    # that of the Dirichlet distribution plus that of drawing the samples.
    labels = np.tile(np.arange(4), 500)
    alpha = 2.0
    size = 50
    shares = []
    for seed in range(25):
        parts = dirichlet_equal(labels, 40, alpha, np.random.default_rng(seed))[:8]
        shares.append(label_histogram(labels, parts, 4))
    shares = np.concatenate(shares)
    dirichlet = (1 / 4) * (3 / 4) / (4 * alpha + 1)
    variance = dirichlet + (3 / 16 - dirichlet) / size
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 4, atol=0.04)
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_iid__every_pair_of_samples_is_equally_often_together():
    together = np.zeros((8, 8))
    for seed in range(1_000):
        for part in iid(8, 4, np.random.default_rng(seed)):
            together[tuple(np.sort(part))] += 1
    assert chisquare(together[np.triu_indices(8, 1)]).pvalue > 1e-3


@given(st.permutations(list(range(6)) * 3 + [2, 2, 5]))
def test_by_writer__each_device_has_all_samples_of_its_writer(writers):
    parts = by_writer(np.array(writers), 6)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(21))
    for writer, part in enumerate(parts):
        assert {writers[sample] for sample in part} == {writer}


def test_by_rank__mean_mix_is_the_one_of_the_place():
    # Unequal classes; plenty of samples for each device, whose mix is almost the mean one.
    labels = np.repeat([0, 1, 2], [600, 300, 300])
    gains = [0.1, 0.3, 0.2, 0.3]  # the second and the fourth share the first two ranks
    shares = np.zeros((4, 3))
    for seed in range(20):
        parts = by_rank(labels, gains, 1e4, np.random.default_rng(seed))
        shares += label_histogram(labels, parts, 3) / 20
    u = np.array([7 / 8, 1 / 4, 5 / 8, 1 / 4])
    v = np.array([1 / 4, 5 / 8, 7 / 8])
    expected = np.array([0.5, 0.25, 0.25]) * (1 + np.outer(1 - 2 * u, 1 - 2 * v))
    np.testing.assert_allclose(shares, expected, atol=0.02)


class Asked(np.random.Generator):
    """Keeps the parameters of the Dirichlet distributions that it is asked for."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))
        self.parameters = []

    def dirichlet(self, alpha, size=None):
        self.parameters.append(alpha)
        return super().dirichlet(alpha, size)


@given(
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=40),
    merit=st.lists(st.integers(1, 6), min_size=2, max_size=12).filter(lambda m: len(set(m)) > 1),
)
def test_by_rank__all_devices_together_have_the_mix_of_the_data(labels, merit):
    rng = Asked()
    by_rank(np.array(labels), merit, 7.0, rng)
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    asked = np.array(rng.parameters) / (7.0 * len(share))
    np.testing.assert_allclose(asked.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(asked.mean(axis=0), share, atol=1e-9)


def test_by_rank__devices_draw_in_random_order():
    rng = Asked()  # in the order of their rank the last ones would get what is left
    by_rank(LABELS, np.arange(1.0, 41.0), 7.0, rng)
    steps = np.diff(np.array(rng.parameters)[:, 0])
    assert steps.min() < 0 < steps.max()

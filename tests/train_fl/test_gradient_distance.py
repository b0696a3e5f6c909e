"""Distances of stored gradients against exact ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from train_fl import gradient_distance
from train_fl.gradient_distance import GradientDistances

COLUMNS = gradient_distance._COLUMNS
EVERY = np.arange(7)


def gradients(num_parameters: int, *, seed: int = 0) -> torch.Tensor:
    """Seven gradients that differ in length and share a direction."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(7, num_parameters)) + rng.normal(size=num_parameters)
    return torch.from_numpy(rows * np.geomspace(0.01, 10.0, 7)[:, None]).float()


def exact(vectors: torch.Tensor) -> np.ndarray:
    rows = vectors.double().numpy()
    return np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])


def distances(num_parameters: int) -> GradientDistances:
    return GradientDistances(7, num_parameters, torch.device("cpu"))


@pytest.mark.parametrize("num_parameters", [COLUMNS, 2 * COLUMNS + 17], ids=str)
def test_update__changes_distances_of_named_devices_only(num_parameters):
    stored = distances(num_parameters)
    mixed = torch.zeros(7, num_parameters)
    # At first the others have not reported, and are at zero.
    for seed, named in enumerate(([4, 1], EVERY, [5, 0, 2])):
        new = gradients(num_parameters, seed=seed)[named]
        result = stored.update(np.array(named), new)
        assert result.dtype == np.float64
        mixed[named] = new
        assert torch.equal(stored.stored, mixed.bfloat16())
        np.testing.assert_allclose(result, exact(mixed), rtol=1e-3)


@pytest.mark.parametrize("num_parameters", [50, 300])
def test_update__equal_gradients_are_at_no_distance(num_parameters):
    stored = distances(num_parameters)
    for seed in range(15):
        gradient = gradients(num_parameters, seed=seed)[3]
        result = stored.update(EVERY, gradient.expand(7, -1))
        assert np.all(result >= 0.0)
        assert np.all(result < 1e-2 * float(gradient.norm()))

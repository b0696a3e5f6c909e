"""The networks have the paper's sizes, group norm is right, and one's own are checked."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from fl_edge_env import Scenario
from tests.support import global_states, torch_seeded
from train_fl.models import (
    HalvingPool,
    SharedGroupNorm,
    check_maker,
    digits_cnn,
    femnist_cnn,
    resnet18_group_norm,
    small_cnn,
    small_colour_cnn,
)


@pytest.mark.parametrize(
    ("make_model", "shape", "num_classes", "size", "scenario"),
    [
        (digits_cnn, (1, 8, 8), 10, 6_090, Scenario.digits),
        (femnist_cnn, (1, 28, 28), 62, 6_603_710, Scenario.femnist),
        (lambda: femnist_cnn(10), (1, 28, 28), 10, 6_497_162, Scenario.fashion_mnist),
        (resnet18_group_norm, (3, 32, 32), 10, 11_172_342, Scenario.cifar10),
        (small_cnn, (1, 28, 28), 10, 206_922, None),
        (small_colour_cnn, (3, 32, 32), 10, 188_810, None),
    ],
)
def test_network__has_the_size_of_the_paper(make_model, shape, num_classes, size, scenario):
    with torch_seeded():
        model = make_model()
    assert sum(p.numel() for p in model.parameters()) == size
    assert scenario is None or scenario().model_bits == 32 * size
    assert list(model.buffers()) == []
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = model(images)
        alone = torch.cat([model(image[None]) for image in images])
    assert together.shape == (2, num_classes)
    assert not torch.allclose(together[0], together[1])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("side", [8, 9])
def test_halving_pool__gives_the_same_without_gradients(side):
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, side, side)))
    with torch.no_grad():
        pooled = HalvingPool(2)(images)
    assert torch.equal(pooled, HalvingPool(2)(images))


@pytest.mark.parametrize("num_groups", [1, 3])
def test_shared_group_norm__equals_numpy(num_groups):
    rng = np.random.default_rng(0)
    images = rng.normal(3.0, 5.0, size=(4, num_groups, 32, 5, 6))
    weight, bias = rng.normal(size=(2, num_groups))
    layer = SharedGroupNorm(32 * num_groups).double()
    layer.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
    with torch.no_grad():
        result = layer(torch.from_numpy(images).flatten(1, 2)).numpy()
    for group in range(num_groups):
        for index, image in enumerate(images[:, group]):
            expected = weight[group] * (image - image.mean()) / np.sqrt(image.var() + 1e-5)
            found = result[index, 32 * group : 32 * (group + 1)]
            np.testing.assert_allclose(found, expected + bias[group], rtol=1e-9, atol=1e-9)


IMAGES = torch.arange(8.0).reshape(2, 1, 2, 2)


def test_check_maker__leaves_global_generators_alone():
    before = global_states()

    def make() -> nn.Module:
        random.random()
        torch.rand(1)
        return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 5))

    check_maker(make, IMAGES, 3)  # one that has too many outputs never names the last
    assert global_states() == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nn.Flatten(), "class or function that makes a network, .* got an object of type Flatten"),
        (nn.Linear, r"model\(\) or its pass .* fails: TypeError: .*missing 2 required"),
        (lambda: None, "must return a torch.nn.Module, got NoneType"),
        (lambda: nn.Linear(3, 3), r"pass over inputs of shape \(2, 1, 2, 2\) fails: .*mat1"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), r"from 0 to the .*, got \(2, 2\)"),
        (lambda: nn.Conv2d(1, 3, 1), r"shape \(samples, 3\), .* got \(2, 3, 2, 2\)"),
    ],
)
def test_check_maker__names_what_is_wrong(given, message):
    with pytest.raises(ValueError, match=message):
        check_maker(given, IMAGES, 3)

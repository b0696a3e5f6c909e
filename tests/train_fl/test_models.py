"""The networks have the paper's sizes, group norm is right, and one's own are checked."""

from __future__ import annotations

import random
from collections.abc import Callable

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
)


@pytest.mark.parametrize(
    ("make_model", "shape", "num_classes", "size", "scenario"),
    [
        (digits_cnn, (1, 8, 8), 10, 6_090, Scenario.digits),
        (femnist_cnn, (1, 28, 28), 62, 6_603_710, Scenario.femnist),
        (lambda: femnist_cnn(10), (1, 28, 28), 10, 6_497_162, Scenario.fashion_mnist),
        (resnet18_group_norm, (3, 32, 32), 10, 11_172_342, Scenario.cifar10),
        (small_cnn, (1, 28, 28), 10, 206_922, None),
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


@pytest.mark.parametrize("num_channels", [32, 96])
def test_shared_group_norm__equals_numpy(num_channels):
    rng = np.random.default_rng(0)
    images = rng.normal(3.0, 5.0, size=(4, num_channels, 5, 6))
    num_groups = num_channels // 32
    weight = rng.normal(size=num_groups)
    bias = rng.normal(size=num_groups)
    layer = SharedGroupNorm(num_channels).double()
    assert layer.weight.shape == layer.bias.shape == (num_groups,)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
        result = layer(torch.from_numpy(images)).numpy()
    for group in range(num_groups):
        channels = slice(32 * group, 32 * (group + 1))
        for image, normalised in zip(images[:, channels], result[:, channels], strict=True):
            expected = (image - image.mean()) / np.sqrt(image.var() + 1e-5)
            expected = weight[group] * expected + bias[group]
            np.testing.assert_allclose(normalised, expected, rtol=1e-9, atol=1e-9)


IMAGES = torch.arange(8.0).reshape(2, 1, 2, 2)
LABELS = torch.tensor([0, 2])


class Changed(nn.Module):
    """A good network whose scores are changed on their way out; no pass uses what is in `more`."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor], **more: nn.Module) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.change = change
        self.more = nn.ModuleDict(more)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.change(self.last(images.flatten(1)))


def good() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[1].requires_grad_(False)
    return model


def drawn_elsewhere() -> nn.Module:
    model = good()
    model[1].weight.data.fill_(random.Random().random())
    return model


NETWORK = good()


@pytest.mark.parametrize("outputs", [3, 5])  # one that has too many never names the last
def test_check_maker__leaves_global_generators_alone(outputs):
    before = global_states()
    drawn = []

    def make() -> nn.Module:
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002
        return nn.Sequential(nn.Flatten(), nn.GroupNorm(1, 4), nn.Linear(4, outputs))

    check_maker(make, IMAGES, LABELS, 3)
    assert drawn[0] == drawn[1]
    assert global_states() == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (NETWORK, "class or function that makes a network, .* got an object of type Sequential"),
        (nn.Linear, r"model\(\) fails: TypeError: .*missing 2 required"),
        (lambda: None, "must return a torch.nn.Module, got NoneType"),
        (lambda: NETWORK, "a new network each time, .* 1.weight is the same tensor"),
        (drawn_elsewhere, "only from global generators: .* 1.weight differs"),
        (nn.Sequential(nn.BatchNorm2d(1)), "no buffers, got 0.running_mean: use group norm"),
        (nn.Sequential(nn.Flatten(), nn.Dropout2d()), "must have no dropout, got 1: Dropout2d"),
        (nn.Flatten(), "must have parameters to train"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "1.weight is lazy"),
        (nn.Linear(4, 3).double(), "float32 .* weight is torch.float64"),
        (frozen(), "must train all its parameters, .* 1.weight is frozen"),
        (Changed(torch.relu, spare=good()), "use all its parameters, but more.spare.1.weight"),
        (Changed(lambda scores: scores + torch.randn(3)), "two passes differed: remove dropout"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), r"for each class from 0 .*, got \(2, 2\)"),
        (nn.Linear(3, 3), r"be trained on inputs of shape \(1, 2, 2\), channels first: mat1"),
        (Changed(lambda scores: scores / 0 - scores / 0), "last.weight must be dense and finite"),
        (nn.Conv2d(1, 3, 1), r"shape \(samples, 3\), .* got \(2, 3, 2, 2\) for 2 samples"),
    ],
)
def test_check_maker__names_what_is_wrong(given, message):
    """A network stands for a function that makes it, unless it is the one that is given itself."""
    made = isinstance(given, nn.Module) and given is not NETWORK
    with pytest.raises(ValueError, match=message):
        check_maker((lambda: given) if made else given, IMAGES, LABELS, 3)

"""The networks have the paper's sizes, and group norm is what it should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from train_fl.models import DigitsCNN, FemnistCNN, SharedGroupNorm, SmallCNN, resnet18_group_norm

NETWORKS = [
    (DigitsCNN, (1, 8, 8), 10, 6_090),
    (FemnistCNN, (1, 28, 28), 62, 6_603_710),
    (lambda: FemnistCNN(num_classes=10), (1, 28, 28), 10, 6_497_162),
    (resnet18_group_norm, (3, 32, 32), 10, 11_172_342),
    (SmallCNN, (1, 28, 28), 10, 206_922),
]


def make(make_model) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_model()


@pytest.mark.parametrize(("make_model", "shape", "num_classes", "size"), NETWORKS)
def test_network__has_the_size_of_the_paper_no_buffers_and_a_score_for_each_class(
    make_model, shape, num_classes, size
):
    model = make(make_model)
    assert sum(p.numel() for p in model.parameters()) == size
    assert all(p.requires_grad for p in model.parameters())
    assert list(model.buffers()) == []
    scores = model(torch.zeros(3, *shape))
    assert scores.shape == (3, num_classes)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize(("make_model", "shape"), [network[:2] for network in NETWORKS])
def test_network__an_image_is_scored_alike_in_any_batch(make_model, shape):
    model = make(make_model)
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = model(images)
        alone = torch.cat([model(image[None]) for image in images])
    assert not torch.allclose(together[0], together[1])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)


def test_resnet18__has_other_numbers_of_classes():
    assert make(lambda: resnet18_group_norm(100)).fc.out_features == 100


def test_resnet18__normalises_by_groups_of_32_channels_alone():
    kinds = [type(module).__name__ for module in make(resnet18_group_norm).modules()]
    assert kinds.count("SharedGroupNorm") == 20
    assert not any("BatchNorm" in kind for kind in kinds)


@pytest.mark.parametrize("num_channels", [32, 96])
def test_shared_group_norm__equals_numpy(num_channels):
    rng = np.random.default_rng(0)
    images = rng.normal(3.0, 5.0, size=(4, num_channels, 5, 6))
    num_groups = num_channels // 32
    weight, bias = rng.normal(size=num_groups), rng.normal(size=num_groups)
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


def test_shared_group_norm__starts_without_scale_and_shift():
    layer = SharedGroupNorm(64)
    images = torch.randn(2, 64, 3, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(layer(images), nn.GroupNorm(2, 64, affine=False)(images))

"""What is refused of a network, and that the rest is let through."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout

from train_fl.check_network import check_network

IMAGES, LABELS = torch.arange(8.0).reshape(2, 1, 2, 2), torch.tensor([0, 2])


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return dropout(self.last(images.flatten(1)), 0.5)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(images.flatten(1))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[1].requires_grad_(False)
    return model


def check(model: nn.Module) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        check_network(model, IMAGES, LABELS, 3)


@pytest.mark.parametrize("outputs", [3, 5])  # one that has too many never names the last
def test_check_network__takes_what_can_be_trained(outputs):
    check(nn.Sequential(nn.Flatten(), nn.GroupNorm(1, 4), nn.Linear(4, outputs)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.BatchNorm2d(1)), "no buffers, got 0.running_mean: use group norm"),
        (nn.Sequential(nn.Flatten(), nn.Dropout()), "must have no dropout, got 1: Dropout"),
        (nn.Sequential(nn.Flatten(), nn.Dropout2d()), "must have no dropout, got 1: Dropout2d"),
        (nn.Flatten(), "must have parameters to train"),
        (frozen(), "must train all its parameters, 1.weight is frozen"),
        (Unused(), "must use all its parameters, spare.weight has no part"),
        (Noisy(), "two passes differed: leave out dropout"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "each of 3 classes, .* got 2 outputs"),
        (nn.Sequential(nn.Linear(3, 3)), r"does not take images of shape \(1, 2, 2\)"),
        (nn.Conv2d(1, 3, 1), r"shape \(2, 3\) for 2 images, got \(2, 3, 2, 2\)"),
    ],
)
def test_check_network__names_what_is_wrong(model, message):
    with pytest.raises(ValueError, match=message):
        check(model)

"""The networks that devices train."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm
from torchvision.models import resnet18


# The networks pool before ReLU: the result is the same, with a quarter of the numbers to compare.
class DigitsCNN(nn.Sequential):
    """Two convolutions and a linear layer for 8 by 8 grey images: 6,090 parameters.

    Parameters
    ----------
    num_classes : int
        Number of classes; the count is for ten.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, num_classes),
        )


class FemnistCNN(nn.Sequential):
    """The paper's CNN for 28 by 28 grey images: 6,603,710 parameters with 62 classes.

    Parameters
    ----------
    num_classes : int
        Number of classes: 62 for FEMNIST, 10 for Fashion-MNIST (6,497,162 parameters).
    """

    def __init__(self, num_classes: int = 62) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 2048),
            nn.ReLU(),
            nn.Linear(2048, num_classes),
        )


class SmallCNN(nn.Sequential):
    """A CNN for 28 by 28 grey images that trains more than ten times as fast: 206,922 parameters.

    Two convolutions of stride two and two linear layers.

    Parameters
    ----------
    num_classes : int
        Number of classes; the count is for ten.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1568, 128),
            nn.ReLU(),
            nn.Linear(128, num_classes),
        )


class SharedGroupNorm(nn.Module):
    """Group normalisation with one scale and one shift for each group of channels.

    torch's own has them for each channel; the paper's parameter count comes out with groups of
    32 channels that share them.

    Parameters
    ----------
    num_channels : int
        Number of channels, a multiple of 32.

    Raises
    ------
    ValueError
        If it is not.
    """

    group_size = 32

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        if num_channels % self.group_size:
            raise ValueError(
                f"num_channels must be a multiple of {self.group_size}, got {num_channels}"
            )
        num_groups = num_channels // self.group_size
        self.weight = nn.Parameter(torch.ones(num_groups))
        self.bias = nn.Parameter(torch.zeros(num_groups))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise, shape (batch, channels, height, width)."""
        weight = self.weight.repeat_interleave(self.group_size)
        bias = self.bias.repeat_interleave(self.group_size)
        return group_norm(images, len(self.weight), weight, bias)


def resnet18_group_norm(num_classes: int = 10) -> nn.Module:
    """Torchvision's ResNet-18 with group instead of batch norm: 11,172,342 parameters.

    Group norm keeps no statistics between batches, which devices with different data could not
    share.

    Parameters
    ----------
    num_classes : int
        Number of classes; the count is for ten.
    """
    network: nn.Module = resnet18(num_classes=num_classes, norm_layer=SharedGroupNorm)
    return network


# The networks by name; each is made with the number of classes.
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "digits": DigitsCNN,
    "small": SmallCNN,
    "cnn": FemnistCNN,
    "resnet18": resnet18_group_norm,
}

"""The networks that devices train, and the check of user-defined ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm

from policies.global_random import seeded
from policies.user_code import user_errors
from train_fl.modes import default_modes


class HalvingPool(nn.MaxPool2d):
    """Max pooling of 2 by 2 pixels, which takes a seventh of the time without gradients."""

    def forward(self, images: Tensor) -> Tensor:
        """Pool images of shape (..., height, width); an odd last row or column is ignored."""
        if torch.is_grad_enabled():
            return super().forward(images)
        rows = torch.maximum(images[..., :-1:2, :], images[..., 1::2, :])
        return torch.maximum(rows[..., :-1:2], rows[..., 1::2])


def _pooled(inputs: int, outputs: int, size: int) -> tuple[nn.Module, ...]:
    """A convolution and max pooling, which halves the sides; ReLU is last, on fewer values."""
    return nn.Conv2d(inputs, outputs, size, padding=size // 2), HalvingPool(2), nn.ReLU()


def digits_cnn(num_classes: int = 10) -> nn.Module:
    """Two convolutions and a linear layer for 8 by 8 grey images: 6,090 parameters."""
    return nn.Sequential(
        *_pooled(1, 16, 3),
        *_pooled(16, 32, 3),
        nn.Flatten(),
        nn.Linear(128, num_classes),
    )


def femnist_cnn(num_classes: int = 62) -> nn.Module:
    """The paper's CNN for 28 by 28 grey images.

    The network has 6,603,710 parameters for the 62 classes of FEMNIST, and 6,497,162 for ten
    classes.
    """
    return nn.Sequential(
        *_pooled(1, 32, 5),
        *_pooled(32, 64, 5),
        nn.Flatten(),
        nn.Linear(3136, 2048),
        nn.ReLU(),
        nn.Linear(2048, num_classes),
    )


def small_cnn(
    num_classes: int = 10, channels: Sequence[int] = (1, 16, 32), features: int = 1568
) -> nn.Module:
    """A CNN for 28 by 28 grey images that trains over ten times faster than `femnist_cnn`.

    Convolutions of stride two between these channels, and two linear layers, the first from this
    many features: 206,922 parameters for ten classes.
    """
    convolutions = (nn.Conv2d(*pair, 3, stride=2, padding=1) for pair in pairwise(channels))
    return nn.Sequential(
        *(layer for convolution in convolutions for layer in (convolution, nn.ReLU())),
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    )


# For 32 by 32 colour images, with 188,810 parameters for ten classes.
small_colour_cnn = partial(small_cnn, channels=(3, 32, 64, 64), features=1024)


class SharedGroupNorm(nn.Module):
    """Group normalisation with one scale and one shift for each group of channels.

    torch's `GroupNorm` has them for each channel. Sharing them in groups of 32 channels gives the
    paper's number of parameters.
    """

    group_size = 32

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        num_groups = num_channels // self.group_size
        self.weight = nn.Parameter(torch.ones(num_groups))
        self.bias = nn.Parameter(torch.zeros(num_groups))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images of shape (batch, channels, height, width)."""
        weight = self.weight.repeat_interleave(self.group_size)
        bias = self.bias.repeat_interleave(self.group_size)
        return group_norm(images, len(self.weight), weight, bias)


def resnet18_group_norm(num_classes: int = 10) -> nn.Module:
    """Torchvision's ResNet-18 with group norm instead of batch norm: 11,172,342 parameters.

    Group norm keeps no batch statistics, which devices with different data could not share.
    """
    from torchvision.models import resnet18  # takes longer to import than torch

    return resnet18(num_classes=num_classes, norm_layer=SharedGroupNorm)


# The networks by name; each function takes the number of classes.
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "digits": digits_cnn,
    "small": small_cnn,
    "small_colour": small_colour_cnn,
    "cnn": femnist_cnn,
    "resnet18": resnet18_group_norm,
}


def new_model(make_model: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Make a network with a seed's initial parameters; global generators do not change."""
    with seeded(seed), default_modes(), torch.device("cpu"):
        # Not torch.manual_seed, which reseeds every GPU as well.
        torch.default_generator.manual_seed(seed)
        return make_model()


def check_maker(make_model: object, inputs: Tensor, num_classes: int) -> None:
    """Raise `ValueError` unless `make_model` makes a network with an output for each class.

    It is tried with one pass over a few inputs; global generators do not change.
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise ValueError(
            "model must be a class or function that makes a network, as each run starts with a "
            f"new one, got an object of type {type(make_model).__name__}"
        )
    with user_errors(f"model() or its pass over inputs of shape {tuple(inputs.shape)} fails"):
        network = new_model(make_model)
        if not isinstance(network, nn.Module):
            raise TypeError(f"it must return a torch.nn.Module, got {type(network).__name__}")
        with torch.random.fork_rng(devices=[]):
            outputs = network(inputs)
        if outputs.ndim != 2 or outputs.shape[1] < num_classes:
            raise ValueError(
                f"the network must give outputs of shape (samples, {num_classes}), one for each "
                f"class from 0 to the largest label, got {tuple(outputs.shape)}"
            )

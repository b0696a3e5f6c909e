"""The networks that devices train, and the check of user-defined ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, group_norm
from torch.nn.parameter import UninitializedParameter

from fl_edge_env.files import as_value_error
from policies.global_random import seeded
from policies.user_code import user_errors
from train_fl.modes import default_modes


class HalvingPool(nn.MaxPool2d):
    """Max pooling of 2 by 2 pixels, which takes a seventh of the time without gradients."""

    def forward(self, images: Tensor) -> Tensor:
        """Pool images of shape (..., height, width); an odd last row or column is ignored."""
        if torch.is_grad_enabled():
            pooled: Tensor = super().forward(images)
            return pooled
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

    It has 6,603,710 parameters for the 62 classes of FEMNIST, and 6,497,162 for ten classes.
    """
    return nn.Sequential(
        *_pooled(1, 32, 5),
        *_pooled(32, 64, 5),
        nn.Flatten(),
        nn.Linear(3136, 2048),
        nn.ReLU(),
        nn.Linear(2048, num_classes),
    )


def small_cnn(num_classes: int = 10) -> nn.Module:
    """A CNN for 28 by 28 grey images that trains over ten times faster than `femnist_cnn`.

    Two convolutions of stride two and two linear layers: 206,922 parameters for ten classes.
    """
    return nn.Sequential(
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

    network: nn.Module = resnet18(num_classes=num_classes, norm_layer=SharedGroupNorm)
    return network


# The networks by name; each function takes the number of classes.
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "digits": digits_cnn,
    "small": small_cnn,
    "cnn": femnist_cnn,
    "resnet18": resnet18_group_norm,
}


def new_model(make_model: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Make a network with a seed's initial parameters; global generators do not change."""
    with seeded(seed), default_modes(), torch.device("cpu"):
        # Not torch.manual_seed, which reseeds every GPU as well.
        torch.default_generator.manual_seed(seed)
        return make_model()


def check_maker(make_model: object, inputs: Tensor, targets: Tensor, num_classes: int) -> None:
    """Check that `make_model` makes a new network for local training each time.

    The initial parameters must come from global generators, which do not change, and the network
    must pass `check_network`. Raises `ValueError` otherwise.
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise ValueError(
            "model must be a class or function that makes a network, as each run starts with a "
            f"new one, got an object of type {type(make_model).__name__}"
        )
    with user_errors("model() fails"):
        first, second = (new_model(make_model) for _ in range(2))
    if not isinstance(first, nn.Module):
        raise ValueError(f"model must return a torch.nn.Module, got {type(first).__name__}")
    with torch.random.fork_rng(devices=[]):
        check_network(first, inputs, targets, num_classes)
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=False):
        if one is other or not torch.equal(one, other):
            raise ValueError(
                "model must make a new network each time, with initial parameters drawn only from "
                f"global generators: in two networks from one seed {name} "
                + ("is the same tensor" if one is other else "differs")
            )


def check_network(model: nn.Module, inputs: Tensor, targets: Tensor, num_classes: int) -> None:
    """Check, with a few samples of the data set, that local training can train a network.

    Raises
    ------
    ValueError
        If it has buffers, such as the running statistics of batch norm, which would not be
        aggregated; dropout, whose random numbers are not seeded; or parameters that are frozen,
        not float32 or of unknown size. Also if it does not accept the inputs, does not give an
        output for each class, or does not give all parameters finite gradients.
    """
    for name, _ in model.named_buffers():
        raise ValueError(f"the network must have no buffers, got {name}: use group norm instead")
    for name, module in model.named_modules():
        # Two passes may agree by chance, so dropout is rejected by its type.
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise ValueError(f"the network must have no dropout, got {name}: {module}")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ValueError(f"the network must have parameters to train, got {model}")
    for name, parameter in parameters.items():
        lazy = isinstance(parameter, UninitializedParameter)
        if lazy or parameter.dtype != torch.float32 or not parameter.requires_grad:
            kind = "lazy" if lazy else parameter.dtype if parameter.requires_grad else "frozen"
            raise ValueError(
                "the network must train all its parameters, as float32 tensors of known size, but "
                f"{name} is {kind}"
            )
    kind = ", channels first" if inputs.ndim == 4 else ""
    if not inputs.is_floating_point():
        kind = f" of integers from {inputs.min()} to {inputs.max()} (floats unless they are tokens)"
    with as_value_error(
        f"the network cannot be trained on inputs of shape {tuple(inputs.shape[1:])}{kind}: "
    ):
        outputs = model(inputs)
        if outputs.ndim != 2 or outputs.shape[1] < num_classes:
            raise ValueError(
                f"it must give outputs of shape (samples, {num_classes}), one for each class from "
                f"0 to the largest label, got {tuple(outputs.shape)} for {len(inputs)} samples"
            )
        loss = cross_entropy(outputs, targets)
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        again = model(inputs)
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise ValueError(f"the network must use all its parameters, but {name} has no effect")
        if gradient.layout != torch.strided or not torch.isfinite(gradient).all():
            raise ValueError(f"the gradient of {name} must be dense and finite on a few samples")
    # With the same weights and inputs only random numbers can make a difference.
    if not torch.equal(outputs, again):
        raise ValueError(
            "the network must give the same outputs for the same inputs, but two passes differed: "
            "remove dropout and other random numbers, which are not seeded"
        )

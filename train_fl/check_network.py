"""What a network must be for devices to train it and a server to average it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def check_network(model: nn.Module, images: Tensor, labels: Tensor, num_classes: int) -> None:
    """Refuse what local training cannot treat rightly.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    images : Tensor, shape (samples, channels, height, width)
        A few images of the data set.
    labels : Tensor of int64, shape (samples,)
        Their classes.
    num_classes : int
        Number of classes of the data set.

    Raises
    ------
    ValueError
        If it has buffers, such as the running statistics of batch norm, which are no parameters
        and would not be aggregated; dropout, whose random numbers no seed names; parameters that
        are not trained; does not take the images, or gives them no score for each class.
    """
    for name, _ in model.named_buffers():
        raise ValueError(f"the network must have no buffers, got {name}: use group norm instead")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            raise ValueError(f"the network must have no dropout, got {name}: {module}")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ValueError(f"the network must have parameters to train, got {model}")
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            raise ValueError(
                f"the network must train all its parameters, {name} is frozen: make it a plain "
                "tensor attribute, which is not uploaded, or let it train"
            )
    scores = _scores(model, images, num_classes)
    # With the same weights and images only random numbers can make a difference.
    if not torch.equal(scores, model(images)):
        raise ValueError(
            "the network must give the same scores for the same images, and two passes differed: "
            "leave out dropout and other random numbers, which no seed names"
        )
    loss = cross_entropy(scores, labels)
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise ValueError(
                f"the network must use all its parameters, {name} has no part in its scores: "
                "remove it, as it would be uploaded in every round"
            )


def _scores(model: nn.Module, images: Tensor, num_classes: int) -> Tensor:
    """What the network gives for images, if it is a score for each class."""
    shape = tuple(images.shape[1:])
    try:
        scores = model(images)
    except Exception as error:  # what a network can raise has no end
        raise ValueError(
            f"the network does not take images of shape {shape}, channels first: {error}"
        ) from None
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(images):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"the network must give a row of scores for each image, shape ({len(images)}, "
            f"{num_classes}) for {len(images)} images, got {got}"
        )
    if scores.shape[1] < num_classes:
        raise ValueError(
            f"the network must have an output for each of {num_classes} classes, counted from 0 to "
            f"the largest label {num_classes - 1}, got {scores.shape[1]} outputs"
        )
    return scores

"""What server and clients write into their messages."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

# Which device a node is, as Flower's simulation engine names it in a node's configuration.
DEVICE = "partition-id"

# Stands for the compression where a client is to reply with the model that it has trained.
AS_IT_IS = "as it is"


def named(model: nn.Module) -> ArrayRecord:
    """A network's parameters under their names."""
    return ArrayRecord({name: value.detach() for name, value in model.named_parameters()})


def flat(arrays: ArrayRecord, model: nn.Module) -> Tensor:
    """Parameters of a network in its order, shape (d,)."""
    names = [name for name, _ in model.named_parameters()]
    return torch.cat([torch.from_numpy(arrays[name].numpy()).flatten() for name in names])

"""What server and clients write into their messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn

from train_fl.compression import Compressor, Uploads
from train_fl.server import LARGER_MU

# Which device a node is, as Flower's simulation engine names it in a node's configuration.
DEVICE = "partition-id"

# Stands for the compression where a client is to reply with the model that it has trained.
AS_IT_IS = "as it is"


class Reply(NamedTuple):
    """What came from a participant."""

    update: NDArray[Any]  # shape (d,)
    bytes_up: int
    metrics: MetricRecord


def named(model: nn.Module) -> ArrayRecord:
    """A network's parameters under their names."""
    return ArrayRecord({name: value.detach() for name, value in model.named_parameters()})


def flat(arrays: ArrayRecord, model: nn.Module) -> Tensor:
    """Parameters of a network in its order, shape (d,)."""
    names = [name for name, _ in model.named_parameters()]
    return torch.cat([torch.from_numpy(arrays[name].numpy()).flatten() for name in names])


def like(arrays: ArrayRecord, flat: NDArray[Any]) -> ArrayRecord:
    """Numbers, shape (d,), under the names and in the shapes and types of a model's arrays."""
    old = {name: array.numpy() for name, array in arrays.items()}
    parts = np.split(flat, np.cumsum([values.size for values in old.values()])[:-1])
    return ArrayRecord(
        {
            name: torch.from_numpy(part.reshape(values.shape).astype(values.dtype))
            for (name, values), part in zip(old.items(), parts, strict=True)
        }
    )


def read_reply(
    device: int,
    number: int,
    received: ArrayRecord,
    content: RecordDict,
    compressor: Compressor | None,
) -> Reply:
    """A device's reply in a round, whose update is its model less the one that it received.

    Raises `ValueError` if arrays are missing or have other shapes, and `FloatingPointError` if the
    update is not finite.
    """
    metrics = content.get("metrics", MetricRecord())
    if compressor is not None and "packed" in content:
        uploads = Uploads([array.numpy().shape for array in received.values()], compressor)
        packed = content["packed"]["update"]
        return Reply(uploads.decoded(packed), len(packed), metrics)
    local = content.get("arrays", ArrayRecord())
    if set(local) != set(received):
        raise ValueError(
            f"the reply of device {device} must have the arrays {', '.join(received)}, "
            f"got {', '.join(local) or 'none'}"
        )
    updates = []
    for name, array in received.items():
        new, old = local[name].numpy(), array.numpy()
        if new.shape != old.shape:
            raise ValueError(
                f"the array {name} of device {device} must have shape {old.shape}, got {new.shape}"
            )
        updates.append((new - old).ravel())
    update = np.concatenate(updates)
    if not np.isfinite(update).all():
        raise FloatingPointError(
            f"the update of device {device} in round {number} is not finite: choose a "
            f"smaller learning rate, or {LARGER_MU}"
        )
    return Reply(update, sum(array.numpy().nbytes for array in local.values()), metrics)


def reported(device: int, metrics: MetricRecord, name: str) -> float:
    """A number that the policy needs of a participant; `ValueError` if its reply has none."""
    if name not in metrics:
        raise ValueError(
            f"the policy needs the {name} of each participant, and the reply of device {device} "
            f"has only {', '.join(metrics) or 'no metrics'}"
        )
    return float(metrics[name])

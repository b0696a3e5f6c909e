"""Contents of the messages between server and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray
from torch import nn

from fl_edge_env.checks import FINITE, POSITIVE, number_in
from fl_edge_env.files import reason

# The key of a node's device number in its configuration, as Flower's simulations set it.
DEVICE = "partition-id"


def named(model: nn.Module) -> ArrayRecord:
    """A network's parameters by name."""
    return ArrayRecord({name: value.detach() for name, value in model.named_parameters()})


def flat(arrays: Mapping[str, Any], like: Mapping[str, Any]) -> NDArray[Any]:
    """Join named arrays into one vector, shape (d,), in the order and with the shapes of `like`."""
    for name in {**like, **arrays}:
        due, got = (tuple(each[name].shape) if name in each else None for each in (like, arrays))
        if got != due:
            raise ValueError(f"its array {name} must have shape {due}, got {got}")
    return np.concatenate([arrays[name].numpy().ravel() for name in like])


def shaped(numbers: NDArray[Any], like: ArrayRecord) -> ArrayRecord:
    """Split a vector, shape (d,), into arrays with the names, shapes and types of `like`."""
    old = like.to_torch_state_dict()
    parts = torch.split(torch.from_numpy(numbers), [value.numel() for value in old.values()])
    pairs = zip(old.items(), parts, strict=True)
    return ArrayRecord({name: part.view_as(value).to(value) for (name, value), part in pairs})


def usable(
    update: NDArray[Any],
    model: NDArray[Any],
    metrics: Mapping[str, Any],
    weight: str = "num-examples",
) -> NDArray[Any]:
    """Return a reply's update, shape (d,), in the model's type; raise if the reply is unusable.

    The update and the training loss must be finite, and the metric that weights replies positive.
    """
    number_in(POSITIVE, f"its {weight}", metrics.get(weight, 1))
    number_in(FINITE, "its train-loss", metrics.get("train-loss", 0))
    with np.errstate(over="ignore"):
        update = update.astype(model.dtype, casting="same_kind")
        norm = np.linalg.norm(update)
    if not np.isfinite(norm):
        raise ValueError("its update is not finite: choose a smaller learning rate")
    return update


def read_replies(
    replies: Iterable[Message], nodes: Iterable[int], read: Callable[[Message], Any]
) -> tuple[dict[int, Any], dict[int, str]]:
    """Read the nodes' replies; return the results by node, and the reasons for missing ones."""
    received = dict[int, Any]()
    reasons = dict.fromkeys(nodes, "no reply in time")
    for reply in replies:
        node = reply.metadata.src_node_id
        if node in reasons:
            try:
                if reply.has_error():
                    raise ValueError(reply.error.reason)
                received[node] = read(reply)
            except Exception as error:  # clients may send anything
                reasons[node] = reason(error)
    return received, {node: why for node, why in reasons.items() if node not in received}

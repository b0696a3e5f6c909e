"""Which node of a federation is which device."""

from __future__ import annotations

import time

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from train_fl.federation.messages import DEVICE


def find_devices(grid: Grid, num_devices: int, wait: float) -> list[int]:
    """The nodes of the devices 0 to N - 1."""
    deadline = time.monotonic() + wait
    while len(nodes := list(grid.get_node_ids())) < num_devices and time.monotonic() < deadline:
        time.sleep(0.2)
    if len(nodes) != num_devices:
        raise ValueError(
            f"the scenario has {num_devices} devices and the federation {len(nodes)} nodes after "
            f"{wait:g} s: start as many, in a simulation by "
            f"--federation-config num-supernodes={num_devices}"
        )
    asked = [Message(RecordDict(), node, MessageType.QUERY) for node in nodes]
    node_of: dict[int, int] = {}
    for reply in grid.send_and_receive(asked, timeout=wait):
        node = reply.metadata.src_node_id
        if reply.has_error():
            raise RuntimeError(f"node {node} does not say its {DEVICE}: {reply.error.reason}")
        device = int(reply.content["metrics"][DEVICE])
        if not 0 <= device < num_devices or device in node_of:
            raise ValueError(
                f"each node needs a {DEVICE} of its own from 0 to {num_devices - 1}, and node "
                f"{node} has {device}"
            )
        node_of[device] = node
    if len(node_of) != num_devices:
        raise RuntimeError(
            f"{num_devices - len(node_of)} of {num_devices} nodes did not say their {DEVICE} "
            f"within {wait:g} s"
        )
    return [node_of[device] for device in range(num_devices)]

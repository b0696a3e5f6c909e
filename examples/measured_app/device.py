"""The program of a device: it downloads at the device's rate, trains at its speed, and uploads.

``python device.py 3 <socket>`` is device 3, which takes what it is sent at a socket.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from functools import partial
from multiprocessing.connection import Listener

import torch
from flwr.app import Context, Message, RecordDict
from hardware import DOWNLINK_BPS, pace, rates, slowed
from system import make_digits

from train_fl.federation import train_reply


def take_part(device: int, message: Message, context: Context) -> RecordDict:
    """A round: the reply, with how long each part of it took."""
    run = context.run_config
    task = make_digits(float(run["learning-rate"]))
    # What the first steps take besides is no training.
    train_reply(message, deepcopy(context), task)
    content = train_reply(message, context, task, around=partial(slowed, device)).content
    metrics = content["metrics"]
    place = int(run["first-round"]) + int(message.content["config"]["server-round"]) - 1
    metrics["down_s"] = pace(metrics["bytes_down"], DOWNLINK_BPS)
    metrics["up_s"] = pace(metrics["bytes_up"], float(rates(place + 1)[place, device]))
    return content


def main(device: int, socket: str) -> None:
    """Take part in rounds until the program is ended."""
    torch.set_num_threads(1)
    make_digits(0.0)
    with Listener(socket) as door:
        while True:
            with door.accept() as server:
                message, context = server.recv()
                server.send((take_part(device, message, context), context.state))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""A client that reports its device number, and trains on this device's part of the digits."""

from __future__ import annotations

from functools import lru_cache

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from train_fl import Task, make_task
from train_fl.federation import device_reply, train_reply

app = ClientApp()
make_digits = lru_cache(maxsize=1)(lambda devices: make_task("digits", num_devices=devices))


@app.query()
def query(message: Message, context: Context) -> Message:
    """Report which device this is."""
    return device_reply(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round; to use your own data, train on them here and reply with the model."""
    task: Task = make_digits(int(context.run_config["devices"]))
    return train_reply(message, context, task)

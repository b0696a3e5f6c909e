"""A client: it says which device it is, and trains the part of the task that this device has.

For data of your own, train on them in `train`: the message's `config` has the CPU frequency, the
transmission power and the number of epochs, and `arrays` the model. Reply with the local model
under the same names.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from system import make_system

from train_fl.federation import device_reply, train_reply

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say which device this is."""
    return device_reply(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round."""
    _, task = make_system(context)
    return train_reply(message, context, task)

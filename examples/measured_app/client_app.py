"""A client of Flower: it hands what the server sends to the program of its device.

Flower starts a client anew for each message. The program of the device runs all the time, so that
it need not load its data and its libraries in each round.
"""

from __future__ import annotations

from multiprocessing.connection import Client

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say which device this is."""
    told = MetricRecord({"partition-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": told}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round."""
    with Client(str(context.node_config["program"])) as device:
        device.send((message, context))
        content, context.state = device.recv()
    return Message(content, reply_to=message)

"""Clients of a federation in this process."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fl_edge_env import Scenario
from train_fl import make_task
from train_fl.federation import device_reply, train_reply

N = 12
TASK = make_task("digits", num_devices=N)
SCENARIO = TASK.fit(Scenario.digits(num_devices=N, num_rounds=10, cohort_size=3))


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """A server's part in a run, which Flower sets before it starts one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def make_app(task=TASK) -> ClientApp:
    app = ClientApp()
    app.query()(device_reply)
    app.train()(lambda message, context: train_reply(message, context, task))

    @app.query("gain")
    def gain(message: Message, context: Context) -> Message:
        told = MetricRecord({"gain": 0.02 + 0.01 * context.node_config["partition-id"]})
        return Message(RecordDict({"metrics": told}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        root = {"num-examples": 1, "root": context.node_config["partition-id"] ** 0.5}
        return Message(RecordDict({"metrics": MetricRecord(root)}), reply_to=message)

    return app


class LocalGrid(Grid):
    """Clients in this process, on nodes whose numbers are not those of the devices."""

    run = None

    def __init__(self, devices=range(N)[::-1], app=None, lost=(), run_config=None) -> None:
        self.app = make_app() if app is None else app
        self.contexts = {
            100 + place: Context(1, 0, {"partition-id": device}, RecordDict(), run_config or {})
            for place, device in enumerate(devices)
        }
        self.lost = dict(lost)  # devices by round
        self.failing = {}  # devices by round
        self.trained = []  # (round, device, config)
        self.replies = []  # what they hold

    def send_and_receive(self, messages, *, timeout=None):  # noqa: ARG002 - Flower's signature
        replies = map(self.reply, messages)
        return [reply for reply in replies if reply is not None]

    def reply(self, message: Message) -> Message | None:
        context = self.contexts[message.metadata.dst_node_id]
        if message.metadata.message_type == "train":
            config = message.content["config"]
            number = config["server-round"]
            device = context.node_config["partition-id"]
            self.trained.append((number, device, config))
            if device in self.lost.get(number, ()):
                return None
            if device in self.failing.get(number, ()):
                return Message(Error(1, "out of battery"), reply_to=message)
            reply = self.app(message, context)
            self.replies.append(reply.content)
            return reply
        return self.app(message, context)

    def get_node_ids(self):
        return list(self.contexts)

    def set_run(self, *_):
        raise AssertionError("the strategy needs no run")

    create_message = push_messages = pull_messages = set_run


class Spoiled(LocalGrid):
    """Puts wrong values into a record of a node's replies of a kind; None empties the record."""

    def __init__(self, node, kind, record, values, *arguments) -> None:
        super().__init__(*arguments)
        self.spoiled = node, kind
        self.record = record
        self.values = values

    def reply(self, message):
        answer = super().reply(message)
        if self.spoiled == (message.metadata.dst_node_id, message.metadata.message_type):
            if self.values is None:
                answer.content[self.record].clear()
            answer.content[self.record].update(self.values or {})
        return answer


class Changing(LocalGrid):
    """After a node's first training its client restarts under another number, and two join.

    One is device 10, and one is no device.
    """

    def reply(self, message):
        answer = super().reply(message)
        node = message.metadata.dst_node_id
        if node == 103 and message.metadata.message_type == "train":
            device_10, other = LocalGrid([10, 99]).contexts.values()
            self.contexts |= {200: device_10, 203: self.contexts.pop(node), 300: other}
        return answer


def flat(arrays) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])

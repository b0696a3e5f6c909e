"""What a client answers: which device it is, and the model that it has trained."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fl_edge_env.typing import IntArray
from train_fl.compression import Uploads, make_compressor
from train_fl.federation.messages import AS_IT_IS, DEVICE, flat, named
from train_fl.local_sgd import LocalTrainer
from train_fl.task import Task, TrainingSeeds


def device_reply(message: Message, context: Context) -> Message:
    """A client's reply to the query of `PolicyStrategy` which device it is.

    A node whose configuration has no ``partition-id`` is a `ValueError`, here and in `train_reply`.
    """
    metrics = MetricRecord({DEVICE: _device(context)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def train_reply(message: Message, context: Context, task: Task) -> Message:
    """Train a device's part of a task as `TrainingWrapper` does, and reply with the local model.

    The task is the same for all clients; the split over the devices is that of the episode. The
    reply's ``metrics`` have the time of training as ``train_s``. Add ``up_s`` there for the log of
    `PolicyStrategy`: only the client's own transport knows it.
    """
    config, device = message.content["config"], _device(context)
    entropy, key = int(config["training-entropy"]), tuple(config["training-key"])
    seeds = TrainingSeeds.of(np.random.SeedSequence(entropy, spawn_key=key))
    completed_rounds = int(config["server-round"]) - 1
    model = task.initial_model(seeds.model)
    trainer = LocalTrainer(model, task.options)
    shapes = [tuple(p.shape) for p in model.parameters()]
    if "packed" in message.content:
        uploads = Uploads(shapes, make_compressor(config["download-compression"]))
        parameters = torch.from_numpy(uploads.decoded(message.content["packed"]["model"]))
    else:
        parameters = flat(message.content["arrays"], model)
    part = _parts(task, entropy, key)[device]
    data = task.dataset.train_inputs[part], task.dataset.train_targets[part]
    metrics: dict[str, Any] = {"num-examples": len(part)}
    if config["report-losses"]:
        metrics["local-loss"], metrics["local-loss-rms"] = trainer.losses(parameters, *data)
    started = time.perf_counter()
    update, metrics["train-loss"] = trainer.update(
        parameters,
        *data,
        epochs=float(config["local-epochs"]),
        learning_rate=task.learning_rate(completed_rounds, int(config["num-rounds"])),
        rng=seeds.sample_order(completed_rounds, device),
        augment=task.dataset.augment,
    )
    metrics["train_s"] = time.perf_counter() - started
    content = RecordDict({"metrics": MetricRecord(metrics)})
    if config["compression"] == AS_IT_IS:
        content["arrays"] = named(model)
        return Message(content, reply_to=message)
    own = task.compression if config["compression"].startswith("bits:") else None
    compressor = own or make_compressor(config["compression"])
    if compressor is None:
        content["arrays"] = named(model)
        return Message(content, reply_to=message)
    uploads = Uploads(shapes, compressor)
    episode = f"{entropy} {key}"
    left = _left(context, episode, len(update)) if uploads.remembers else None
    packed, left = uploads.sent(update.numpy(), left, seeds.upload(completed_rounds, device))
    if left is not None:
        context.state["left"] = ArrayRecord({"update": torch.from_numpy(left)})
        context.state["episode"] = ConfigRecord({"key": episode})
    content["packed"] = ConfigRecord({"update": packed})
    return Message(content, reply_to=message)


def _left(context: Context, episode: str, size: int) -> NDArray[np.float32]:
    """What was lost of a client's updates in the episode, shape (d,)."""
    if context.state.get("episode", ConfigRecord()).get("key") != episode:
        return np.zeros(size, dtype=np.float32)
    left: NDArray[np.float32] = context.state["left"]["update"].numpy()
    return left


@lru_cache(maxsize=1)
def _parts(task: Task, entropy: int, key: tuple[int, ...]) -> list[IntArray]:
    """The split of an episode: a process has clients of one task and one episode."""
    return task.episode(
        TrainingSeeds.of(np.random.SeedSequence(entropy, spawn_key=key)).split
    ).parts


def _device(context: Context) -> int:
    """Which device a client is."""
    if DEVICE not in context.node_config:
        raise ValueError(
            f"the node's configuration must say which device it is, got {context.node_config}: "
            f'start it by flower-supernode --node-config "{DEVICE}=3"'
        )
    return int(context.node_config[DEVICE])

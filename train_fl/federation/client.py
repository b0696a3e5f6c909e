"""Client replies: the device number and the trained model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fl_edge_env.checks import is_integer
from train_fl.compression import Uploads, make_compressor
from train_fl.federation.messages import DEVICE, flat, named
from train_fl.local_sgd import LocalTrainer
from train_fl.task import Task, TrainingSeeds


def device_reply(message: Message, context: Context) -> Message:
    """Reply to the server's query with the client's device number.

    Raises `ValueError`, as `train_reply` does, if the node's configuration has no integer
    ``partition-id``.
    """
    metrics = MetricRecord({DEVICE: _device(context)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def train_reply(message: Message, context: Context, task: Task) -> Message:
    """Train on a device's data as `TrainingWrapper` does, and reply with the local model.

    All clients must pass the same task; the episode's seed determines the split over the devices.
    Under one of Flower's own strategies the message needs `Clocked.train_config`. The reply's
    ``metrics`` have the training time ``train_s`` [s]. For the log of `PolicyStrategy`, add the
    upload time ``up_s`` [s], which only the client's transport knows.
    """
    config = message.content["config"]
    device = _device(context)
    epochs = config["local-epochs"]
    compression = str(config.get("compression", "none"))
    entropy = int(config["training-entropy"])
    key = tuple(config["training-key"])
    seeds = TrainingSeeds.of(np.random.SeedSequence(entropy, spawn_key=key))
    completed_rounds = int(config["server-round"]) - 1
    model = task.initial_model(seeds.model)
    trainer = LocalTrainer(model, task.options)
    parameters = torch.from_numpy(flat(message.content["arrays"], dict(model.named_parameters())))
    part = task.episode(seeds.split).parts[device]
    data = task.dataset.train_inputs[part], task.dataset.train_targets[part]
    metrics: dict[str, Any] = {"num-examples": len(part)}
    if config.get("report-losses"):
        metrics["local-loss"], metrics["local-loss-rms"] = trainer.losses(parameters, *data)
    started = time.perf_counter()
    update, metrics["train-loss"] = trainer.update(
        parameters,
        *data,
        epochs=float(epochs[device] if isinstance(epochs, list) else epochs),
        learning_rate=task.learning_rate(completed_rounds, int(config["num-rounds"])),
        rng=seeds.sample_order(completed_rounds, device),
        augment=task.dataset.augment,
    )
    metrics["train_s"] = time.perf_counter() - started
    content = RecordDict({"metrics": MetricRecord(metrics)})
    user_defined = compression.startswith("bits:")
    compressor = task.compression if user_defined else make_compressor(compression)
    if compressor is None:
        content["arrays"] = named(model)
    else:
        shapes = [tuple(parameter.shape) for parameter in model.parameters()]
        uploads = Uploads(shapes, compressor)
        episode = f"{entropy} {key}"
        left = None
        if uploads.remembers:
            kept = context.state.get("left", ArrayRecord()).get(episode)
            left = np.zeros(len(update), dtype=np.float32) if kept is None else kept.numpy()
        packed, left = uploads.sent(update.numpy(), left, seeds.upload(completed_rounds, device))
        if left is not None:
            context.state["left"] = ArrayRecord({episode: torch.from_numpy(left)})
        content["packed"] = ConfigRecord({"update": packed})
    return Message(content, reply_to=message)


def _device(context: Context) -> int:
    """The client's device number."""
    device = context.node_config.get(DEVICE)
    if not is_integer(device):
        raise ValueError(
            f"the node's configuration must have an integer {DEVICE}, got {context.node_config}: "
            f'start the node with flower-supernode --node-config "{DEVICE}=3"'
        )
    return device

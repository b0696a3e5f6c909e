"""Client replies: the device number and the trained model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.random import Generator
from torch import Tensor, nn

from fl_edge_env.checks import is_integer
from fl_edge_env.typing import Float32Array
from train_fl.compression import Compressor, Uploads, make_compressor
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
    entropy = int(config["training-entropy"])
    key = tuple(config["training-key"])
    seeds = TrainingSeeds.of(np.random.SeedSequence(entropy, spawn_key=key))
    model = task.initial_model(seeds.model)
    update, metrics = _trained(model, task, message.content, seeds, device)
    content = RecordDict({"metrics": MetricRecord(metrics)})
    compressor = _compressor(config, task)
    if compressor is None:
        content["arrays"] = named(model)
    else:
        uploads = Uploads(task.shapes, compressor)
        rng = seeds.upload(int(config["server-round"]) - 1, device)
        packed = _packed(update.numpy(), uploads, rng, context.state, f"{entropy} {key}")
        content["packed"] = ConfigRecord({"update": packed})
    return Message(content, reply_to=message)


def _trained(
    model: nn.Module, task: Task, content: RecordDict, seeds: TrainingSeeds, device: int
) -> tuple[Tensor, dict[str, Any]]:
    """Train the message's model on a device's data; return the update, shape (d,), and metrics."""
    config = content["config"]
    completed_rounds = int(config["server-round"]) - 1
    epochs = config["local-epochs"]
    trainer = LocalTrainer(model, task.options)
    parameters = torch.from_numpy(flat(content["arrays"], dict(model.named_parameters())))
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
    return update, metrics


def _compressor(config: ConfigRecord, task: Task) -> Compressor | None:
    """The compressor that the server asks for, which the task has if it is user-defined."""
    compression = str(config.get("compression", "none"))
    return task.compression if compression.startswith("bits:") else make_compressor(compression)


def _packed(
    update: Float32Array, uploads: Uploads, rng: Generator, state: RecordDict, episode: str
) -> bytes:
    """Compress an update; the client's state keeps the residual of its episode, if there is one."""
    left = None
    if uploads.remembers:
        kept = state.get("left", ArrayRecord()).get(episode)
        left = np.zeros(len(update), dtype=np.float32) if kept is None else kept.numpy()
    packed, left = uploads.sent(update, left, rng)
    if left is not None:
        state["left"] = ArrayRecord({episode: torch.from_numpy(left)})
    return packed


def _device(context: Context) -> int:
    """The client's device number."""
    device = context.node_config.get(DEVICE)
    if not is_integer(device):
        raise ValueError(
            f"the node's configuration must have an integer {DEVICE}, got {context.node_config}: "
            f'start the node with flower-supernode --node-config "{DEVICE}=3"'
        )
    return device

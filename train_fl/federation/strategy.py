"""A policy as a Flower strategy."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import FINITE, freeze, is_real, number_in, read_only
from fl_edge_env.compression import Compression
from fl_edge_env.files import as_value_error
from fl_edge_env.scenario.from_log import COLUMNS
from fl_edge_env.streams import policy_seed
from fl_edge_env.typing import Float32Array, FloatArray
from policies.base import Policy
from train_fl.compression import Compressor, Uploads, make_compressor
from train_fl.federation.messages import flat, shaped, usable
from train_fl.federation.rounds import EmulatedRounds
from train_fl.local_sgd import LocalTrainer, samples_seen
from train_fl.models import new_model
from train_fl.server import ServerOptimizer, apply_contributions, make_server_optimizer, norms_of
from train_fl.task import Task, TrainingSeeds

# The losses that policies use: their names in the clients' metrics and in a round's info.
_LOSSES = {"local-loss": "local_losses", "local-loss-rms": "local_loss_rms"}


class PolicyStrategy(EmulatedRounds, Strategy):
    """A Flower strategy in which a policy decides every round.

    The server adds the sum of the participants' updates to the model, weighted by the decision (see
    `fl_edge_env.aggregation.contributions`). A device that is late or fails in the emulation gets
    no message. A missing or unusable reply counts as late if the scenario has a deadline, and
    otherwise as failed; a warning gives the reason.

    Parameters
    ----------
    policy : Policy
        Decides the rounds. It must not use gradients or update norms of all devices.
    scenario : Scenario
        The emulated system, with one device for each client.
    seed : int
        Seed of channel, cohorts and training, as in `FLEdgeEnv.reset`.
    server : str or ServerOptimizer
        Turns the sum into the model's step; for FedNova pass ``task.server`` of the clients' task.
    compressor : Compressor, optional
        The clients' user-defined compressor, if the scenario's compression is ``"bits:…"``.
    measure_gains : callable, optional
        Called before each decision with the grid and the devices' nodes; returns the nodes' channel
        gains in the coming round. By default the gains come from the scenario's channel.
    log : str or Path, optional
        A new CSV file for `fl_edge_env.Scenario.from_log`, with a row for each reply; never
        compressed.
    wait : float
        How long the server waits for a client for each device [s].
    """

    _run = Strategy.start

    def __init__(
        self,
        policy: Policy,
        scenario: Scenario,
        *,
        seed: int = 0,
        server: str | ServerOptimizer = "fedavg",
        compressor: Compressor | None = None,
        measure_gains: Callable[[Grid, list[int]], FloatArray] | None = None,
        log: str | Path | None = None,
        wait: float = 300.0,
    ) -> None:
        super().__init__(scenario, seed, wait)
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be a Policy, got {policy!r}: see policies.make_policy")
        if policy.uses_gradients or policy.uses_update_norms:
            needed = "distances between the gradients" if policy.uses_gradients else "update norms"
            raise ValueError(
                f"{policy.name} needs {needed} of all devices, which clients in a federation do "
                "not report: run it in a TrainingWrapper"
            )
        self.policy = policy
        self.name = policy.name
        self._losses = _LOSSES if policy.uses_losses else {}
        self._server = make_server_optimizer(server)
        self._balance = self._server.balance(scenario.local_epochs, scenario.num_samples)
        self._kept = dict[str, torch.Tensor]()
        self._compressor = compressor or make_compressor(scenario.compression)
        self._download = make_compressor(scenario.download_compression)
        self._measure_gains = measure_gains
        self._log = log

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Decide a round; return the messages to its participants. Round 1 starts an episode."""
        if server_round == 1:
            self._start_episode(grid)
        self._meet(grid)
        self._measure(grid)
        decision = self.policy.decide(self._observation).of_shape((self.scenario.num_devices,))
        self._play(decision)
        self._arrays = arrays
        self._received = flat(arrays, arrays)
        self._shapes = [tuple(array.shape) for array in arrays.values()]
        if self._download is not None:
            downloads = Uploads(self._shapes, self._download)
            rng = TrainingSeeds.of(self._env.training_seed).broadcast(server_round - 1)
            sent = downloads.encoded(self._received.astype(np.float32), rng)
            self._received = downloads.decoded(sent)
            arrays = shaped(self._received, arrays)
        common = {
            **config,
            **self.train_config,
            "server-round": server_round,
            "report-losses": self.policy.uses_losses,
            "compression": self.scenario.compression,
        }
        return self._orders(decision, arrays, common)

    def _measure(self, grid: Grid) -> None:
        """Let the clients measure the gains of the coming round, if they can."""
        if self._measure_gains is not None:
            gain = self._env.simulator.channel_gain.copy()
            gain[list(self._node_of)] = self._measure_gains(grid, list(self._node_of.values()))
            self._env.simulator.measure(gain)
            self._observation = self._env.simulator.observe()

    def _orders(
        self, decision: Allocation, arrays: ArrayRecord, common: dict[str, Any]
    ) -> list[Message]:
        """The messages to the participants, with the model and the settings of each device."""
        settings = {
            "frequency": decision.f,
            "power": decision.p,
            "bandwidth": decision.bandwidth,
            "local-epochs": self.scenario.local_epochs,
        }
        messages = []
        for device in set(self._expected.participants.tolist()) & set(self._node_of):
            own = {name: float(v[device]) for name, v in settings.items() if v is not None}
            content = RecordDict({"arrays": arrays, "config": ConfigRecord(common | own)})
            messages.append(Message(content, self._node_of[device], MessageType.TRAIN))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """The next model, unchanged if there are no replies, and the metrics of the round.

        Raises `FloatingPointError` if the model is not finite.
        """
        read, record = self._close(server_round, replies)
        devices = np.array(sorted(read), dtype=np.int64)
        rows = [read[device][1] for device in sorted(read)]
        model = flat(self._arrays, self._arrays)
        updates = np.array([read[device][0] for device in sorted(read)], model.dtype)
        together = torch.from_numpy(updates.reshape(len(read), model.size))
        weights = (self._expected.weight * self._balance)[devices]
        apply_contributions(
            torch.from_numpy(model), together, weights, self._server, self._kept, server_round
        )
        record["mean-queue"] = float(np.mean(self._env.simulator.queue))
        record["weights"] = weights.tolist()
        if rows and all("train-loss" in row for row in rows):
            losses = [row["train-loss"] for row in rows]
            scenario = self.scenario
            samples = samples_seen(scenario.local_epochs, scenario.num_samples)[devices]
            record["train-loss"] = float(np.average(losses, weights=samples))
        if self._log is not None:
            self._append(rows, server_round, self._log)
        self._give_feedback(devices, rows, norms_of(together))
        return shaped(model, self._arrays), MetricRecord(record)

    def _append(self, rows: list[dict[str, Any]], server_round: int, log: str | Path) -> None:
        """Append a round to the log; only warns if that is impossible."""
        table = pd.DataFrame(rows, columns=COLUMNS).assign(round=server_round)
        try:
            table.to_csv(log, mode="a", header=False, index=False, compression=None)
        except OSError as error:
            message = f"cannot add round {server_round} to the log {str(log)!r}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _give_feedback(
        self, devices: NDArray[np.int64], rows: list[dict[str, Any]], norms: Float32Array
    ) -> None:
        """Give the policy the info of the round, with what these devices reported."""
        reports: dict[str, Any] = {"update_norms": norms}
        for name, key in self._losses.items():
            reports[key] = [row[name] for row in rows]
        count = self.scenario.num_devices
        info = self._info | {"participants": np.isin(np.arange(count), devices)}
        for name, values in reports.items():
            info[name] = np.zeros(count)
            info[name][devices] = values
        freeze(info.values())
        self.policy.feedback(info)

    def configure_evaluate(self, *_: Any, **__: Any) -> Iterable[Message]:
        """No messages, as the server evaluates; see `evaluation`."""
        return []

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        """None, as no client evaluates."""
        return None

    def summary(self) -> None:
        """Log the policy and the seed."""
        logging.getLogger("flwr").info("\t└──> %s, seed %d", self.name, self.seed)

    def _start_episode(self, grid: Grid) -> None:
        if self._log is not None:
            with as_value_error(f"cannot create the log {str(self._log)!r}: "):
                pd.DataFrame(columns=COLUMNS).to_csv(
                    self._log, mode="x", index=False, compression=None
                )
        self._kept.clear()
        self._begin(grid)
        self.policy.reset(policy_seed(self.seed))
        nothing = read_only(np.zeros(self.scenario.num_devices))
        info = dict.fromkeys(self._losses.values(), nothing)
        self.policy.feedback({"participants": read_only(nothing > 0), **info})

    def _reply(self, reply: Message) -> tuple[NDArray[Any], dict[str, Any]]:
        """The update of a reply, shape (d,), and its row in the log; raises if it is unusable."""
        metrics = reply.content.get("metrics", {})
        row = self._row(self._device_of[reply.metadata.src_node_id], metrics)
        for name in self._losses:
            row[name] = number_in(FINITE, f"its {name}", metrics.get(name))
        if "train-loss" in metrics:
            row["train-loss"] = metrics["train-loss"]
        if self._compressor is not None and "packed" in reply.content:
            packed = reply.content["packed"].get("update", b"")
            update = self._decoded(packed, self._compressor)
            row["bytes_up"] = len(packed)
        else:
            local = flat(reply.content.get("arrays", {}), self._arrays)
            update = local - self._received
            row["bytes_up"] = local.nbytes
        return usable(update, self._received, metrics), row

    def _decoded(self, packed: bytes, compressor: Compressor) -> Float32Array:
        """The update that a client has compressed, shape (d,); raises if bytes are missing."""
        kind = Compression.parse("compression", self.scenario.compression)
        whole = int(kind.size(32.0 * self._received.size, len(self._shapes))) // 8
        if len(packed) != whole:
            raise ValueError(f"its upload must have {whole} bytes, got {len(packed)}")
        return Uploads(self._shapes, compressor).decoded(packed)

    def _row(self, device: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The row of a participation in the log, as server and client know it."""
        reported = {name: metrics.get(name) for name in ("num-examples", "train_s", "up_s")}
        row = {k: x for k, x in reported.items() if is_real(x) and 0 < x < math.inf}
        return row | {
            "device": device,
            "epochs": self.scenario.local_epochs[device],
            "samples": row.get("num-examples", self.scenario.num_samples[device]),
            "parameters": self._received.size,
        }


def evaluation(task: Task) -> Callable[[int, ArrayRecord], MetricRecord]:
    """Make a function for `Strategy.start` that evaluates a model on the task's test set.

    It takes the round's number and the model, and returns ``test-loss`` and ``test-accuracy``.
    """
    model = new_model(task.make_model)
    dataset = task.dataset
    names = dict(model.named_parameters())
    trainer = LocalTrainer(model, task.options)
    test = dataset.test_inputs, dataset.test_targets

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:  # noqa: ARG001 - Flower's
        loss, outputs = trainer.evaluate(torch.from_numpy(flat(arrays, names)), *test)
        right = outputs.argmax(dim=1) == test[1]
        return MetricRecord({"test-loss": loss, "test-accuracy": float(right.double().mean())})

    return evaluate

"""A policy as a strategy of Flower."""

from __future__ import annotations

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
from numpy.typing import NDArray

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import FINITE, freeze, is_real, number_in
from fl_edge_env.compression import Compression
from fl_edge_env.files import as_value_error
from fl_edge_env.scenario.from_log import COLUMNS
from fl_edge_env.streams import policy_seed
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from train_fl.compression import Compressor, Uploads, make_compressor
from train_fl.federation.messages import flat, named, shaped
from train_fl.federation.rounds import EmulatedStrategy
from train_fl.local_sgd import LocalTrainer
from train_fl.models import new_model
from train_fl.server import ServerOptimizer, apply_contributions, make_server_optimizer, norms_of
from train_fl.task import Task, TrainingSeeds

# What clients call the losses that policies ask for, and what the info of a round calls them.
_LOSSES = {"local-loss": "local_losses", "local-loss-rms": "local_loss_rms"}


class PolicyStrategy(EmulatedStrategy):
    """A strategy of Flower whose rounds a policy decides.

    The participants are sent the model, and reply with the model that they have trained. The new
    model is the old one plus the sum of their updates, each times the weight that the decision
    gives it (see `fl_edge_env.aggregation.contributions`), or another step of a server optimiser.
    Times, energies and queues follow from the scenario, as in `FLEdgeEnv`. A device that is late or
    fails in the emulation is sent nothing. A reply that is missing or cannot be used counts as late
    if the scenario has a deadline, or else as failed, and a warning says why.

    Parameters
    ----------
    policy : Policy
        Decides. A policy that needs distances between gradients (`uses_gradients`) is rejected.
    scenario : Scenario
        The system that is emulated, with as many devices as there are clients.
    seed : int
        Seed of channel, cohorts and training, as in `FLEdgeEnv.reset`.
    server : str or ServerOptimizer
        If clients do not train with the usual batch size and momentum, ``fednova`` must be the
        optimiser of their `Task`, ``task.server``.
    compressor : Compressor, optional
        The clients' own, if the scenario's compression has no name.
    measure_gains : callable, optional
        Called before each decision with the grid and the list of the devices' nodes; returns their
        channel gains in the coming round. By default they are drawn from the scenario's channel.
    log : str or Path, optional
        A new CSV file for `fl_edge_env.Scenario.from_log`, with a row for each reply.
    wait : float
        How long the server waits for the clients to be there, to say which devices they are, and
        to report the norms of their first updates if the policy needs those [s].
    """

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
        if policy.uses_gradients:
            raise ValueError(
                f"{policy.name} needs distances between the gradients of all devices, which "
                "clients of a federation do not report: run it in a TrainingWrapper"
            )
        self.policy, self.name = policy, policy.name
        self._server, self._measure_gains, self._log = (
            make_server_optimizer(server),
            measure_gains,
            log,
        )
        self._upload = compressor or make_compressor(scenario.compression)
        self._download = make_compressor(scenario.download_compression)

    def initial_arrays(self, task: Task) -> ArrayRecord:
        """The model that an episode begins with; `ValueError` if the task does not fit."""
        task.check_fit(self.scenario)
        return named(task.initial_model(TrainingSeeds.of(self._env.training_seed).model))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Decide a round, and give the messages to its participants. Round 1 begins an episode."""
        self._arrays, self._received = arrays, flat(arrays, arrays)
        self._shapes = [tuple(array.shape) for array in arrays.values()]
        if server_round == 1:
            self._start_episode(config, grid)
        if self._measure_gains is not None:
            gain = self._env.simulator.channel_gain.copy()
            gain[list(self._nodes)] = self._measure_gains(grid, list(self._nodes.values()))
            self._env.simulator.measure(gain)
            self._observation = self._env.simulator.observe()
        decision = self.policy.decide(self._observation)
        self._play(decision)
        if self._download is not None:
            uploads = Uploads(self._shapes, self._download)
            rng = TrainingSeeds.of(self._env.training_seed).broadcast(server_round - 1)
            sent = self._received.astype(np.float32)
            self._received = uploads.decoded(uploads.encoded(sent, rng))
        participants = self._expected.participants.tolist()
        return self._messages(
            server_round, participants, decision, config, self.scenario.compression
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """The next model, which is the old one if nobody replied, and the metrics of the round.

        Raises `FloatingPointError` if the model is not finite.
        """
        received, record = self._close(server_round, replies, self._reply)
        participants, scenario = np.array([*received], dtype=np.int64), self.scenario
        balance = self._server.balance(scenario.local_epochs, scenario.num_samples)
        weights = (self._expected.weight * balance)[participants]
        model, told = flat(self._arrays, self._arrays), [told for _, told in received.values()]
        updates = np.array([update for update, _ in received.values()], model.dtype)
        together = torch.from_numpy(updates.reshape(len(told), model.size))
        apply_contributions(
            torch.from_numpy(model), together, weights, self._server, self._kept, server_round
        )
        took_part = np.isin(np.arange(scenario.num_devices), participants)
        reports = {"update_norms": norms_of(together)}
        for name in _LOSSES if self.policy.uses_losses else ():
            reports[_LOSSES[name]] = np.array([row[name] for row in told], dtype=np.float64)
        info = self._info | {"participants": took_part}
        for name, values in reports.items():
            info[name] = np.zeros(scenario.num_devices)
            info[name][participants] = values
        record["mean-queue"] = float(np.mean(self._env.simulator.queue))
        record["weights"] = weights.tolist()
        if told and all("train-loss" in row for row in told):
            losses, samples = [row["train-loss"] for row in told], scenario.num_samples
            record["train-loss"] = float(np.average(losses, weights=samples[participants]))
        if self._log is not None:
            rows = [row | {"round": server_round, "device": n} for n, (_, row) in received.items()]
            self._write(rows, self._log)
        self._tell(info)
        return shaped(model, self._arrays), MetricRecord(record)

    def _start_episode(self, config: ConfigRecord, grid: Grid) -> None:
        if self._log is not None:
            with as_value_error(f"cannot begin the log {str(self._log)!r}: "):
                pd.DataFrame(columns=COLUMNS).to_csv(self._log, mode="x", index=False)
        self._kept: dict[str, torch.Tensor] = {}
        self._begin(grid)
        self.policy.reset(policy_seed(self.seed))
        info: dict[str, Any] = {}
        if self.policy.uses_losses:
            nothing = np.zeros(self.scenario.num_devices)
            info = {"participants": nothing > 0, **dict.fromkeys(_LOSSES.values(), nothing)}
        if self.policy.uses_update_norms:
            info |= self._first_norms(config, grid)
        self._tell(info)

    def _messages(
        self,
        number: int,
        devices: Iterable[int],
        decision: Allocation,
        config: Mapping[str, Any],
        compression: str,
    ) -> list[Message]:
        seed, scenario = self._env.training_seed, self.scenario
        common = {
            **config,
            "server-round": number,
            "num-rounds": scenario.num_rounds,
            "report-losses": self.policy.uses_losses,
            "compression": compression,
            "training-entropy": str(seed.entropy),
            "training-key": list(seed.spawn_key),
        }
        settings = {"frequency": decision.f, "power": decision.p, "bandwidth": decision.bandwidth}
        settings["local-epochs"] = scenario.local_epochs
        messages, arrays = [], shaped(self._received, self._arrays)
        for device in set(devices) & set(self._nodes):
            own = {name: float(v[device]) for name, v in settings.items() if v is not None}
            record = RecordDict({"config": ConfigRecord(common | own), "arrays": arrays})
            messages.append(Message(record, self._nodes[device], MessageType.TRAIN))
        return messages

    def _reply(self, reply: Message) -> tuple[NDArray[Any], dict[str, Any]]:
        """The update of a reply, shape (d,), and what else it says; any error if it is no use."""
        metrics, told = reply.content.get("metrics", {}), dict[str, Any]()
        losses = _LOSSES if self.policy.uses_losses else {}
        for name in [*losses, *({"train-loss"} & set(metrics))]:
            told[name] = number_in(FINITE, f"its {name}", metrics.get(name))
        for name in ("num-examples", "train_s", "up_s"):  # what is no number is not in the log
            if is_real(value := metrics.get(name)) and 0 < value < math.inf:
                told[name] = value
        if self._upload is not None and "packed" in reply.content:
            packed = reply.content["packed"].get("update", b"")
            kind = Compression.parse("compression", self.scenario.compression)
            whole = int(kind.size(32.0 * self._received.size, len(self._shapes))) // 8
            if len(packed) != whole:
                raise ValueError(f"its upload must have {whole} bytes, got {len(packed)}")
            update, size = Uploads(self._shapes, self._upload).decoded(packed), whole
        else:
            arrays = flat(reply.content.get("arrays", {}), self._arrays)
            update, size = arrays - self._received, arrays.nbytes
        if not np.isfinite(update).all():
            raise ValueError("its update is not finite: choose a smaller learning rate")
        return update, told | {"bytes_up": size}

    def _write(self, rows: list[dict[str, Any]], path: str | Path) -> None:
        """Add the rows of a round to the log."""
        for row in rows:
            row["samples"] = row.get("num-examples", self.scenario.num_samples[row["device"]])
            row["epochs"] = self.scenario.local_epochs[row["device"]]
            row["parameters"] = self._received.size
        try:
            table = pd.DataFrame(rows, columns=COLUMNS)
            table.to_csv(path, mode="a", header=False, index=False)
        except OSError as error:
            message = f"a round is not in the log {str(path)!r}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _first_norms(self, config: ConfigRecord, grid: Grid) -> dict[str, NDArray[Any]]:
        """Norms of the updates of all devices in the first round; nothing of these is uploaded.

        A device that is missing has the mean of the others.
        """
        everyone = range(self.scenario.num_devices)
        decision = Allocation(self.scenario.f_mid, self.scenario.p_mid, cohort=[0])
        asked = self._messages(1, everyone, decision, config, "none")
        replies = grid.send_and_receive(asked, timeout=self._wait)
        received = self._read(1, everyone, replies, self._reply)
        if not received:
            raise ValueError(f"{self.name} needs the norms of first updates, and nobody replied")
        norms = np.full(len(everyone), np.nan)
        for device, (update, _) in received.items():
            norms[device] = norms_of(torch.from_numpy(update[None]))[0]
        norms[np.isnan(norms)] = np.nanmean(norms)
        return {"participants": norms >= 0, "update_norms": norms}

    def _tell(self, info: dict[str, Any]) -> None:
        """Let the policy learn from what is no longer needed here."""
        freeze(info.values())
        self.policy.feedback(info)


def evaluation(task: Task) -> Callable[[int, ArrayRecord], MetricRecord]:
    """A function that evaluates a global model on the task's test set, for `Strategy.start`.

    It takes the number of a round and the model, and gives ``test-loss`` and ``test-accuracy``.
    """
    model, dataset = new_model(task.make_model), task.dataset
    names, trainer = dict(model.named_parameters()), LocalTrainer(model, task.options)
    test = dataset.test_inputs, dataset.test_targets

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:  # noqa: ARG001 - Flower's
        loss, outputs = trainer.evaluate(torch.from_numpy(flat(arrays, names)), *test)
        right = outputs.argmax(dim=1) == test[1]
        return MetricRecord({"test-loss": loss, "test-accuracy": float(right.double().mean())})

    return evaluate

"""The server: policies as strategies of Flower."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray
from torch import Tensor

from fl_edge_env import FLEdgeEnv, Scenario
from fl_edge_env.aggregation import contributions
from fl_edge_env.checks import finite_or_zero, freeze, integer_at_least
from fl_edge_env.streams import policy_seed
from fl_edge_env.typing import FloatArray, IntArray
from policies.base import Policy, check_scenario
from train_fl.compression import Compressor, Uploads, make_compressor
from train_fl.federation.log import append_rows, begin_log
from train_fl.federation.messages import (
    AS_IT_IS,
    Reply,
    flat,
    like,
    named,
    read_reply,
    reported,
)
from train_fl.federation.nodes import find_devices
from train_fl.local_sgd import LocalTrainer
from train_fl.models import new_model
from train_fl.server import (
    ServerOptimizer,
    apply_contributions,
    make_server_optimizer,
    norms_of,
)
from train_fl.task import Task, TrainingSeeds

# Asks the devices for the gains of the coming round, shape (N,): called with the grid and the
# Flower nodes of the devices 0 to N - 1.
MeasureGains: TypeAlias = Callable[[Grid, list[int]], FloatArray]


class _Round(NamedTuple):
    """A round whose replies are awaited."""

    number: int
    arrays: ArrayRecord
    received: ArrayRecord  # what the devices make of these where they are compressed
    participants: IntArray
    weights: FloatArray
    info: dict[str, Any]


class PolicyStrategy(Strategy):
    """A strategy of Flower whose rounds a policy decides.

    In each round the policy decides from the channel gains and the queues. The devices that it
    draws or chooses are sent the model, and reply with the model that they have trained. The new
    model is the old one plus the sum of their updates, each times the weight that the decision
    gives it (see `fl_edge_env.aggregation.contributions`); these weights need not sum to one. A
    server optimiser may make another step of that sum. Times, energies and queues follow from the
    scenario, as in `FLEdgeEnv`.

    A message to a client has the model as ``arrays``, and a ``config`` with

    - ``frequency`` [Hz] and ``power`` [W]: the device's CPU frequency and transmission power;
    - ``bandwidth`` [Hz], if the decision gives it: the device's part of the band;
    - ``server-round``, ``num-rounds`` and the device's ``local-epochs``;
    - ``compression``: that of the scenario, see `fl_edge_env.Scenario`;
    - ``report-losses``: whether the policy needs ``local-loss`` and ``local-loss-rms``, the mean
      and the root mean square of the losses of its samples under the model that it received;
    - ``training-entropy`` and ``training-key``: the stream of random numbers of the episode's
      training, for clients that are to repeat the numbers of `TrainingWrapper`.

    The reply has ``arrays``, with the names and shapes of those it was sent, and ``metrics``, in
    which ``train-loss`` may be. `train_reply` does all of this. Where updates are compressed the
    reply has the bytes that the encoder writes in place of ``arrays``, a ``packed`` configuration
    record with the ``update``; where the model that the server sends is, so has the message, with
    the ``model``.

    A device whose emulated upload fails, or that is late in the emulation, is not sent anything:
    its update would be lost. One that does not reply in time, or with an error, is treated as if
    its upload had failed, or as late where the scenario has a deadline: its time and energy count
    as emulated, and its update is left out. The weights of the others stay what they were decided
    to be. The server warns, and the round's metrics name the device.

    Parameters
    ----------
    policy : Policy
        Decides. One that needs distances between gradients (`uses_gradients`) is refused.
    scenario : Scenario
        The system that is emulated, with as many devices as there are clients.
    seed : int
        Seed of channel, cohorts and training, as in `FLEdgeEnv.reset`; the policy's is
        `fl_edge_env.streams.policy_seed` of it.
    server : str or ServerOptimizer
        Turns the weighted sum of a round's updates into the step of the model; by default the sum
        is the step. Where clients do not train with the usual batch size and momentum, ``fednova``
        must be that of their `Task`, ``task.server``.
    compressor : Compressor, optional
        The clients' own, where the scenario's compression is not one by name.
    measure_gains : callable, optional
        Called before each decision with the grid and the list of the devices' nodes; returns the
        channel gains of the coming round, shape (N,), for example as the clients report them. By
        default they are drawn from the scenario's channel.
    log : str or Path, optional
        A CSV file, new, to which each round adds a row for each reply: what
        `fl_edge_env.Scenario.from_log` makes a scenario of. Its times ``train_s`` and ``up_s`` [s]
        are those of the reply's ``metrics``, and empty where these have none; the samples are the
        ``num-examples`` there, or else those of the scenario.
    wait : float
        How long the server waits for the clients to be there, to say which devices they are, and
        to report the norms of their first updates if the policy needs those [s].

    Raises
    ------
    ValueError
        If an argument is wrong, or the policy needs what no client reports.
    """

    def __init__(
        self,
        policy: Policy,
        scenario: Scenario,
        *,
        seed: int = 0,
        server: str | ServerOptimizer = "fedavg",
        compressor: Compressor | None = None,
        measure_gains: MeasureGains | None = None,
        log: str | Path | None = None,
        wait: float = 300.0,
    ) -> None:
        check_scenario(scenario)
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be a Policy, got {policy!r}: see policies.make_policy")
        if policy.uses_gradients:
            raise ValueError(
                f"{policy.name} needs distances between the gradients of all devices, which "
                "clients of a federation do not report: run it in a TrainingWrapper"
            )
        self.policy, self.scenario = policy, scenario
        self.seed = integer_at_least(0, "seed", seed)
        self._server = make_server_optimizer(server)
        if compressor is None and scenario.compression.startswith("bits:"):
            raise ValueError(
                f"the scenario's compression is {scenario.compression!r}, of a compressor of one's "
                "own: give it, compressor=…"
            )
        self._compressor = compressor or make_compressor(scenario.compression)
        self._broadcast = make_compressor(scenario.download_compression)
        self._kept: dict[str, Tensor] = {}
        self._measure_gains = measure_gains
        self._log = None if log is None else Path(log)
        self._wait = finite_or_zero("wait", wait)
        self._env = FLEdgeEnv(scenario)
        self._observation, _ = self._env.reset(seed=self.seed)
        self._nodes: list[int] = []
        self._round: _Round | None = None

    def initial_arrays(self, task: Task) -> ArrayRecord:
        """The model that an episode of this seed begins with, for `start`.

        A task that does not fit the scenario is a `ValueError`.
        """
        task.check_fit(self.scenario)
        return named(task.initial_model(TrainingSeeds.of(self._env.training_seed).model))

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        *arguments: Any,
        **options: Any,
    ) -> Result:
        """Run the federation, for no more rounds than the scenario has; see Flower's `Strategy`."""
        if num_rounds > self.scenario.num_rounds:
            raise ValueError(
                f"num_rounds must be at most the scenario's {self.scenario.num_rounds}, "
                f"got {num_rounds}: use scenario.replace(num_rounds={num_rounds})"
            )
        return super().start(grid, initial_arrays, num_rounds, *arguments, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Decide a round, and give the messages to its participants; see Flower's `Strategy`.

        With round 1 an episode begins.

        Raises
        ------
        ValueError
            If rounds are left out, or the clients are not the devices 0 to N - 1.
        """
        if server_round == 1:
            self._begin(arrays, config, grid)
        elif server_round != self._env.simulator.round_index + 1:
            raise ValueError(
                f"rounds must follow each other from 1 on: expected "
                f"{self._env.simulator.round_index + 1}, got {server_round}"
            )
        if self._measure_gains is not None:
            self._env.simulator.measure(self._measure_gains(grid, list(self._nodes)))
            self._observation = self._env.simulator.observe()
        shape = self._observation["queue"].shape
        decision = self.policy.decide(self._observation).of_shape(shape)
        self._observation, _, _, _, info = self._env.step(decision)
        came = contributions(decision, info, self.scenario)
        epochs = self.scenario.local_epochs
        weights = came.weight * self._server.balance(epochs, self.scenario.num_samples)
        packed, received = self._sent(server_round, arrays)
        self._round = _Round(
            server_round,
            arrays,
            received,
            came.participants,
            weights[came.arrived],
            info,
        )
        settings = {"frequency": decision.f, "power": decision.p, "local-epochs": epochs}
        if decision.bandwidth is not None:
            settings["bandwidth"] = decision.bandwidth
        common = dict(config) | {
            "compression": self.scenario.compression,
            "download-compression": self.scenario.download_compression,
        }
        return self._messages(self._round, ConfigRecord(common), settings, packed)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """The next global model, and the costs of the round; see Flower's `Strategy`.

        Returns
        -------
        arrays : ArrayRecord
            The new model; the old one if nobody replied.
        metrics : MetricRecord
            ``round-time`` and ``elapsed-time`` [s], ``energy-spent`` of all devices together [J],
            ``mean-queue`` [J], the ``participants`` whose update arrived, the ``weights`` of their
            updates, the ``missing`` devices, whose reply did not arrive though nothing in the
            scenario kept it from doing so, and the mean ``train-loss`` over the samples if all
            participants report one.

        Raises
        ------
        ValueError
            If a reply does not have what the class describes.
        FloatingPointError
            If a device's update is not finite, or the new model is not.
        """
        if self._round is None or self._round.number != server_round:
            raise ValueError(f"round {server_round} was not configured before its replies came")
        sent, self._round = self._round, None
        received, reasons = self._received(sent, replies)
        arrived = np.isin(sent.participants, list(received))
        participants, weights = sent.participants[arrived], sent.weights[arrived]
        missing = sent.participants[~arrived]
        info = sent.info
        if len(missing):
            reason = "".join(f"; device {device}: {text}" for device, text in reasons.items())
            warnings.warn(
                f"no update from device {', '.join(map(str, missing))} in round {server_round}: it "
                f"is left out, and the weights of the others stay as they are{reason}",
                RuntimeWarning,
                stacklevel=2,
            )
            lost = "late" if self.scenario.deadline_s < math.inf else "failed"
            info[lost] = info.get(lost, np.zeros(self.scenario.num_devices, bool)).copy()
            info[lost][missing] = True
        replied = [received[int(n)] for n in participants]
        updates, metrics = [reply.update for reply in replied], [one.metrics for one in replied]
        arrays, norms = sent.arrays, np.empty(0, dtype=np.float32)
        if updates:
            together = torch.from_numpy(np.stack(updates))
            arrays, norms = self._moved(sent, together, weights), norms_of(together)
        info |= {"participants": participants, "update_norms": norms}
        if self.policy.uses_losses:
            for name in ("local-loss", "local-loss-rms"):
                pairs = zip(participants, metrics, strict=True)
                told = [reported(*pair, name) for pair in pairs]
                info[_LOSSES[name]] = np.array(told, dtype=np.float64)
        record: dict[str, Any] = {
            "round-time": float(info["round_time"]),
            "elapsed-time": float(info["elapsed_time"]),
            "energy-spent": float(np.sum(info["energy_spent"])),
            "mean-queue": float(np.mean(self._env.simulator.queue)),
            "participants": participants.tolist(),
            "weights": weights.tolist(),
            "missing": missing.tolist(),
        }
        if metrics and all("train-loss" in one for one in metrics):
            losses = [float(one["train-loss"]) for one in metrics]
            record["train-loss"] = float(
                np.average(losses, weights=self.scenario.num_samples[participants])
            )
        if self._log is not None:
            rows = zip(participants.tolist(), replied, strict=True)
            append_rows(self._log, (self._row(server_round, *row) for row in rows))
        self._tell(info)
        return arrays, MetricRecord(record)

    def configure_evaluate(self, *_: Any, **__: Any) -> Iterable[Message]:
        """No messages: models are evaluated by the server, see `evaluation`."""
        return []

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        """None, as no client evaluates."""
        return None

    def summary(self) -> None:
        """Log what is about to run."""
        logging.getLogger("flwr").info(
            "\t└──> %s decides on %d devices, seed %d",
            self.policy.name,
            self.scenario.num_devices,
            self.seed,
        )

    def _begin(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Start an episode."""
        for name, array in arrays.items():
            if array.numpy().dtype.kind != "f":
                raise ValueError(
                    f"all arrays of the model must be floating-point numbers, got {name} of "
                    f"{array.dtype}: leave out counters and the like"
                )
        if self._log is not None:
            begin_log(self._log)
        self._kept = {}
        self._nodes = find_devices(grid, self.scenario.num_devices, self._wait)
        self.policy.reset(policy_seed(self.seed))
        self._observation, info = self._env.reset(seed=self.seed)
        nobody = np.arange(0)
        if self.policy.uses_losses:
            info |= {name: np.empty(0) for name in _LOSSES.values()} | {"participants": nobody}
        if self.policy.uses_update_norms:
            info |= self._first_norms(arrays, config, grid)
        self._tell(info)

    def _row(self, number: int, device: int, reply: Reply) -> dict[str, Any]:
        """A participation for the log, with whatever else the client reports."""
        samples = reply.metrics.get("num-examples", self.scenario.num_samples[device])
        return dict(reply.metrics) | {
            "round": number,
            "device": device,
            "samples": samples,
            "epochs": self.scenario.local_epochs[device],
            "parameters": len(reply.update),
            "bytes_up": reply.bytes_up,
        }

    def _tell(self, info: dict[str, Any]) -> None:
        """Let the policy learn from what is no longer needed here."""
        freeze(info.values())
        self.policy.feedback(info)

    def _first_norms(
        self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> dict[str, NDArray[Any]]:
        """Norms of the updates that all devices would have in the first round."""
        everyone = np.arange(self.scenario.num_devices)
        sent = _Round(1, arrays, arrays, everyone, np.empty(0), {})
        scenario = self.scenario
        settings = {
            "frequency": scenario.f_mid,
            "power": scenario.p_mid,
            "local-epochs": scenario.local_epochs,
        }
        # Norms are those of updates as they are: nothing of these is uploaded.
        config = ConfigRecord(dict(config) | {"compression": AS_IT_IS})
        messages = self._messages(sent, config, settings, None)
        received, _ = self._received(sent, grid.send_and_receive(messages, timeout=self._wait))
        if missing := sorted(set(everyone.tolist()) - set(received)):
            raise RuntimeError(
                f"{self.policy.name} needs the norm of every device's first update, and device "
                f"{', '.join(map(str, missing))} did not reply within {self._wait:g} s"
            )
        rows = [torch.from_numpy(received[int(n)].update[None]) for n in everyone]
        norms = np.concatenate([norms_of(row) for row in rows])
        return {"participants": everyone, "update_norms": norms.astype(np.float64)}

    def _moved(self, sent: _Round, updates: Tensor, weights: FloatArray) -> ArrayRecord:
        """The model after a round."""
        old = {name: array.numpy() for name, array in sent.arrays.items()}
        model = torch.from_numpy(np.concatenate([values.ravel() for values in old.values()]))
        apply_contributions(model, updates, weights, self._server, self._kept, sent.number)
        return like(sent.arrays, model.numpy())

    def _sent(self, number: int, arrays: ArrayRecord) -> tuple[bytes | None, ArrayRecord]:
        """The model as it is sent where it is compressed, and what the devices make of it."""
        if self._broadcast is None:
            return None, arrays
        model = [array.numpy() for array in arrays.values()]
        uploads = Uploads([part.shape for part in model], self._broadcast)
        rng = TrainingSeeds.of(self._env.training_seed).broadcast(number - 1)
        flat = np.concatenate([part.ravel() for part in model]).astype(np.float32)
        packed = uploads.encoded(flat, rng)
        return packed, like(arrays, uploads.decoded(packed))

    def _messages(
        self,
        sent: _Round,
        config: ConfigRecord,
        settings: dict[str, FloatArray],
        packed: bytes | None,
    ) -> list[Message]:
        seed = self._env.training_seed
        common = dict(config) | {
            "server-round": sent.number,
            "num-rounds": self.scenario.num_rounds,
            "report-losses": self.policy.uses_losses,
            "training-entropy": str(seed.entropy),
            "training-key": list(seed.spawn_key),
        }
        messages = []
        for device in sent.participants:
            told = common | {name: float(values[device]) for name, values in settings.items()}
            content = RecordDict({"config": ConfigRecord(told)})
            if packed is None:
                content["arrays"] = sent.arrays
            else:
                content["packed"] = ConfigRecord({"model": packed})
            messages.append(Message(content, self._nodes[device], MessageType.TRAIN))
        return messages

    def _received(
        self, sent: _Round, replies: Iterable[Message]
    ) -> tuple[dict[int, Reply], dict[int, str]]:
        """The replies of the devices that sent an update, and the errors of others."""
        device_of = {self._nodes[device]: int(device) for device in sent.participants}
        received, reasons = {}, {}
        for reply in replies:
            device = device_of[reply.metadata.src_node_id]
            if reply.has_error():
                reasons[device] = str(reply.error.reason)
            else:
                received[device] = read_reply(
                    device, sent.number, sent.received, reply.content, self._compressor
                )
        return received, reasons


# What clients call the losses that policies ask for, and what the info of a round calls them.
_LOSSES = {"local-loss": "local_losses", "local-loss-rms": "local_loss_rms"}


def evaluation(task: Task) -> Callable[[int, ArrayRecord], MetricRecord]:
    """A function that evaluates a global model on the task's test set, for `Strategy.start`.

    It takes the number of a round and the model, and gives ``test-loss`` and ``test-accuracy``.
    """
    model, dataset = new_model(task.make_model), task.dataset
    trainer = LocalTrainer(model, task.options)
    test = dataset.test_inputs, dataset.test_targets

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:  # noqa: ARG001 - Flower's
        loss, outputs = trainer.evaluate(flat(arrays, model), *test)
        right = outputs.argmax(dim=1) == test[1]
        return MetricRecord({"test-loss": loss, "test-accuracy": float(right.double().mean())})

    return evaluate

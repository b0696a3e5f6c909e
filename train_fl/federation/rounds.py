"""The rounds of a federation, played on a scenario: what its strategies have in common."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_edge_env import Allocation, FLEdgeEnv, Scenario
from fl_edge_env.aggregation import contributions
from fl_edge_env.checks import finite_or_zero, is_integer, natural_number
from policies.base import check_scenario
from policies.benchmark.episode import Records
from policies.benchmark.summary import summarise
from train_fl.federation.messages import DEVICE, Read, read_replies


class EmulatedStrategy(Strategy):
    """A strategy of Flower whose rounds take the time and energy that a scenario says."""

    name: str  # of the run in `result`

    def __init__(self, scenario: Scenario, seed: int, wait: float = 300.0) -> None:
        check_scenario(scenario)
        self.scenario, self.seed = scenario, natural_number("seed", seed)
        self._wait = finite_or_zero("wait", wait)
        self._env, self._records = FLEdgeEnv(scenario), Records(scenario, 1, None)
        self._observation, _ = self._env.reset(seed=self.seed)

    @property
    def result(self) -> pd.DataFrame:
        """The run so far in one row, as `policies.evaluate` gives it.

        One run cannot tell the status, which is a dash. In the influence the update of a device
        counts by its samples, or by its draws.
        """
        if not self._records.num_rounds:
            raise ValueError("there is no result before the first round: call start")
        return summarise(self._records.table(self.name, [self.seed])).assign(status="–")

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, **options: Any
    ) -> Result:
        """Run the federation, for no more rounds than the scenario has; see Flower's `Strategy`."""
        if num_rounds > self.scenario.num_rounds:
            raise ValueError(
                f"num_rounds must be at most the scenario's {self.scenario.num_rounds}, "
                f"got {num_rounds}: use scenario.replace(num_rounds={num_rounds})"
            )
        return self._run(grid, initial_arrays, num_rounds, **options)

    _run = Strategy.start

    def configure_evaluate(self, *_: Any, **__: Any) -> Iterable[Message]:
        """No messages: the server evaluates models, see `evaluation`."""
        return []

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        """None, as no client evaluates."""
        return None

    def summary(self) -> None:
        """Log what is about to run."""
        logging.getLogger("flwr").info("\t└──> %s, seed %d", self.name, self.seed)

    def _begin(self, grid: Grid) -> None:
        """Start an episode, and ask the nodes which device each is."""
        self._observation, _ = self._env.reset(seed=self.seed)
        self._records = Records(self.scenario, 1, None)
        count, deadline = self.scenario.num_devices, time.monotonic() + self._wait
        while len(nodes := list(grid.get_node_ids())) < count and time.monotonic() < deadline:
            time.sleep(0.2)
        if len(nodes) != count:
            raise ValueError(
                f"the scenario has {count} devices and the federation {len(nodes)} nodes after "
                f"{self._wait:g} s: start as many, in a simulation by "
                f"--federation-config num-supernodes={count}"
            )
        asked = [Message(RecordDict(), node, MessageType.QUERY) for node in nodes]
        replies = grid.send_and_receive(asked, timeout=self._wait)
        device_of, reasons = read_replies(replies, nodes, self._device)
        self._strangers = "; ".join(f"node {node}: {why}" for node, why in reasons.items())
        self._nodes = {device: node for node, device in device_of.items()}
        if not 0 < len(device_of) == len(self._nodes):
            raise ValueError(
                f"each node needs a {DEVICE} of its own, which device_reply says, got "
                f"{list(device_of.values())}{self._strangers and '; ' + self._strangers}"
            )

    def _device(self, reply: Message) -> int:
        """Which device a node says that it is."""
        device: object = reply.content.get("metrics", {}).get(DEVICE)
        last = self.scenario.num_devices - 1
        if not is_integer(device) or not 0 <= device <= last:
            raise ValueError(f"its {DEVICE} must be an integer from 0 to {last}, got {device!r}")
        return device

    def _play(self, decision: Allocation) -> None:
        """Play a round, and note whose updates arrive if their clients reply."""
        self._decision = decision
        self._observation, self._reward, _, _, self._info = self._env.step(decision)
        self._expected = contributions(decision, self._info, self.scenario)

    def _close(
        self, number: int, replies: Iterable[Message], read: Callable[[Message], Read]
    ) -> tuple[dict[int, Read], dict[str, Any]]:
        """End a round: what is read of the replies that count, by device, and the metrics.

        A device that is missing is late if the scenario has a deadline, and has failed otherwise.
        """
        received = self._read(number, self._expected.participants.tolist(), replies, read)
        missing, account = self._expected.arrived.copy(), self._env.last_round.account()
        missing[list(received)] = False
        if missing.any():
            lost = "late" if self.scenario.deadline_s < math.inf else "failed"
            now = {lost: missing | self._info.get(lost, np.False_)}
            self._info, account = self._info | now, account | now
        self._records.add(self._decision, self._observation, self._reward, account, 0.0)
        last = self._records.table(self.name, [self.seed]).iloc[-1]
        return received, {
            "round-time": float(last["round_time"]),
            "elapsed-time": float(last["elapsed_time"]),
            "energy-spent": float(np.sum(account["energy_spent"])),
            "worst-spent-ratio": float(last["worst_spent_ratio"]),
            "participants": list(received),
            "missing": np.flatnonzero(missing).tolist(),
            "late": np.flatnonzero(account.get("late", ())).tolist(),
            "failed": np.flatnonzero(account.get("failed", ())).tolist(),
        }

    def _read(
        self,
        number: int,
        devices: Iterable[int],
        replies: Iterable[Message],
        read: Callable[[Message], Read],
    ) -> dict[int, Read]:
        """What is read of the replies of devices, by device, and a warning for each other one."""
        nodes = {device: self._nodes.get(device, -1) for device in devices}
        received, reasons = read_replies(replies, nodes.values(), read)
        reasons[-1] = self._strangers
        for device, node in nodes.items():
            if node not in received:
                message = f"no update from device {device} in round {number}: {reasons[node]}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
        return {device: received[node] for device, node in nodes.items() if node in received}

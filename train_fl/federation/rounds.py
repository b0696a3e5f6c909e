"""The emulated rounds of a federation, shared by its strategies."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fl_edge_env import Allocation, FLEdgeEnv, Scenario
from fl_edge_env.aggregation import contributions
from fl_edge_env.checks import finite_or_zero, is_integer, natural_number
from policies.base import check_scenario
from policies.benchmark.bounds import find_prices, price_round
from policies.benchmark.records import Recorder
from policies.benchmark.status import judge
from policies.benchmark.summary import labelled, summarise, weights_until
from train_fl.federation.messages import DEVICE, named, read_replies
from train_fl.task import Task, TrainingSeeds


class _Env(FLEdgeEnv):
    """Also plays rounds without participants, whose action is None."""

    def _decide(self, action: Any) -> Allocation:
        if action is None:
            return Allocation(self.scenario.f_min, self.scenario.p_min, cohort=[-1])
        return super()._decide(action)


class EmulatedRounds:
    """Rounds of a federation with the times and energies of a scenario."""

    name: str  # names the run in `result`
    _run: Callable[..., Result]
    _reply: Callable[[Message], Any]  # reads a reply; raises if it is unusable

    def __init__(self, scenario: Scenario, seed: int, wait: float) -> None:
        check_scenario(scenario)
        self.scenario = scenario
        self.seed = natural_number("seed", seed)
        self._wait = finite_or_zero("wait", wait)
        self._env = _Env(scenario)
        self._prices = find_prices(scenario, bounded=False)
        self._recorder = Recorder(scenario, [self.seed])
        self._env.reset(seed=self.seed)  # which gives the seed of training

    @property
    def result(self) -> pd.DataFrame:
        """The run so far as one row of the table of `policies.evaluate`.

        The status and the influence assume that updates are weighted by samples, or by draws in
        sampled decisions.
        """
        if not self._recorder.num_rounds:
            raise ValueError("there is no result before the first round: call start")
        accounts = self._recorder.accounts()
        rounds = labelled("policy", [(self.name, self._recorder.table())])
        status = judge(accounts, weights_until(rounds, None)[self.name])
        return summarise(rounds, {self.name: accounts}, {self.name: status})

    @property
    def train_config(self) -> ConfigRecord:
        """The entries that `train_reply` needs in a Flower strategy's ``train_config``."""
        seed = self._env.training_seed
        return ConfigRecord(
            {
                "num-rounds": self.scenario.num_rounds,
                "local-epochs": self.scenario.local_epochs.tolist(),
                "training-entropy": str(seed.entropy),
                "training-key": list(seed.spawn_key),
            }
        )

    def initial_arrays(self, task: Task) -> ArrayRecord:
        """The initial model of an episode; `ValueError` if the task does not fit the scenario."""
        task.check_fit(self.scenario)
        return named(task.initial_model(TrainingSeeds.of(self._env.training_seed).model))

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *rest: Any, **named: Any
    ) -> Result:
        """Run the federation for at most the scenario's rounds; see Flower's `Strategy`."""
        if num_rounds > self.scenario.num_rounds:
            raise ValueError(
                f"num_rounds must be at most the scenario's {self.scenario.num_rounds}, "
                f"got {num_rounds}: use scenario.replace(num_rounds={num_rounds})"
            )
        return self._run(grid, initial_arrays, num_rounds, *rest, **named)

    def _begin(self, grid: Grid) -> None:
        """Start an episode, and query the nodes' device numbers."""
        self._observation, _ = self._env.reset(seed=self.seed)
        self._recorder = Recorder(self.scenario, [self.seed])
        self._wait_for_nodes(grid)
        self._strangers = dict[int, str]()
        self._node_of = dict[int, int]()
        self._asked = set[int]()
        devices = self._meet(grid)
        if not 0 < len(self._node_of) == len(devices):
            raise ValueError(
                f"each node must report a different {DEVICE}: start a node for each of the "
                f"{self.scenario.num_devices} devices, whose client app has "
                f"app.query()(device_reply), got {sorted(devices)}, and from "
                f"{len(self._strangers)} other nodes {[*self._strangers.values()][:1]}"
            )

    def _wait_for_nodes(self, grid: Grid) -> None:
        """Wait until there are as many nodes as devices, or the time is up."""
        count = self.scenario.num_devices
        deadline = time.monotonic() + self._wait
        before = -1
        while time.monotonic() < deadline:
            connected = len(list(grid.get_node_ids()))
            if connected >= count:
                break
            if connected != before:
                logging.getLogger("flwr").info(
                    "%d nodes for %d devices: waiting up to %g s for more, then the run starts "
                    "without them; a simulation needs --federation-config num-supernodes=%d",
                    connected,
                    count,
                    self._wait,
                    count,
                )
            before = connected
            time.sleep(0.2)

    def _meet(self, grid: Grid) -> Collection[int]:
        """Ask new nodes, such as restarted clients, for their device numbers.

        The newest node of a device replaces an older one, which may stay connected for a while.
        """
        nodes = sorted({*grid.get_node_ids()} - self._asked)
        if not nodes:
            return ()
        self._asked.update(nodes)
        asked = [Message(RecordDict(), node, MessageType.QUERY) for node in nodes]
        replies = grid.send_and_receive(asked, timeout=self._wait)
        device_of, strangers = read_replies(replies, nodes, self._device)
        self._strangers |= strangers
        self._node_of |= {device: node for node, device in device_of.items()}
        self._device_of = {node: device for device, node in self._node_of.items()}
        free = sorted({*range(self.scenario.num_devices)} - {*self._node_of})
        logging.getLogger("flwr").log(
            logging.WARNING if strangers or free else logging.INFO,
            "devices of new nodes: %s; new nodes that get no messages: %s; "
            "devices that take no part until a node reports their number: %s",
            device_of,
            strangers,
            free,
        )
        return device_of.values()

    def _device(self, reply: Message) -> int:
        """The device number that a node reports."""
        device: object = reply.content.get("metrics", {}).get(DEVICE)
        last = self.scenario.num_devices - 1
        if not is_integer(device) or not 0 <= device <= last:
            raise ValueError(f"its {DEVICE} must be an integer from 0 to {last}, got {device!r}")
        return device

    def _play(self, decision: Any) -> None:
        """Play a round, and record whose updates arrive if all clients reply.

        The decision is an `Allocation`, or None if nobody takes part.
        """
        self._observation, self._reward, _, _, self._info = self._env.step(decision)
        decision = self._env.last_decision
        self._decision = decision
        self._expected = contributions(decision, self._info, self.scenario)

    def _close(
        self, number: int, replies: Iterable[Message]
    ) -> tuple[dict[int, Any], dict[str, Any]]:
        """End a round; return the replies as read, by device, and the metrics.

        A missing device counts as late if the scenario has a deadline, and otherwise as failed.
        """
        participants = self._expected.participants.tolist()
        nodes = {self._node_of.get(device, -1 - device): device for device in participants}
        read_of, reasons = read_replies(replies, nodes, self._reply)
        for node, why in reasons.items():
            why = why if node in self._device_of else f"no node has its number: {self._strangers}"
            warnings.warn(
                f"no update from device {nodes[node]} in round {number}: {why}",
                RuntimeWarning,
                stacklevel=3,
            )
        received = {nodes[node]: result for node, result in read_of.items()}
        return received, self._account(received)

    def _account(self, received: Collection[int]) -> dict[str, Any]:
        """Record a round in which these devices' updates were received; return its metrics."""
        missing = self._expected.arrived.copy()
        account = emulated = self._env.last_round.account()
        missing[list(received)] = False
        if missing.any():
            lost = "late" if self.scenario.deadline_s < math.inf else "failed"
            now = {lost: missing | self._info.get(lost, np.False_)}
            self._info = self._info | now
            account = account | now
        priced = price_round(self._decision, account, self._prices, self.scenario)
        self._recorder.add(self._decision, self._observation, self._reward, account, 0.0, priced)
        last = self._recorder.table().iloc[-1]
        return {
            "round-time": float(last["round_time"]),
            "elapsed-time": float(last["elapsed_time"]),
            "energy-spent": float(np.sum(account["energy_spent"])),
            "worst-spent-ratio": float(last["worst_spent_ratio"]),
            "participants": sorted(received),
            "missing": np.flatnonzero(missing).tolist(),
            "late": np.flatnonzero(emulated.get("late", ())).tolist(),
            "failed": np.flatnonzero(emulated.get("failed", ())).tolist(),
        }

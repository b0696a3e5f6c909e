"""Any Flower strategy under a scenario's clock."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import one_of
from policies.global_random import seeded
from policies.resources import RESOURCES, ResourceName, ResourceRule
from train_fl.federation.messages import flat, usable
from train_fl.federation.rounds import EmulatedRounds

_WRAPPED = "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"


class Clocked(EmulatedRounds):
    """Runs a Flower strategy with the round times and energies of a scenario.

    The devices to which the strategy sends messages form the cohort of the round. If there are more
    than K, they split the band evenly, and the run has no priced time. A device that is
    unavailable, or whose upload fails in the emulation, gets no message. A round in which nobody
    takes part takes no time. The strategy does not see replies that are late or fail, in the
    emulation or in reality, nor unusable ones. A reply must satisfy these rules:

    - its arrays have the shapes of the arrays in its message, and the update is finite. Arrays of
      bytes, such as XGBoost's trees, are not checked;
    - the metric that weights replies is positive, and ``train-loss`` is finite.

    The metrics of a round also contain the clock's metrics. The strategy's public attributes can be
    read and set on this object as well.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        A Flower strategy, such as ``FedAvg(fraction_train=0.1)``.
    scenario : Scenario
        The emulated system, with one device for each client.
    seed : int
        Seed of the channel and the failures, as in `FLEdgeEnv.reset`, and of the cohorts that the
        strategy samples by Python's `random`, as Flower's strategies do.
    resources : {"static", "dynamic", "static-shared", "dynamic-shared"} or callable
        How f, p and bandwidths are set, as in `policies.selection.Scheduler`.
    wait : float
        How long the server waits for a client for each device [s].
    """

    def __init__(
        self,
        strategy: Strategy,
        scenario: Scenario,
        *,
        seed: int = 0,
        resources: ResourceName | ResourceRule = "static",
        wait: float = 300.0,
    ) -> None:
        super().__init__(scenario, seed, wait)
        if not isinstance(strategy, Strategy) or isinstance(strategy, EmulatedRounds):
            raise ValueError(
                "strategy must be a Strategy of flwr.serverapp.strategy without a clock, such as "
                f"FedAvg(), got {strategy!r}"
            )
        if not callable(resources):
            resources = RESOURCES[one_of("resources", resources, tuple(RESOURCES))]
        self._rule = resources
        self.name = type(strategy).__name__
        self._systems = {scenario.cohort_size: scenario}
        self._own = _methods(strategy)
        self.strategy = strategy  # last, as what is set later may be the strategy's

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the strategy, such as its evaluation."""
        return getattr(vars(self).get("strategy"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the strategy's public attributes there, such as its fractions, and others here."""
        strategy = vars(self).get("strategy")
        own = name in vars(self) or name.startswith("_")
        object.__setattr__(self if own or not hasattr(strategy, name) else strategy, name, value)

    def _run(self, *arguments: Any, **options: Any) -> Result:
        """Run the strategy's own `start`, with the rounds of this object."""
        strategy = self.strategy
        self._own = _methods(strategy)
        # The patch restores methods that were set on the strategy itself.
        with patch.multiple(strategy, **_methods(self)):
            return strategy.start(*arguments, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Play a round with the strategy's cohort; return the messages to send."""
        if server_round == 1:
            self._begin(grid)
        messages = self._messages("configure_train", server_round, arrays, config, grid)
        self._meet(grid)
        sent = self._by_node(messages, server_round)
        self._sent = {node: _first(one.content.array_records) for node, one in sent.items()}
        available = self._observation.get("available", np.ones(self.scenario.num_devices))
        devices = [self._device_of[node] for node in sent if node in self._device_of]
        self._cohort = [device for device in devices if available[device]]
        self._play(self._decided(self._cohort) if self._cohort else None)
        failed = np.flatnonzero(self._info.get("failed", ()))
        return [sent[self._node_of[device]] for device in self._cohort if device not in failed]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the usable replies in time with the strategy; add the clock's metrics."""
        received, clock = self._close(server_round, replies)
        replies = [received[device] for device in self._cohort if device in received]
        arrays, metrics = self._own["aggregate_train"](server_round, replies)
        return arrays, MetricRecord({**(metrics or {}), **clock})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the strategy's messages for evaluation."""
        return self._messages("configure_evaluate", server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the evaluations with the strategy."""
        ordered = sorted(replies, key=lambda reply: self._place(reply.metadata.src_node_id))
        return self._own["aggregate_evaluate"](server_round, ordered)

    def _messages(self, method: str, server_round: int, *arguments: Any) -> list[Message]:
        """The strategy's messages, which follow from seed, round and devices.

        Flower numbers nodes anew in each run, and strategies sample from their list by `random`,
        which Flower also uses at other times. It continues afterwards as before.
        """
        grid = arguments[-1]
        listed = grid.get_node_ids
        calls = itertools.count()

        def nodes() -> list[int]:
            known = (node for node in listed() if node not in self._strangers)
            ordered = sorted(known, key=self._place)
            random.seed(f"{self.seed} {server_round} {method} {next(calls)}")
            return ordered

        with seeded(self.seed, server_round), patch.object(grid, "get_node_ids", nodes):
            return list(self._own[method](server_round, *arguments))

    def _by_node(self, messages: list[Message], server_round: int) -> dict[int, Message]:
        """The messages by node; raises if nodes are repeated or unknown."""
        nodes = [message.metadata.dst_node_id for message in messages]
        wrong = {n for n in nodes if n not in self._asked or nodes.count(n) > 1}
        if wrong:
            raise ValueError(
                f"a strategy must send at most one message to each node in a round, got "
                f"{len(nodes)} in round {server_round}, but nodes {sorted(wrong)} are repeated or "
                "unknown: use nodes of grid.get_node_ids()"
            )
        return dict(zip(nodes, messages, strict=True))

    def _place(self, node: int) -> int:
        """The place of a node among others: its device number, and the last if it has none."""
        return self._device_of.get(node, self.scenario.num_devices)

    def _reply(self, reply: Message) -> Message:
        """The reply itself; raises if the strategy cannot use it."""
        weight = getattr(self.strategy, "weighted_by_key", None)
        sent = self._sent[reply.metadata.src_node_id]
        given = _first(reply.content.array_records)
        if any(array.dtype != "uint8" for array in sent.values()):
            model = flat(sent, sent)
            metrics = {weight: None, **_first(reply.content.metric_records)}  # the weight is needed
            usable(flat(given, sent) - model, model, metrics, weight or "num-examples")
        return reply

    def _decided(self, cohort: list[int]) -> Allocation:
        """The decision for a cohort, with f and p of the resources' rule."""
        system = self._system_for(len(cohort))
        self._env.simulator.scenario = system
        members = np.isin(np.arange(system.num_devices), cohort)
        gain = self._observation["channel_gain"]
        f, p, *bandwidth = self._rule(gain, self._observation["queue"], system, members)
        return Allocation(f, p, cohort=cohort, bandwidth=bandwidth[0] if bandwidth else None)

    def _system_for(self, devices: int) -> Scenario:
        """The scenario; for more than K devices, with a larger K and the same noise density."""
        scenario = self.scenario
        size = max(devices, scenario.cohort_size)
        if size not in self._systems:
            if len(self._systems) == 1:
                warnings.warn(
                    f"{size} devices take part, so each has 1/{size} of the band, and the run has "
                    f"no priced time: the scenario has cohort_size={scenario.cohort_size}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            noise = scenario.noise_power_w * scenario.cohort_size / size
            fixed = {"V": scenario.V, "lambda_": scenario.lambda_, "noise_power_w": noise}
            with warnings.catch_warnings(action="ignore"):  # these concern sampled decisions
                self._systems[size] = scenario.replace(cohort_size=size, **fixed)
        return self._systems[size]


def _methods(strategy: Any) -> dict[str, Any]:
    """The methods of a strategy that a clock wraps."""
    return {name: getattr(strategy, name) for name in _WRAPPED}


def _first(records: Mapping[str, Any]) -> Any:
    """The first record, or an empty one; Flower's strategies send and expect one of a kind."""
    return next(iter(records.values()), {})


Strategy.register(Clocked)  # for isinstance, without inheriting any attributes

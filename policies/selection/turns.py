"""Selectors that ignore channels and queues: random, and in turns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario
from fl_edge_env.typing import Info, IntArray
from policies.selection.selector import Candidates, Selector, smallest


class Random(Selector):
    """K distinct random devices, each with the same probability.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017.
    """

    def select(self, candidates: Candidates) -> IntArray:
        """Draw the cohort; see `Selector.select`."""
        return smallest(candidates.uniform, candidates.available, self.scenario.cohort_size)


class OverSelection(Random):
    """Draw K distinct random devices; only the first to finish count.

    The server continues once K / 1.3 of them, rounded up, have finished; below K = 5 this is K.
    The others are late: they have spent energy until then, and their updates are lost. They are
    always the slow devices. Devices that finish at the same time, up to rounding, all count. If a
    cohort finishes together, as with ``"dynamic"`` resources, over-selection gains little: use
    ``"static"`` ones.

    Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019, draw 1.3
    times as many devices as they need. Here K are drawn, because the band has K parts.
    """

    name = "Over-selection"

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.first = math.ceil(10 * scenario.cohort_size / 13)


class RoundRobin(Selector):
    """The K devices that have waited longest, so that all take part in turns.

    Of devices that have waited equally long, those with the fewest turns come first.

    Yang et al., "Scheduling policies for federated learning in wireless networks", IEEE
    Transactions on Communications, 2020.
    """

    name = "Round robin"

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Begin with no turns and waiting times of zero; see `Selector.start`."""
        zero = np.zeros((*batch, self.scenario.num_devices), dtype=np.int64)
        return {"waited": zero, "turns": zero}

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the devices that have waited longest; see `Selector.select`."""
        turns = self.memory["turns"]
        fraction = turns / (1.0 + turns.max(axis=-1, keepdims=True))  # less than a round
        order = fraction - self.memory["waited"]
        return smallest(order, candidates.available, self.scenario.cohort_size)

    def learn(self, info: Info) -> None:
        """Count the rounds since each device took part or was late; see `Selector.learn`."""
        if "energy_spent" in info:
            turn = (np.asarray(info["energy_spent"]) > 0) | info.get("late", False)
            self.memory["waited"] = np.where(turn, 0, self.memory["waited"] + 1)
            self.memory["turns"] = self.memory["turns"] + turn

"""Selectors that look at no device: by lot, and in turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.typing import IntArray
from policies.selection.selector import Candidates, Selector, smallest


class Random(Selector):
    """K distinct devices by lot, each with the same chance.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017.
    """

    def select(self, candidates: Candidates) -> IntArray:
        """Draw the cohort; see `Selector.select`."""
        return smallest(candidates.uniform, candidates.available, self.scenario.cohort_size)


class RoundRobin(Selector):
    """The K devices that have waited longest, so that all take part in turns.

    Yang et al., "Scheduling policies for federated learning in wireless networks", IEEE
    Transactions on Communications, 2020.
    """

    name = "Round robin"

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Nobody has waited yet; see `Selector.start`."""
        return {"waited": np.zeros((*batch, self.scenario.num_devices), dtype=np.int64)}

    def select(self, candidates: Candidates) -> IntArray:
        """Choose those who have waited longest; see `Selector.select`."""
        waited = self.memory["waited"].astype(np.float64)
        return smallest(-waited, candidates.available, self.scenario.cohort_size)

    def learn(self, info: Mapping[str, Any]) -> None:
        """Count the rounds since each device took part last; see `Selector.learn`."""
        if "energy_spent" in info:
            waited = self.memory["waited"] + 1
            self.memory["waited"] = np.where(info["energy_spent"] > 0, 0, waited)

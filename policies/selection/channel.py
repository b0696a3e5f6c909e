"""Selectors that use the channel: gains, gains relative to their means, and times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.typing import IntArray
from policies.selection.selector import Candidates, Selector, smallest


class BestChannel(Selector):
    """The K devices with the largest channel gains."""

    name = "Best channel"

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the largest gains; see `Selector.select`."""
        return smallest(-candidates.channel_gain, candidates.available, self.scenario.cohort_size)


class ProportionalFair(Selector):
    """The K devices with the largest gains compared with their own averages.

    The average is over the gains observed so far. Devices whose gains differ only by a constant
    factor participate equally often.

    Yang et al., "Scheduling policies for federated learning in wireless networks", IEEE
    Transactions on Communications, 2020; after Viswanath, Tse and Laroia, "Opportunistic
    beamforming using dumb antennas", IEEE Transactions on Information Theory, 2002, who average
    over a sliding window.
    """

    name = "Proportional fair"

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Begin without known gains; see `Selector.start`."""
        return {"mean_gain": np.zeros((*batch, self.scenario.num_devices))}

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the largest relative gains; see `Selector.select`."""
        mean = self.memory["mean_gain"]
        gain = candidates.channel_gain
        mean = mean + (gain - mean) / candidates.number
        self.memory["mean_gain"] = mean
        return smallest(-gain / mean, candidates.available, self.scenario.cohort_size)


class Fastest(Selector):
    """The K devices that finish first, each at the resources it would get alone.

    After FedCS: Nishio and Yonetani, "Client selection for federated learning with heterogeneous
    resources in mobile edge", ICC 2019. In FedCS devices upload one after another, and the greedy
    choice takes as many as meet a deadline. Here the band is split into K parts, so a device's time
    does not depend on the others.
    """

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the shortest times; see `Selector.select`."""
        return smallest(candidates.time, candidates.available, self.scenario.cohort_size)

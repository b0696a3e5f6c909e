"""Greedy scheduling: the device that lengthens the round least, while it is worth that."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario, physics
from fl_edge_env.checks import finite_number
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.published.uploads import Cohort
from policies.resources import static_resources
from policies.selection.selector import Candidates, Selector


class GreedyLatency(Selector):
    """Devices one by one, that with which the round is shortest, while progress per time gains.

    Shi, Zhou, Niu, Jiang and Geng, "Joint device scheduling and resource allocation for latency
    constrained wireless federated learning", IEEE Transactions on Wireless Communications, 2021.
    The band is shared so that all finish together, which makes the round of a cohort the shortest.
    In an equal system devices have equal parts, and join in the order of their times.

    The rule is that of the abstract (arXiv 2007.07174), the only part that could be read: it "in
    each step selects the device consuming the least updating time obtained by the optimal bandwidth
    allocation, until the lower bound begins to increase". The abstract claims better accuracy than
    "state-of-the-art scheduling policies", without numbers. What is different here:

    - Their bound of the loss could not be read. In its place stands that of Li et al., "On the
      convergence of FedAvg on non-IID data", ICLR 2020, for m of N devices without replacement:
      rounds in proportion to ``1 + c (N - m) / (m (N - 1))``, times the round.
    - Theirs have given frequencies and powers. Here these are the static ones, whatever resources
      the cohort gets afterwards. By default these are static and shared, as the paper's.
    - At most K devices take part.

    Parameters
    ----------
    scenario : Scenario
        The system.
    heterogeneity : float
        The c of that bound: how many times as many rounds a single device needs beyond what all
        together need. The default is ours. At zero one device takes part.

    Raises
    ------
    ValueError
        If `heterogeneity` is negative or infinite.
    """

    name = "Greedy latency"
    resources = "static"

    def __init__(self, scenario: Scenario, *, heterogeneity: float = 10.0) -> None:
        super().__init__(scenario)
        self.heterogeneity = finite_number("heterogeneity", heterogeneity, zero_allowed=True)

    def select(self, candidates: Candidates) -> IntArray:
        """Add devices while they are worth it; see `Selector.select`."""
        gain, number = candidates.channel_gain, self.scenario.num_devices
        f, p = static_resources(gain, self.scenario)
        ready = self.scenario.waiting_time + physics.compute_time(f, self.scenario)
        members = np.zeros(gain.shape, dtype=np.bool_)
        least = np.full((*gain.shape[:-1], 1), np.inf)
        growing = np.ones(least.shape, dtype=np.bool_)
        for size in range(1, min(self.scenario.cohort_size, number) + 1):
            left = candidates.available & ~members
            growing &= left.any(axis=-1, keepdims=True)
            # Rows that are complete get anybody, who is not taken.
            longer, time = self._lengthen(gain, p, ready, members, left | ~growing)
            rounds = 1.0 + self.heterogeneity * (number - size) / (size * max(number - 1, 1))
            growing &= rounds * time < least
            if not growing.any():
                break
            least = np.where(growing, rounds * time, least)
            members = np.where(growing, longer, members)
        of = Cohort(gain, members, self.scenario)
        return np.where(of.real, of.index, -1)

    def _lengthen(
        self,
        gain: FloatArray,
        p: FloatArray,
        ready: FloatArray,
        members: BoolArray,
        left: BoolArray,
    ) -> tuple[BoolArray, FloatArray]:
        """Cohorts with the best one more, and their rounds [s]."""
        every = Cohort(gain, np.ones(gain.shape, dtype=np.bool_), self.scenario)
        devices = np.arange(gain.shape[-1])
        equal, whole = self.scenario.bandwidth_split == "equal", self.scenario.bandwidth_hz
        part = whole / self.scenario.cohort_size if equal else whole
        # To begin with, that which would be the fastest alone.
        key = ready + every.upload_time(p, np.full(gain.shape, part))
        joins = np.where(left, key, np.inf).argmin(axis=-1)[..., None]
        while True:
            longer = members | (devices == joins)
            of = Cohort(gain, longer, self.scenario)
            time, _ = of.together(of.take(p), of.take(ready))
            if equal:
                return longer, time
            # Another is better if and only if it could finish by then with less of the band: so
            # the time falls with each change, until nobody is.
            window = np.maximum(time - ready, 1e-300)
            need = np.minimum(every.band_at_power(window, p), 1e300)
            better = np.where(left, need, np.inf).argmin(axis=-1)[..., None]
            if np.array_equal(better, joins):
                return longer, time
            joins = better

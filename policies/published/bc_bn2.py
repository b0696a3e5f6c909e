"""BC-BN2: of the devices with the best channels those with the largest updates."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.checks import integer_at_least
from fl_edge_env.typing import IntArray
from policies.selection.sampling import NewestNorms
from policies.selection.selector import Candidates, smallest


class UpdateAware(NewestNorms):
    """Of the devices with the best channels, the K with the largest norms of their updates.

    BC-BN2 ("best channel, best l2-norm") of Amiri, Gündüz, Kulkarni and Poor, "Convergence of
    update aware device scheduling for federated learning at the wireless edge", IEEE Transactions
    on Wireless Communications, 2021. The rule was read in a public re-implementation, and its
    abstract from the authors.

    Deviations: there all devices train in every round, and the norms are those of the round. Here a
    norm is that of a device's newest participation, and all report one before the first round. Nor
    are updates compressed to what a device's channel carries, or channel uses shared out by norms
    and capacities: resources are those of the `Scheduler`, and compression that of the scenario.

    Parameters
    ----------
    scenario : Scenario
        The system.
    num_candidates : int, optional
        Devices with the best channels, K_c, from K to N: with K the rule is `BestChannel`, with N
        it looks at norms alone. By default 2 K, which is this project's choice.

    Raises
    ------
    ValueError
        If `num_candidates` is outside its range.
    """

    name = "BC-BN2"

    def __init__(self, scenario: Scenario, *, num_candidates: int | None = None) -> None:
        super().__init__(scenario)
        most = scenario.num_devices
        least = min(scenario.cohort_size, most)
        given = min(2 * least, most) if num_candidates is None else num_candidates
        self._num_candidates = integer_at_least(least, "num_candidates", given)
        if given > most:
            raise ValueError(f"num_candidates must be at most num_devices = {most}, got {given}")

    def select(self, candidates: Candidates) -> IntArray:
        """Choose by gain, then by norm; see `Selector.select`."""
        best = smallest(-candidates.channel_gain, candidates.available, self._num_candidates)
        norm = np.take_along_axis(self.memory["norm"], best, axis=-1)
        largest = smallest(-norm, best >= 0, self.scenario.cohort_size)
        cohort: IntArray = np.where(largest >= 0, np.take_along_axis(best, largest, axis=-1), -1)
        return cohort

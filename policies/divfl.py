"""DivFL: a diverse cohort by submodular maximisation, with Uni-S resources.

Balakrishnan et al., "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fl_edge_env import Allocation, Scenario
from fl_edge_env.observations import available_devices, gains_and_queues
from fl_edge_env.typing import BoolArray, FloatArray, Info, IntArray, Observed
from policies.base import Policy
from policies.resources import static_resources

# The matrix of distances between devices takes 8 N^2 bytes.
_MOST_DEVICES = 4096


class DivFL(Policy):
    """Chooses the K devices whose gradients represent all others best.

    A device is represented by its full-batch gradient: all devices report theirs at the start, and
    participants report a new one in each round. It needs training, which computes the gradients.

    If devices drop out, the cohort is chosen among the available ones, but still represents all.

    The decision is a chosen cohort with the f and p of Uni-S. As in the paper, the server averages
    the cohort's models by sample counts, the default for chosen cohorts.

    Parameters
    ----------
    scenario : Scenario
        The system it controls, with at most 4096 devices.
    """

    name = "DivFL"
    uses_gradients = True
    needs_training = True

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        if scenario.num_devices > _MOST_DEVICES:
            raise ValueError(
                "DivFL keeps the distances between all pairs of devices: num_devices must be at "
                f"most {_MOST_DEVICES}, got {scenario.num_devices}"
            )
        self.reset(0)

    def reset(self, seed: int | Sequence[int]) -> None:  # noqa: ARG002 - deterministic
        """Forget the gradients of the last episode; see `Policy.reset`."""
        self._distance: FloatArray | None = None

    def feedback(self, info: Info) -> None:
        """Update the `gradient_distance` between devices, (N, N); see `Policy.feedback`."""
        self._distance = info.get("gradient_distance", self._distance)

    def decide(self, observation: Observed) -> Allocation:
        """Choose the cohort and the resources of Uni-S; see `Policy.decide`.

        `ValueError` before the gradients of the episode are known.
        """
        if self._distance is None:
            raise ValueError(
                "DivFL needs the gradient_distance of training: run it with training, in a "
                "TrainingWrapper with report_gradients"
            )
        size = min(self.scenario.cohort_size, self.scenario.num_devices)
        f, p = static_resources(*gains_and_queues(observation), self.scenario)
        available = available_devices(observation)
        if available is None:
            available = np.ones(f.shape, dtype=np.bool_)
        cohort = np.full((*f.shape[:-1], size), -1)
        for row in np.ndindex(f.shape[:-1]):
            count = min(size, int(available[row].sum()))
            cohort[(*row, slice(count))] = facility_location(self._distance, count, available[row])
        return Allocation(f, p, cohort=cohort)


def facility_location(distance: FloatArray, count: int, allowed: BoolArray) -> IntArray:
    """Choose `count` rows S greedily to minimise ``sum_i min_{j in S} distance[i, j]``.

    Only `allowed` rows may be chosen, each once; the sum is over all rows. Ties go to the smallest
    index.
    """
    nearest = np.full(len(distance), np.inf)
    chosen: list[int] = []
    for _ in range(count):
        total = np.minimum(nearest[:, None], distance).sum(axis=0)
        total[chosen] = np.inf
        total[~allowed] = np.inf
        best = int(np.argmin(total))
        chosen.append(best)
        nearest = np.minimum(nearest, distance[:, best])
    return np.array(chosen, dtype=np.int64)

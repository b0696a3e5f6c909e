"""Uni-D and Uni-S: uniform sampling with dynamic or static resources."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation
from fl_edge_env.observations import gains_and_queues
from fl_edge_env.typing import Observed
from policies.base import Policy
from policies.p2 import best_resources
from policies.resources import static_resources


class UniD(Policy):
    """Uniform sampling; f and p as LROA chooses them (Theorems 2 and 3)."""

    name = "Uni-D"

    def decide(self, observation: Observed) -> Allocation:
        """Optimise f and p for ``q = 1/N``; see `Policy.decide`."""
        q = np.full(self.scenario.num_devices, 1.0 / self.scenario.num_devices)
        f, p = best_resources(*gains_and_queues(observation), q, self.scenario)
        return Allocation(f, p, q)


class UniS(Policy):
    """Uniform sampling with static resources; see `policies.resources.static_resources`."""

    name = "Uni-S"

    def decide(self, observation: Observed) -> Allocation:
        """Compute f and p from the energy budget; see `Policy.decide`."""
        f, p = static_resources(*gains_and_queues(observation), self.scenario)
        return Allocation(f, p, 1.0 / self.scenario.num_devices)

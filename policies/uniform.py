"""Uni-D and Uni-S: uniform sampling with dynamic and with static resources."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fl_edge_env import Allocation, physics
from fl_edge_env.checks import observed, real_array
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.p2 import best_resources, check_state


class UniD(Policy):
    """Uniform sampling; f and p as LROA chooses them (Theorems 2 and 3)."""

    name = "Uni-D"

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Optimise f and p for ``q = 1/N``; see `Policy.decide`."""
        channel_gain, queue = observed(observation)
        channel_gain = real_array("channel_gain", channel_gain)
        q = np.full(channel_gain.shape, 1.0 / self.scenario.num_devices)
        f, p = best_resources(channel_gain, queue, q, self.scenario)
        return Allocation(f, p, q)


class UniS(Policy):
    """Uniform sampling; power at the middle of its range, frequency from what energy remains.

    f solves ``(E_cmp + E_up) (1 - (1 - 1/N)^K) = budget``, moved to its range; where uploading
    alone exceeds the budget, f is the smallest.
    """

    name = "Uni-S"

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Spend the round's energy budget; see `Policy.decide`."""
        scenario = self.scenario
        channel_gain, _ = check_state(*observed(observation), scenario)
        q = np.full(channel_gain.shape, 1.0 / scenario.num_devices)
        p = np.broadcast_to(scenario.p_mid, channel_gain.shape).copy()
        upload_energy = p * physics.upload_time(channel_gain, p, scenario)
        participation = physics.participation_probability(q, scenario.cohort_size)
        remaining = np.maximum(scenario.energy_budget_j / participation - upload_energy, 0.0)
        f = np.sqrt(2.0 * remaining / (scenario.capacitance * scenario.cycles_per_round))
        return Allocation(np.clip(f, scenario.f_min, scenario.f_max), p, q)

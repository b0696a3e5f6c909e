"""A user-defined policy: one class with one method, compared with LROA and Uni-D.

python examples/custom_policy.py
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import FloatArray
from policies import LROA, Policy, UniD, evaluate


class ChannelThreshold(Policy):
    """Sample devices with a good channel three times as often as the others.

    f and p are in the middle of their ranges. A batch of systems has a leading axis, so all
    operations use the last one.
    """

    name = "threshold"

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Return f and p for each device, and q for each device of each system."""
        gain = observation["channel_gain"]
        preference = np.where(gain > self.scenario.channel.mean, 3.0, 1.0)
        return Allocation(
            f=self.scenario.f_mid,
            p=self.scenario.p_mid,
            q=preference / preference.sum(axis=-1, keepdims=True),
        )


if __name__ == "__main__":
    scenario = Scenario.cifar10(num_rounds=300)
    policies = [LROA(scenario), UniD(scenario), ChannelThreshold(scenario)]
    table = evaluate(policies, scenario, seeds=range(10))
    columns = ["total_time", "energy_ratio", "sampling_error", "mean_objective"]
    print(table.groupby("policy", sort=False)[columns].mean())

"""A user-defined system, with another channel and unequal devices.

python examples/custom_scenario.py
"""

from __future__ import annotations

import numpy as np

from fl_edge_env import MarkovChannel, Scenario
from policies import LROA, UniD, UniS, evaluate

scenario = Scenario(
    num_devices=60,
    cohort_size=3,
    num_rounds=300,
    bandwidth_hz=5e6,
    model_bits=32 * 1_000_000,
    num_samples=300,
    cycles_per_sample=1e8,
    # A field of the devices may be an array; every third device is slower.
    f_max=np.where(np.arange(60) % 3, 2e9, 1.5e9),
    energy_budget_j=0.8,
    channel=MarkovChannel.correlated(0.8),  # the gain persists with probability 0.8
)

if __name__ == "__main__":
    print(f"lambda = {scenario.lambda_:.0f} s, V = {scenario.V:.3g} J^2/s")
    policies = [LROA(scenario), UniD(scenario), UniS(scenario)]
    table = evaluate(policies, scenario, seeds=range(10))
    columns = ["total_time", "energy_ratio", "worst_energy_ratio", "mean_objective"]
    print(table.groupby("policy", sort=False)[columns].mean())

"""Systems of these tests."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario
from policies.published.uploads import Cohort

SHARED = Scenario.cifar10(
    num_devices=8,
    cohort_size=4,
    bandwidth_split="shared",
    energy_budget_j=2000.0,
    num_samples=np.linspace(200.0, 600.0, 8),
)
EQUAL = SHARED.replace(bandwidth_split="equal")


def cohort_of(
    seed: int, scenario: Scenario = SHARED, size: int = 4
) -> tuple[np.ndarray, np.ndarray, Cohort]:
    """Gains, members and the cohort of some devices at random."""
    rng = np.random.default_rng(seed)
    gain = rng.uniform(0.01, 0.5, scenario.num_devices)
    members = np.zeros(scenario.num_devices, dtype=bool)
    members[rng.choice(scenario.num_devices, size, replace=False)] = True
    return gain, members, Cohort(gain, members, scenario)

"""The contributions of a round make an unbiased update."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.aggregation import contributions

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))

SCENARIO = Scenario(num_devices=4, num_samples=WEIGHTS)
F, P = SCENARIO.f_mid, SCENARIO.p_mid


def test_contributions__of_rounds_of_the_environment_are_unbiased_over_draws_and_failures():
    """The mean over rounds with the same devices is the update of all that were available."""
    scenario = SCENARIO.replace(
        cohort_size=2, num_rounds=30_000, availability=0.6, upload_failure=0.4
    )
    simulator = Simulator(scenario)
    simulator.reset([0])
    decision = Allocation(F, P, Q)
    samples: dict[tuple, list] = {}
    for _ in range(scenario.num_rounds):
        info = simulator.advance(decision).info()
        update = contributions(decision, info, scenario).weight @ UPDATES
        samples.setdefault(tuple(info["available"]), []).append(update)
    assert len(samples) == 15
    for there, updates in samples.items():
        mean = (WEIGHTS * np.array(there)) @ UPDATES
        error = np.std(updates, axis=0) / np.sqrt(len(updates))
        assert np.all(np.abs(np.mean(updates, axis=0) - mean) < 4.5 * error)

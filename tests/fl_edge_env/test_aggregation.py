"""The contributions of a round make an unbiased update."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.aggregation import contributions

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))


def test_contributions__are_unbiased_over_draws_and_failures():
    """The mean over rounds with the same devices is the update of all that were available.

    The sum of squared weights has the mean of a sum of K draws.
    """
    scenario = Scenario(
        num_devices=4,
        num_samples=WEIGHTS,
        cohort_size=2,
        num_rounds=300,
        availability=0.6,
        upload_failure=0.4,
    )
    simulator = Simulator(scenario, 100)
    simulator.reset(range(100))
    decision = Allocation(scenario.f_mid, scenario.p_mid, Q)
    samples = defaultdict(list)
    for _ in range(scenario.num_rounds):
        info = simulator.advance(decision).info()
        for there, weight in zip(
            info["available"], contributions(decision, info, scenario).weight, strict=True
        ):
            samples[tuple(there)].append([*(weight @ UPDATES), weight @ weight])
    assert len(samples) == 15
    for there, values in samples.items():
        w = WEIGHTS * there
        noise = (w @ (w / Q) * (Q @ there) / 2 + w @ w / 2) / (1 - 0.4)
        error = np.std(values, axis=0) / np.sqrt(len(values))
        assert np.all(np.abs(np.mean(values, axis=0) - [*(w @ UPDATES), noise]) < 4.5 * error)

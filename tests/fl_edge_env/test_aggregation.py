"""The contributions of a round make an unbiased update."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.aggregation import contributions

WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Q = np.array([0.4, 0.15, 0.05, 0.4])
UPDATES = np.random.default_rng(0).normal(size=(4, 3))

SCENARIO = Scenario(num_devices=4, num_samples=WEIGHTS)
F = SCENARIO.f_mid
P = SCENARIO.p_mid


def test_contributions__are_unbiased_over_draws_and_failures():
    """The mean over rounds with the same devices is the update of all that were available.

    The sum of squared weights has the mean of a sum of K draws.
    """
    scenario = SCENARIO.replace(cohort_size=2, num_rounds=300, availability=0.6, upload_failure=0.4)
    simulator = Simulator(scenario, 100)
    simulator.reset(range(100))
    decision = Allocation(F, P, Q)
    samples: dict[tuple, list] = {}
    for _ in range(scenario.num_rounds):
        info = simulator.advance(decision).info()
        weight = contributions(decision, info, scenario).weight
        values = np.column_stack([weight @ UPDATES, np.square(weight).sum(axis=1)])
        for there, value in zip(info["available"], values, strict=True):
            samples.setdefault(tuple(there), []).append(value)
    assert len(samples) == 15
    for there, values in samples.items():
        present = np.flatnonzero(there)
        w = WEIGHTS[present]
        q = Q[present] / Q[present].sum()
        noise = (np.sum(w**2 / q) / 2 + (1 - 1 / 2) * np.sum(w**2)) / (1 - 0.4)
        mean = [*(w @ UPDATES[present]), noise]
        error = np.std(values, axis=0) / np.sqrt(len(values))
        assert np.all(np.abs(np.mean(values, axis=0) - mean) < 4.5 * error)

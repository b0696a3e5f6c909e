"""The objective against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fl_edge_env import Scenario, lyapunov


def test_drift_plus_penalty__equals_a_loop_over_devices():
    scenario = Scenario.femnist(num_devices=7, cohort_size=3, mu=2.0)
    rng = np.random.default_rng(0)
    gain, queue = rng.uniform(0.01, 0.5, 7), rng.uniform(0, 50, 7)
    f, p, q = rng.uniform(1e9, 2e9, 7), rng.uniform(0.001, 0.1, 7), rng.dirichlet(np.ones(7))
    total = 0.0
    for n in range(7):
        samples = scenario.num_samples[n]
        rate = 1e6 / 3 * math.log2(1 + gain[n] * p[n] / 0.01)
        upload = 32 * 6_603_710 / rate
        time = 2 * 2e9 * samples / f[n] + upload
        energy = 2 * 2e-28 * 2e9 * samples * f[n] ** 2 / 2 + p[n] * upload
        weight = samples / sum(scenario.num_samples)
        total += scenario.V * (q[n] * time + scenario.lambda_ * weight**2 / q[n])
        total += queue[n] * ((1 - (1 - q[n]) ** 3) * energy - 5.0)
    value = lyapunov.drift_plus_penalty(gain, queue, f, p, q, scenario)
    assert float(value) == pytest.approx(total, rel=1e-12)

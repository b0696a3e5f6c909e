"""Rewards of single devices against plain loops, and what they say about the team's reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, lyapunov, physics
from fl_edge_env.allocation import decode_action
from policies.learning.credit import difference_reward
from tests.fl_edge_env.test_round import random_system
from tests.support import ANY_SEED


def expected_difference(gain, queue, decision, scenario: Scenario, there):
    """The reward of each device and the size of the terms that cancel in it, by a plain loop.

    The others keep f, p and the ratios of their q.
    """

    def reward(f, p, q) -> float:
        time, energy, _ = physics.by_deadline(gain, f, p, scenario)
        return -float(lyapunov.objective(time, energy, queue, q, scenario, there))

    actual = reward(decision.f, decision.p, decision.q)
    expected = np.zeros(gain.size)
    for n in np.flatnonzero(there):
        rest = sum(decision.q[m] for m in range(gain.size) if m != n)
        q = decision.q * (1 - 1 / there.sum()) / max(rest, 1e-300)
        q[n] = 1 / there.sum()
        f = decision.f.copy()
        p = decision.p.copy()
        f[n] = scenario.f_mid[n]
        p[n] = scenario.p_mid[n]
        expected[n] = actual - reward(f, p, q)
    return expected, abs(actual) + scenario.V


OPTIONS = "availability", "deadline_s", "latency", "local_epochs", "overhead_s"


@given(ANY_SEED, st.sets(st.sampled_from(OPTIONS)), st.sampled_from([2.0, 40.0]))
@pytest.mark.filterwarnings("ignore::UserWarning")  # random systems are odd
def test_difference__equals_a_plain_loop(seed, options, scale):
    rng = np.random.default_rng(seed)
    scenario = random_system(rng, options, most=9)
    num_devices = scenario.num_devices
    drop_out = "availability" in options
    gain = rng.uniform(0.01, 0.5, (2, num_devices))
    queue = rng.uniform(0, 2, (2, num_devices))
    queue *= scenario.V / (scenario.capacitance * scenario.f_mid**3)  # at which energy matters
    decision = decode_action(rng.uniform(-1, 1, (2, 3, num_devices)), scenario, scale)
    there = np.full((2, num_devices), True)
    if drop_out:
        least = rng.integers(1, num_devices + 1, (2, 1))
        there = rng.permuted(np.arange(num_devices) < least, axis=1)
    q = np.where(there, decision.q, 0.0)
    decision = replace(decision, q=q / q.sum(axis=1, keepdims=True))
    available = there if drop_out else None
    result = difference_reward(gain, queue, decision, scenario, available)
    for row in range(2):
        own = Allocation(decision.f[row], decision.p[row], decision.q[row])
        single = gain[row], queue[row], own, scenario
        expected, size = expected_difference(*single, there[row])
        np.testing.assert_allclose(result[row], expected, rtol=1e-9, atol=1e-12 * size)
        alone = difference_reward(*single, there[row] if drop_out else None)
        np.testing.assert_array_equal(alone, result[row])

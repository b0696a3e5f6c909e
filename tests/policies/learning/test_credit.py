"""Rewards of single devices against plain loops, and what they say about the team's reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator, lyapunov, physics, with_tiers
from fl_edge_env.allocation import decode_action
from policies.learning.credit import difference_reward

MIXED = with_tiers(Scenario.femnist(num_devices=7, cohort_size=3))


def random_round(scenario: Scenario, seed: int, batch: tuple[int, ...] = ()):
    """Gains, queues of the size at which energy matters, and a decision over the whole box."""
    rng = np.random.default_rng(seed)
    shape = (*batch, scenario.num_devices)
    gain = rng.uniform(0.01, 0.5, shape)
    queue = scenario.V / (scenario.capacitance * scenario.f_mid**3) * rng.uniform(0, 2, shape)
    action = rng.uniform(-1, 1, (*batch, 3, scenario.num_devices))
    return gain, queue, decode_action(action, scenario, softmax_scale=2.0)


def expected_difference(gain, queue, decision, scenario: Scenario, there):
    """The reward of each device and the size of the terms that cancel in it, by a plain loop.

    The others keep f, p and the ratios of their q.
    """

    def reward(f, p, q) -> float:
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        penalty = lyapunov.latency(time, q, scenario)
        penalty += scenario.lambda_ * np.sum(scenario.weights[there] ** 2 / q[there])
        taking = 1 - (1 - q) ** scenario.cohort_size
        excess = taking * energy - scenario.energy_budget_j
        return float(-(scenario.V * penalty + np.sum(queue * excess)))

    actual = reward(decision.f, decision.p, decision.q)
    expected = np.zeros(gain.size)
    for n in np.flatnonzero(there):
        rest = sum(decision.q[m] for m in range(gain.size) if m != n)
        q = decision.q * (1 - 1 / there.sum()) / max(rest, 1e-300)
        q[n] = 1 / there.sum()
        f, p = decision.f.copy(), decision.p.copy()
        f[n], p[n] = scenario.f_mid[n], scenario.p_mid[n]
        expected[n] = actual - reward(f, p, q)
    return expected, abs(actual) + scenario.V


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.booleans())
@pytest.mark.parametrize("latency", ["proxy", "round_time"])
def test_difference__equals_a_plain_loop(latency, seed, num_devices, drop_out):
    scenario = with_tiers(
        Scenario.femnist(num_devices=num_devices, cohort_size=1 + seed % 4, latency=latency),
        seed=seed,
    )
    gain, queue, decision = random_round(scenario, seed, (2,))
    rng = np.random.default_rng(seed)
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


@pytest.mark.parametrize("softmax_scale", [10.0, 40.0])
def test_difference__is_exact_where_one_device_has_almost_all_of_q(softmax_scale):
    gain, queue, _ = random_round(MIXED, 6)
    action = np.zeros((3, 7))
    action[2] = [1, -1, -0.9, -1, -1, -0.8, -1]
    allocation = decode_action(action, MIXED, softmax_scale)
    result = difference_reward(gain, queue, allocation, MIXED)
    expected, _ = expected_difference(gain, queue, allocation, MIXED, np.full(7, True))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_rewards__with_late_devices_are_differences_of_what_the_environment_pays():
    time, _ = physics.time_and_energy(MIXED.mean_gain, MIXED.f_mid, MIXED.p_mid, MIXED)
    scenario = MIXED.replace(deadline_s=float(np.median(time)))
    gain, queue, _ = random_round(scenario, 3)
    decision = decode_action(np.random.default_rng(5).uniform(-1, 1, (3, 7)), scenario, 2.0)
    late = []

    def paid(decision: Allocation) -> float:
        simulator = Simulator(scenario)
        simulator.reset([0])
        simulator.measure(gain)
        simulator.queue[...] = queue
        played = simulator.advance(decision)
        late.append(played.late.sum())
        return float(played.reward)

    result = difference_reward(gain, queue, decision, scenario)
    for n in range(7):
        q = decision.q * (1 - 1 / 7) / (1 - decision.q[n])
        q[n] = 1 / 7
        f, p = decision.f.copy(), decision.p.copy()
        f[n], p[n] = scenario.f_mid[n], scenario.p_mid[n]
        expected = paid(decision) - paid(Allocation(f, p, q))
        assert result[n] == pytest.approx(expected, rel=1e-6)
    assert sum(late) > 0

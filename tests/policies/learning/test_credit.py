"""Rewards of single devices against plain loops, and what they say about the team's reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator, lyapunov, physics, with_tiers
from fl_edge_env.allocation import decode_action, highest
from policies.learning.credit import difference_reward, ranked_difference_reward

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


def cost_of(cohort: list[int], time, energy, queue, backlog, scenario: Scenario) -> float:
    """What a cohort costs where the objective is the outcome, up to what no decision changes."""
    if not cohort:
        return 0.0
    weight = lyapunov.participation_weight(scenario)
    own = sum(queue[n] * energy[n] - weight * backlog[n] for n in cohort)
    return float(scenario.V * max(time[n] for n in cohort) + own)


@pytest.mark.parametrize("objective", ["penalty", "outcome"])
def test_rewards__with_late_devices_are_differences_of_what_the_environment_pays(objective):
    time, _ = physics.time_and_energy(MIXED.mean_gain, MIXED.f_mid, MIXED.p_mid, MIXED)
    scenario = MIXED.replace(objective=objective, deadline_s=float(np.median(time)))
    gain, queue, decision = random_round(scenario, 3)
    backlog = np.random.default_rng(4).uniform(-5, 50, 7)
    action = np.random.default_rng(5).uniform(-1, 1, (3, 7))
    decision = decode_action(action, scenario, 2.0)

    def paid(decision: Allocation) -> float:
        simulator = Simulator(scenario)
        simulator.reset([0])
        simulator.measure(gain)
        simulator.queue[...] = queue
        if objective == "outcome":
            simulator.participation_queue[...] = backlog
        played = simulator.advance(decision)
        late.append(played.late.sum())
        return float(played.reward)

    late: list[int] = []
    if objective == "penalty":
        result = difference_reward(gain, queue, decision, scenario)
    else:
        after = highest(action[2], scenario.cohort_size + 1)
        result = ranked_difference_reward(gain, queue, backlog, decision, after[-1], scenario)
    for n in range(7):
        if objective == "penalty":
            q = decision.q * (1 - 1 / 7) / (1 - decision.q[n])
            q[n] = 1 / 7
            f, p = decision.f.copy(), decision.p.copy()
            f[n], p[n] = scenario.f_mid[n], scenario.p_mid[n]
            other = Allocation(f, p, q)
        else:
            cohort = after[after != n][: scenario.cohort_size]
            other = Allocation(decision.f, decision.p, cohort=cohort)
        assert result[n] == pytest.approx(paid(decision) - paid(other), rel=1e-6)
    assert sum(late) > 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_ranked_difference__is_what_the_cohort_without_the_device_would_cost_more(seed, places):
    scenario = MIXED.replace(objective="outcome", cohort_size=places)
    rng = np.random.default_rng(seed)
    gain, queue = rng.uniform(0.01, 0.5, (2, 7)), scenario.V * rng.uniform(0, 2, (2, 7))
    backlog = rng.uniform(-5, 50, (2, 7))
    action = rng.uniform(-1, 1, (2, 3, 7))
    action[:, 2] = rng.choice([-1.0, 0.0, 0.5, 1.0], (2, 7))  # some are equal
    there = rng.random((2, 7)) < 0.7
    there[:, rng.integers(7)] = True
    decision = decode_action(action, scenario, 2.0, there)
    after = highest(action[:, 2], places + 1, there)[:, -1]
    result = ranked_difference_reward(gain, queue, backlog, decision, after, scenario)
    time, energy = physics.time_and_energy(gain, decision.f, decision.p, scenario)
    atol = 1e-9 * scenario.V * time.max()
    for row in range(2):
        state = time[row], energy[row], queue[row], backlog[row], scenario
        ranked = sorted(np.flatnonzero(there[row]), key=lambda n, row=row: -action[row, 2, n])
        played = ranked[:places]
        assert sorted(played) == sorted(decision.cohort[row][decision.cohort[row] >= 0])
        for n in range(7):
            others = [m for m in ranked if m != n][:places]
            expected = cost_of(others, *state) - cost_of(played, *state)
            np.testing.assert_allclose(result[row, n], expected, rtol=1e-9, atol=atol)
        single = Allocation(decision.f[row], decision.p[row], cohort=decision.cohort[row])
        state = gain[row], queue[row], backlog[row], single, after[row], scenario
        np.testing.assert_array_equal(ranked_difference_reward(*state), result[row])

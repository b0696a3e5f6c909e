"""Rewards of single devices against plain loops, and what they say about the team's reward."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, lyapunov, physics, with_tiers
from fl_edge_env.allocation import decode_action
from fl_edge_env.decision import highest
from fl_edge_env.lyapunov import drift_plus_penalty
from policies.learning.credit import difference_reward, ranked_difference_reward

LATENCIES = ["proxy", "round_time"]
MIXED = with_tiers(Scenario.femnist(num_devices=7, cohort_size=3))


def random_round(scenario: Scenario, seed: int, batch: tuple[int, ...] = ()):
    """Gains, queues of the size at which energy matters, and a decision over the whole box."""
    rng = np.random.default_rng(seed)
    shape = (*batch, scenario.num_devices)
    gain = rng.uniform(0.01, 0.5, shape)
    queue = scenario.V / (scenario.capacitance * scenario.f_mid**3) * rng.uniform(0, 2, shape)
    action = rng.uniform(-1, 1, (*batch, 3, scenario.num_devices))
    return gain, queue, decode_action(action, scenario, softmax_scale=2.0)


def team_reward(gain, queue, allocation: Allocation, scenario: Scenario) -> np.ndarray:
    return -drift_plus_penalty(gain, queue, allocation.f, allocation.p, allocation.q, scenario)


def replaced(allocation: Allocation, n: int, f: float, p: float, q: float) -> Allocation:
    """Device n decides otherwise; the others keep f, p and the ratios of their q."""
    fs, ps, qs = allocation.f.copy(), allocation.p.copy(), allocation.q.copy()
    others = sum(qs[m] for m in range(qs.size) if m != n)
    for m in range(qs.size):
        if m != n:
            qs[m] *= (1 - q) / others
    fs[n], ps[n], qs[n] = f, p, q
    return Allocation(fs, ps, qs)


def by_a_loop(gain, queue, allocation: Allocation, scenario: Scenario) -> list[float]:
    count = scenario.num_devices
    actual = team_reward(gain, queue, allocation, scenario)
    return [
        float(
            actual
            - team_reward(
                gain,
                queue,
                replaced(allocation, n, scenario.f_mid[n], scenario.p_mid[n], 1 / count),
                scenario,
            )
        )
        for n in range(count)
    ]


def size(gain, queue, allocation: Allocation, scenario: Scenario) -> float:
    """Size of the terms that cancel in a difference of rewards."""
    return float(np.max(np.abs(team_reward(gain, queue, allocation, scenario)))) + scenario.V


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.sampled_from(LATENCIES))
def test_difference__equals_a_plain_loop(seed, num_devices, latency):
    scenario = with_tiers(
        Scenario.femnist(num_devices=num_devices, cohort_size=1 + seed % 4, latency=latency),
        seed=seed,
    )
    gain, queue, decision = state = random_round(scenario, seed, (2,))
    result = difference_reward(*state, scenario)
    assert result.shape == (2, num_devices)
    for row in range(2):
        own = Allocation(decision.f[row], decision.p[row], decision.q[row])
        single = gain[row], queue[row], own
        atol = 1e-12 * size(*single, scenario)
        expected = by_a_loop(*single, scenario)
        np.testing.assert_allclose(result[row], expected, rtol=1e-9, atol=atol)
        np.testing.assert_array_equal(difference_reward(*single, scenario), result[row])


@pytest.mark.parametrize("latency", LATENCIES)
def test_one_device__has_its_own_f_and_p_to_answer_for(latency):
    scenario = Scenario.digits(num_devices=1, latency=latency)
    gain, queue = np.array([0.2]), np.array([3.0 * scenario.V])
    zero = Allocation(scenario.f_mid, scenario.p_mid, np.ones(1))
    fast = Allocation(scenario.f_max, scenario.p_mid, np.ones(1))
    assert difference_reward(gain, queue, zero, scenario).tolist() == [0.0]
    expected = team_reward(gain, queue, fast, scenario) - team_reward(gain, queue, zero, scenario)
    assert expected != 0
    assert difference_reward(gain, queue, fast, scenario)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("softmax_scale", [10.0, 40.0])
def test_difference__is_exact_where_one_device_has_almost_all_of_q(softmax_scale):
    gain, queue, _ = random_round(MIXED, 6)
    action = np.zeros((3, 7))
    action[2] = [1, -1, -0.9, -1, -1, -0.8, -1]
    allocation = decode_action(action, MIXED, softmax_scale)
    result = difference_reward(gain, queue, allocation, MIXED)
    np.testing.assert_allclose(result, by_a_loop(gain, queue, allocation, MIXED), rtol=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from(LATENCIES))
def test_rewards__where_devices_drop_out_are_those_of_a_system_of_the_others(seed, latency):
    scenario = MIXED.replace(latency=latency)
    gain, queue, decision = random_round(scenario, seed)
    rng = np.random.default_rng(seed)
    there = rng.permutation(np.arange(7) < rng.integers(1, 8))
    q = np.where(there, decision.q, 0.0) / decision.q[there].sum()
    decision = Allocation(decision.f, decision.p, q)

    def reward(f, p, q) -> float:
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        penalty = lyapunov.latency(time, q, scenario)
        penalty += scenario.lambda_ * np.sum(scenario.weights[there] ** 2 / q[there])
        taking = 1 - (1 - q) ** scenario.cohort_size
        excess = taking * energy - scenario.energy_budget_j
        return -(scenario.V * penalty + np.sum(queue * excess))

    actual = reward(decision.f, decision.p, q)
    expected = np.zeros(7)
    for n in np.flatnonzero(there):
        other = q.copy()
        if there.sum() > 1:
            other *= (1 - 1 / there.sum()) / (q.sum() - q[n])
        other[n] = 1 / there.sum()
        f, p = decision.f.copy(), decision.p.copy()
        f[n], p[n] = scenario.f_mid[n], scenario.p_mid[n]
        expected[n] = actual - reward(f, p, other)
    state = gain, queue, decision, scenario, there
    size = abs(actual) + scenario.V
    result = difference_reward(*state)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12 * size)
    batch = (np.stack([x, x]) for x in (gain, queue))
    twice = Allocation(*(np.stack([x, x]) for x in (decision.f, decision.p, q)))
    np.testing.assert_array_equal(
        difference_reward(*batch, twice, scenario, np.stack([there, there])), [result, result]
    )


def cost_of(cohort: list[int], time, energy, queue, backlog, scenario: Scenario) -> float:
    """What a cohort costs where the objective is the outcome, up to what no decision changes."""
    if not cohort:
        return 0.0
    weight = lyapunov.participation_weight(scenario)
    own = sum(queue[n] * energy[n] - weight * backlog[n] for n in cohort)
    return float(scenario.V * max(time[n] for n in cohort) + own)


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
    for row in range(2):
        state = time[row], energy[row], queue[row], backlog[row], scenario

        def ranked(last: int | None, row: int = row) -> list[int]:
            order = sorted(np.flatnonzero(there[row]), key=lambda n: -action[row, 2, n])
            if last is not None:
                order = [n for n in order if n != last] + [last]
            return order

        played = ranked(None)[:places]
        assert sorted(played) == sorted(decision.cohort[row][decision.cohort[row] >= 0])
        for n in range(7):
            # Last in the ranking it would still take part where there are not enough others.
            others = [m for m in ranked(n if there[row, n] else None) if m != n][:places]
            expected = cost_of(others, *state) - cost_of(played, *state) if n in played else 0.0
            np.testing.assert_allclose(
                result[row, n], expected, rtol=1e-9, atol=1e-9 * scenario.V * time.max()
            )
        single = Allocation(decision.f[row], decision.p[row], cohort=decision.cohort[row])
        np.testing.assert_array_equal(
            ranked_difference_reward(
                gain[row], queue[row], backlog[row], single, after[row], scenario
            ),
            result[row],
        )

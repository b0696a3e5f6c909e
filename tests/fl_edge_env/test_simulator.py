"""The round: identities, Monte Carlo means and common random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import Allocation, ExponentialChannel, Scenario, Simulator
from fl_edge_env.lyapunov import drift_plus_penalty

STEADY = ExponentialChannel(gain_min=0.1, gain_max=np.nextafter(0.1, 1))


def play(simulator: Simulator, rounds: int, allocation: Allocation) -> list:
    return [simulator.advance(allocation) for _ in range(rounds)]


def random_allocation(scenario: Scenario, rng: np.random.Generator, batch: int = 1) -> Allocation:
    shape = (batch, scenario.num_devices)
    return Allocation(
        rng.uniform(scenario.f_min, scenario.f_max, shape),
        rng.uniform(scenario.p_min, scenario.p_max, shape),
        rng.dirichlet(np.ones(scenario.num_devices), batch),
    )


def test_round__monte_carlo_means_over_the_cohort():
    rng = np.random.default_rng(0)
    scenario = Scenario(
        num_devices=5, cohort_size=3, num_rounds=20_000, channel=STEADY, num_samples=[1, 2, 3, 4, 5]
    )
    simulator = Simulator(scenario)
    simulator.reset([0])
    allocation = random_allocation(scenario, rng)
    outcomes = play(simulator, scenario.num_rounds, allocation)
    count = len(outcomes)

    cohorts = np.concatenate([o.cohort[0] for o in outcomes])
    expected = allocation.q[0] * len(cohorts)
    assert stats.chisquare(np.bincount(cohorts, minlength=5), expected).pvalue > 1e-3

    spent = np.array([o.energy_spent[0] for o in outcomes])
    error = spent.std(axis=0) / math.sqrt(count)
    assert np.all(np.abs(spent.mean(axis=0) - outcomes[0].energy_expected[0]) < 4 * error)

    times = np.array([o.round_time[0] for o in outcomes])
    error = times.std() / math.sqrt(count)
    assert abs(times.mean() - outcomes[0].expected_round_time[0]) < 4 * error
    assert outcomes[0].expected_round_time[0] > outcomes[0].latency[0]


def test_round__times_and_energies_of_the_cohort():
    scenario = Scenario.femnist(num_devices=9, cohort_size=4)
    simulator = Simulator(scenario)
    simulator.reset([3])
    rng = np.random.default_rng(1)
    elapsed = 0.0
    for _ in range(50):
        o = simulator.advance(random_allocation(scenario, rng))
        drawn = set(o.cohort[0].tolist())
        assert o.round_time[0] == max(o.device_time[0, n] for n in drawn)
        assert set(np.flatnonzero(o.energy_spent[0])) == drawn
        elapsed += o.round_time[0]
        assert o.elapsed_time[0] == pytest.approx(elapsed)


def test_round__reward_is_the_negative_drift_plus_penalty_of_the_state_before():
    scenario = Scenario.femnist(num_devices=6)
    simulator = Simulator(scenario, 2)
    simulator.reset([0, 1])
    rng = np.random.default_rng(2)
    for _ in range(20):
        gain, queue = simulator.observe().values()
        a = random_allocation(scenario, rng, 2)
        o = simulator.advance(a)
        objective = drift_plus_penalty(gain, queue, a.f, a.p, a.q, scenario)
        np.testing.assert_allclose(o.reward, -objective, rtol=1e-12)
        excess = o.energy_expected - scenario.energy_budget_j
        np.testing.assert_allclose(simulator.queue, np.maximum(queue + excess, 0), rtol=1e-12)
        np.testing.assert_allclose(o.drift, (queue * excess).sum(axis=1), rtol=1e-9)


def test_channel__is_common_to_all_decisions_and_cohorts():
    scenario = Scenario(num_devices=8, num_rounds=300)
    gains = []
    for policy_seed in (0, 1):
        rng = np.random.default_rng(policy_seed)
        simulator = Simulator(scenario)
        simulator.reset([7])
        seen = []
        for _ in range(300):
            seen.append(simulator.observe()["channel_gain"])
            simulator.advance(random_allocation(scenario, rng))
        gains.append(np.array(seen))
    np.testing.assert_array_equal(*gains)


def test_channel__equals_one_long_draw_of_its_stream():
    # Drawing ahead in blocks must not repeat or skip a round.
    scenario = Scenario(num_devices=3000, num_rounds=20)
    simulator = Simulator(scenario)
    simulator.reset([5])
    allocation = random_allocation(scenario, np.random.default_rng(0))
    seen = []
    for _ in range(20):
        seen.append(simulator.observe()["channel_gain"][0])
        simulator.advance(allocation)
    channel_seed = np.random.SeedSequence(5).spawn(1)[0].spawn(3)[0]
    whole = scenario.channel.draw(np.random.default_rng(channel_seed), 20, 3000)
    np.testing.assert_array_equal(seen, whole)


def test_cohort__given_by_the_decision_replaces_the_draw():
    scenario = Scenario(num_devices=5, cohort_size=3)
    simulator = Simulator(scenario)
    simulator.reset([0])
    a = random_allocation(scenario, np.random.default_rng(0))
    o = simulator.advance(Allocation(a.f, a.p, a.q, np.array([[4, 1, 4]])))
    np.testing.assert_array_equal(o.cohort, [[4, 1, 4]])
    assert np.count_nonzero(o.energy_spent) == 2
    # What is expected still follows q.
    assert np.count_nonzero(o.energy_expected) == 5


def test_observe__is_not_changed_by_later_rounds():
    scenario = Scenario(num_devices=4)
    simulator = Simulator(scenario)
    simulator.reset([0])
    first = simulator.observe()
    kept = {name: values.copy() for name, values in first.items()}
    simulator.advance(random_allocation(scenario, np.random.default_rng(0)))
    for name, values in first.items():
        np.testing.assert_array_equal(values, kept[name])


def test_one_device__is_always_the_cohort():
    scenario = Scenario(num_devices=1, cohort_size=4)
    simulator = Simulator(scenario)
    simulator.reset([0])
    o = simulator.advance(Allocation(scenario.f_mid[None], scenario.p_mid[None], np.ones((1, 1))))
    np.testing.assert_array_equal(o.cohort, [[0, 0, 0, 0]])
    assert o.expected_round_time == o.round_time == o.latency
    np.testing.assert_array_equal(o.energy_expected, o.energy_spent)


def test_advance__refuses_another_batch_size():
    scenario = Scenario(num_devices=4)
    simulator = Simulator(scenario, 2)
    simulator.reset([0, 1])
    with pytest.raises(ValueError, match=r"must have shape \(2, 4\), got \(3, 4\)"):
        simulator.advance(random_allocation(scenario, np.random.default_rng(0), 3))

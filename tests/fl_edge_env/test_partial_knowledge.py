"""What a server knows where only participants measure their gains: nothing else leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, FLEdgeEnv, Scenario, lyapunov, physics
from fl_edge_env.spaces import NEVER_MEASURED
from tests.support import random_decision

SCENARIO = Scenario.cifar10(
    num_devices=6, num_samples=100.0, cohort_size=2, num_rounds=12, csi="participants"
)


def decision(scenario, rng, chosen):
    """Any decision of a kind."""
    sampled = random_decision(scenario, rng)
    size = rng.integers(1, scenario.cohort_size + 1)
    cohort = rng.permutation(scenario.num_devices)[:size]
    return Allocation(sampled.f, sampled.p, cohort=cohort) if chosen else sampled


def change_unmeasured(env, allocation, rng):
    """Change the gains of the coming round that this decision will not measure."""
    simulator = env.simulator
    if allocation.cohort is not None:
        measured = allocation.participates
    else:  # the draw depends on q and the stream of cohorts alone
        measured = np.zeros(env.scenario.num_devices, dtype=np.bool_)
        measured[simulator._draw_cohort(allocation.q, None)] = True
    channel = env.scenario.channel
    others = rng.uniform(channel.gain_min, channel.gain_max, env.scenario.num_devices)
    simulator.channel_gain[~measured] = others[~measured]


@given(st.integers(0, 2**32 - 1), st.sampled_from(["penalty", "outcome"]), st.booleans())
def test_nothing_that_is_told_depends_on_a_gain_that_was_not_measured(seed, objective, chosen):
    rng = np.random.default_rng(seed)
    scenario = SCENARIO.replace(objective=objective, upload_failure=0.3)
    env, twin = FLEdgeEnv(scenario), FLEdgeEnv(scenario)
    told = [each.reset(seed=seed % 1000) for each in (env, twin)]
    for _ in range(scenario.num_rounds):
        allocation = decision(scenario, rng, chosen)
        change_unmeasured(twin, allocation, rng)
        *told, rewards = zip(
            *((s[0], s[4], s[1]) for s in (env.step(allocation), twin.step(allocation))),
            strict=True,
        )
        for one, other in told:
            assert one.keys() == other.keys()
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        if chosen or objective == "outcome":
            assert rewards[0] == rewards[1]


def test_the_observation_is_the_last_measured_gain_and_its_age():
    env = FLEdgeEnv(SCENARIO, num_rounds=40)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=3)
    gain, age = np.full(6, SCENARIO.channel.mean), np.full(6, NEVER_MEASURED)
    for _ in range(40):
        np.testing.assert_array_equal(observation["channel_gain"], gain)
        np.testing.assert_array_equal(observation["age"], age)
        assert env.observation_space.contains(observation)
        true = env.simulator.channel_gain.copy()
        allocation = decision(env.scenario, rng, chosen=True)
        observation, *_ = env.step(allocation)
        age = np.where(age < NEVER_MEASURED, age + 1, age)
        gain[allocation.participates], age[allocation.participates] = (
            true[allocation.participates],
            1,
        )
    assert np.isin([1, NEVER_MEASURED], age).any()
    assert age.min() == 1


@pytest.mark.parametrize("chosen", [True, False])
def test_the_queue_moves_by_the_energy_spent_and_the_judge_sees_all(chosen):
    known = FLEdgeEnv(SCENARIO.replace(csi="full"))
    env = FLEdgeEnv(SCENARIO)
    rng = np.random.default_rng(1)
    observation, _ = env.reset(seed=5)
    known.reset(seed=5)
    for _ in range(SCENARIO.num_rounds):
        allocation = decision(SCENARIO, rng, chosen)
        queue = observation["queue"]
        observation, _, _, _, info = env.step(allocation)
        _, _, _, _, everything = known.step(allocation)
        wanted = np.maximum(queue + info["energy_spent"] - SCENARIO.energy_budget_j, 0)
        np.testing.assert_allclose(observation["queue"], wanted, rtol=1e-12, atol=1e-9)
        account = env.last_round.account()
        for name in ("device_time", "energy_expected", "penalty", "round_time", "energy_spent"):
            np.testing.assert_array_equal(account[name], everything[name], err_msg=name)
        measured = info["energy_spent"] > 0
        np.testing.assert_array_equal(np.isnan(info["device_time"]), ~measured)
        np.testing.assert_array_equal(
            info["device_time"][measured], everything["device_time"][measured]
        )


@pytest.mark.parametrize("chosen", [True, False])
def test_outcome__the_reward_is_what_came_of_the_round(chosen):
    samples = np.array([50.0, 100.0, 150.0, 200.0, 250.0, 300.0])
    start = np.array([0.0, 10.0, 20.0, 30.0, 0.0, 5.0])
    scenario = SCENARIO.replace(
        csi="full",
        objective="outcome",
        num_samples=samples,
        initial_queue=100 * start,
    )
    env = FLEdgeEnv(scenario)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=2)
    np.testing.assert_array_equal(observation["queue"], 100 * start)
    np.testing.assert_array_equal(observation["participation_queue"], 0.0)
    target = np.minimum(2 * samples / samples.sum(), 1)
    weight = np.mean((scenario.energy_budget_j / target) ** 2)
    for _ in range(scenario.num_rounds):
        allocation = decision(scenario, rng, chosen)
        gain = observation["channel_gain"]
        before = observation
        observation, reward, _, _, info = env.step(allocation)
        times, energies = physics.time_and_energy(gain, allocation.f, allocation.p, scenario)
        there = np.unique(info["cohort"])
        cost = scenario.V * times[there].max()
        for device in range(6):
            spent = energies[device] if device in there else 0.0
            cost += before["queue"][device] * (spent - scenario.energy_budget_j[device])
            missing = target[device] - (device in there)
            cost += weight * before["participation_queue"][device] * missing
            moved = observation["participation_queue"][device]
            assert moved == pytest.approx(before["participation_queue"][device] + missing)
            queue = max(before["queue"][device] + spent - scenario.energy_budget_j[device], 0)
            assert observation["queue"][device] == pytest.approx(queue)
        assert reward == pytest.approx(-cost)
        assert info["reward_latency"] + info["reward_drift"] == pytest.approx(reward)
        assert np.isnan(info["reward_sampling_error"])
        assert env.observation_space.contains(observation)
    assert weight == pytest.approx(lyapunov.participation_weight(scenario))

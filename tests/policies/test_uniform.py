"""Uni-D and Uni-S against the conditions that define them."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Scenario, physics
from fl_edge_env.lyapunov import drift_plus_penalty
from policies import UniD, UniS


def observe(scenario: Scenario, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "channel_gain": scenario.channel.draw(rng, 1, scenario.num_devices)[0],
        "queue": rng.uniform(0, 300, scenario.num_devices),
    }


def test_uni_s__spends_the_budget_of_the_round_where_the_frequency_range_allows():
    scenario = Scenario.femnist()
    observation = observe(scenario, 0)
    decision = UniS(scenario).decide(observation)
    np.testing.assert_array_equal(decision.p, scenario.p_mid)
    np.testing.assert_array_equal(decision.q, 1 / scenario.num_devices)
    _, energy = physics.time_and_energy(
        observation["channel_gain"], decision.f, decision.p, scenario
    )
    expected = (1 - (1 - 1 / scenario.num_devices) ** scenario.cohort_size) * energy
    inside = (decision.f > scenario.f_min) & (decision.f < scenario.f_max)
    assert 0 < inside.sum() < scenario.num_devices
    np.testing.assert_allclose(expected[inside], scenario.energy_budget_j[inside], rtol=1e-12)
    assert np.all(expected[decision.f == scenario.f_max] <= 5.0)
    assert np.all(expected[decision.f == scenario.f_min] >= 5.0)


def test_uni_s__computes_slowest_where_uploading_alone_exceeds_the_budget():
    scenario = Scenario.cifar10(energy_budget_j=0.1)
    np.testing.assert_array_equal(UniS(scenario).decide(observe(scenario, 0)).f, scenario.f_min)


@pytest.mark.parametrize("seed", range(3))
def test_uni_d__no_other_resources_do_better_at_uniform_sampling(seed):
    scenario = Scenario.cifar10(p_max=2.0, capacitance=2e-27)
    observation = observe(scenario, seed)
    gain, queue = observation["channel_gain"], observation["queue"]
    decision = UniD(scenario).decide(observation)
    np.testing.assert_array_equal(decision.q, 1 / scenario.num_devices)
    best = drift_plus_penalty(gain, queue, decision.f, decision.p, decision.q, scenario)
    rng = np.random.default_rng(seed)
    for _ in range(200):
        scale = 10 ** rng.uniform(-6, 0)
        f = np.clip(decision.f * (1 + scale * rng.normal(size=120)), 1e9, 2e9)
        p = np.clip(decision.p * (1 + scale * rng.normal(size=120)), 0.001, 2.0)
        other = drift_plus_penalty(gain, queue, f, p, decision.q, scenario)
        assert best <= other * (1 + 1e-15)

"""Uni-S against the conditions that define it."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario, physics
from policies import UniS


def observe(scenario: Scenario, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "channel_gain": scenario.channel.draw(rng, 1, scenario.num_devices)[0],
        "queue": rng.uniform(0, 300, scenario.num_devices),
    }


def test_uni_s__spends_the_budget_within_its_range():
    # The least budgets do not even pay for uploads.
    budget = np.geomspace(0.01, 50.0, Scenario.femnist().num_devices)
    scenario = Scenario.femnist(energy_budget_j=budget)
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
    np.testing.assert_allclose(expected[inside], budget[inside], rtol=1e-12)
    assert np.all((expected <= budget)[decision.f == scenario.f_max])
    assert np.all((expected >= budget)[decision.f == scenario.f_min])

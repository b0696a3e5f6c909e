"""Prices for a server that does not know the gains, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Scenario, lyapunov
from fl_edge_env.channels import GainLaw
from policies.outcome import law_prices, solve_round

RNG = np.random.default_rng(0)
ALIKE = Scenario.cifar10(num_devices=6, num_samples=400.0, energy_budget_j=300.0, num_rounds=300)


def law_of(scenario: Scenario, *, alike: bool) -> GainLaw:
    """Five nodes for each device."""
    shape = (scenario.num_devices, 5)
    gain, probability = RNG.uniform(0.02, 0.4, shape), RNG.dirichlet(np.ones(5), shape[0])
    if alike:
        gain, probability = np.broadcast_to(gain[0], shape), np.broadcast_to(probability[0], shape)
    return GainLaw(gain, probability)


def upload(gain, p, scenario):
    rate = scenario.bandwidth_hz / scenario.cohort_size * np.log2(1 + gain * p / 0.01)
    return scenario.model_bits / rate


def least_time(gain, probability, energy, scenario):
    """The least expected time of device 0 at an expected energy, over a fine grid of powers."""
    p = np.geomspace(scenario.p_min[0], scenario.p_max[0], 20_001)
    seconds = upload(gain[:, None], p, scenario).T @ probability
    rest = np.maximum(energy - p * seconds, 0.0)
    cycles = scenario.cycles_per_round[0]
    f = np.sqrt(2.0 * rest / (scenario.capacitance[0] * cycles))
    time = cycles / np.minimum(f, scenario.f_max[0]) + seconds
    return np.where(f >= scenario.f_min[0], time, np.inf).min()


def test_law_prices__spend_the_budget_of_a_participation():
    law = law_of(ALIKE, alike=True)
    m, z = law_prices(law, ALIKE)
    allowed = ALIKE.energy_budget_j[0] / lyapunov.participation_target(ALIKE)[0]
    time = least_time(law.gain[0], law.probability[0], allowed, ALIKE)
    assert ALIKE.cohort_size * (z[0] - m[0] * allowed) == pytest.approx(time, rel=1e-6)
    # The price is how much time a joule more saves, for each of the K devices of a round.
    more = least_time(law.gain[0], law.probability[0], 1.02 * allowed, ALIKE)
    less = least_time(law.gain[0], law.probability[0], 0.98 * allowed, ALIKE)
    slope = (less - more) / (0.04 * allowed)
    assert m[0] == pytest.approx(slope / ALIKE.cohort_size, rel=1e-3)


def test_law_prices__no_cohort_is_cheaper_than_nothing():
    # The dual optimum: at these prices the best cohort of equal devices costs nothing, and of
    # others nothing less.
    for alike in (True, False):
        law = law_of(ALIKE, alike=alike)
        m, z = law_prices(law, ALIKE)
        solution = solve_round(law, m, z, ALIKE, V=1.0, tolerance=1e-9)
        assert solution.lower_bound >= -1e-6 * solution.deadline
        if alike:
            assert solution.objective == pytest.approx(0.0, abs=1e-5 * solution.deadline)


def test_law_prices__with_persistence_take_again_where_that_is_cheaper():
    # One power and one frequency: times are numbers, and the sets can be tried one by one.
    fixed = ALIKE.replace(f_min=1.5e9, f_max=1.5e9, p_min=0.05, p_max=0.05, energy_budget_j=1e6)
    law = law_of(fixed, alike=True)
    persistence = 0.8
    most = fixed.num_rounds * lyapunov.participation_target(fixed)[0]
    again = sum(persistence**k for k in range(1, round(most) + 1))
    seconds = upload(law.gain[0], 0.05, fixed)
    weight = law.probability[0]
    best = min(
        (seconds @ weight + again * (seconds * weight) @ chosen) / (1 + again * weight @ chosen)
        for chosen in (np.array([bit == "1" for bit in f"{code:05b}"]) for code in range(32))
    )
    m, z = law_prices(law, fixed, persistence=persistence)
    compute = fixed.cycles_per_round[0] / 1.5e9
    np.testing.assert_allclose(m, 0.0)  # energy abounds
    np.testing.assert_allclose(fixed.cohort_size * z, compute + best, rtol=1e-9)


def test_law_prices__what_persistence_brings_is_time_at_the_same_energy():
    law = law_of(ALIKE, alike=True)
    allowed = ALIKE.energy_budget_j[0] / lyapunov.participation_target(ALIKE)[0]
    times = []
    for persistence in (0.0, 0.3, 0.6, 0.9):
        m, z = law_prices(law, ALIKE, persistence=persistence)
        times.append(z[0] - m[0] * allowed)
    assert np.all(np.diff(times) < 0)


def test_law_prices__of_some_devices_and_with_a_cap():
    law = law_of(ALIKE, alike=False)
    only = np.array([True, False, False, True, False, False])
    m, z = law_prices(law, ALIKE)
    some = law_prices(law, ALIKE, only=only)
    np.testing.assert_array_equal(some.energy[only], m[only])
    np.testing.assert_array_equal(some.participation[only], z[only])
    assert np.isnan(some.energy[~only]).all()
    poor = law_prices(law, ALIKE.replace(energy_budget_j=1e-3), most=0.7)
    np.testing.assert_allclose(poor.energy, 0.7)


def test_law_prices__of_a_known_gain_are_those_of_a_law_that_says_it_twice():
    # Of the budgets the first two cannot be kept: the price ends where f and p are least.
    scenario = Scenario.cifar10(num_devices=4, energy_budget_j=[0.01, 0.1, 20.0, 1e5])
    gain = np.array([[0.02], [0.1], [0.2], [0.4]])
    twice = GainLaw(np.repeat(gain, 2, axis=1), np.full((4, 2), 0.5))
    expected = law_prices(twice, scenario)
    for _ in range(3):  # other numbers lie about in memory
        found = law_prices(GainLaw(gain, np.ones_like(gain)), scenario)
        np.testing.assert_allclose(found, expected, rtol=1e-6)

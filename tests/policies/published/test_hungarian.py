"""The policy of Chen et al. against exhaustive search and a numerical optimiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fl_edge_env import FLEdgeVectorEnv, Scenario, physics
from policies import check_policy
from policies.published import Hungarian

THRESHOLD = 0.7


def system(rng: np.random.Generator, **fields) -> Scenario:
    num_devices = int(rng.integers(2, 8))
    return Scenario(
        num_devices=num_devices,
        cohort_size=int(rng.integers(1, 4)),
        num_samples=rng.uniform(100, 900, num_devices),
        waterfall_threshold=THRESHOLD,
        **fields,
    )


def values(scenario: Scenario, gain: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Data that arrive of each device, on average."""
    return scenario.num_samples * np.exp(-THRESHOLD * scenario.noise_power_w / (gain * p))


@given(st.integers(0, 2**32 - 1))
def test_cohort__brings_most_data_among_those_within_the_limits(seed):
    """Of all cohorts, and by the assignment to blocks that has the method its name."""
    rng = np.random.default_rng(seed)
    scenario = system(rng)
    gain = rng.uniform(0.01, 0.5, scenario.num_devices)
    time_limit, energy_limit = rng.uniform(2000, 6000), rng.uniform(200, 900)
    policy = Hungarian(scenario, time_limit=time_limit, energy_limit=energy_limit)
    decision = policy.decide({"channel_gain": gain, "queue": np.zeros(scenario.num_devices)})
    chosen = decision.cohort[decision.cohort >= 0]
    time, energy = physics.time_and_energy(gain, decision.f, decision.p, scenario)
    allowed = np.flatnonzero((time <= time_limit) & (energy <= energy_limit * (1 + 1e-9)))
    value = values(scenario, gain, decision.p)
    if not len(allowed):
        assert chosen.tolist() == [np.argmax(value)]
        return
    assert set(chosen) <= set(allowed)
    size = min(scenario.cohort_size, len(allowed))
    best = max(value[list(cohort)].sum() for cohort in itertools.combinations(allowed, size))
    assert value[chosen].sum() == pytest.approx(best, rel=1e-12)
    edges = np.tile(value[allowed, None], scenario.cohort_size)
    rows, columns = optimize.linear_sum_assignment(edges, maximize=True)
    assert value[chosen].sum() == pytest.approx(edges[rows, columns].sum(), rel=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_power__is_the_largest_with_which_the_energy_is_within_its_limit(seed):
    rng = np.random.default_rng(seed)
    # So that uploading takes as much as computing, and limits bind.
    scenario = system(rng, cycles_per_sample=2e8, p_min=1e-4, p_max=10.0)
    gain = 10 ** rng.uniform(-2, -0.3, scenario.num_devices)
    limit = 10 ** rng.uniform(1, 3)
    f, p = Hungarian(scenario, energy_limit=limit).resources(gain)

    def energy(power: float, device: int, at: float | None = None) -> float:
        powers, frequency = np.array(scenario.p_min), np.array(scenario.f_min)
        powers[device] = power
        frequency[device] = scenario.f_min[device] if at is None else at
        return physics.time_and_energy(gain, frequency, powers, scenario)[1][device]

    for device in range(scenario.num_devices):
        low, high = 1e-4, 10.0
        if energy(low, device) >= limit:
            expected = low
        elif energy(high, device) <= limit:
            expected = high
        else:
            expected = optimize.brentq(lambda x, n=device: energy(x, n) - limit, low, high)
        assert p[device] == pytest.approx(expected, rel=1e-6)
        if expected == high:  # the frequency takes the rest, or is the largest
            spent = energy(high, device, f[device])
            inside = scenario.f_min[device] < f[device] < scenario.f_max[device]
            assert spent == pytest.approx(limit) if inside else spent <= limit * (1 + 1e-9)


def test_default_limits__are_the_deadline_and_what_uniform_sampling_may_spend():
    scenario = Scenario.cifar10(deadline_s=4000.0)
    observation, _ = FLEdgeVectorEnv(50, scenario).reset(seed=list(range(50)))
    decision = Hungarian(scenario).decide(observation)
    time, energy = physics.time_and_energy(
        observation["channel_gain"], decision.f, decision.p, scenario
    )
    share = 1 - (1 - 1 / 120) ** 2
    assert energy.max() <= 15.0 / share * (1 + 1e-9)
    assert energy.max() > 0.9 * 15.0 / share
    assert np.all(time[decision.participates] <= 4000.0)
    # Equal data: the best channels come first, without packet errors in the system too.
    best = np.sort(observation["channel_gain"], axis=-1)[:, -2:]
    chosen = np.take_along_axis(observation["channel_gain"], decision.cohort, axis=-1)
    np.testing.assert_array_equal(np.sort(chosen, axis=-1), best)


def test_policy__is_valid_and_chooses_among_the_available():
    scenario = Scenario.cifar10(num_devices=6, cohort_size=3, energy_budget_j=5000.0)
    check_policy(Hungarian(scenario))
    observation, _ = FLEdgeVectorEnv(2, scenario).reset(seed=[0, 1])
    there = np.array([[False] * 5 + [True], [True, True, False, True, False, True]])
    observation |= {"available": there}
    for limits, sizes in (({}, [1, 3]), ({"time_limit": 1e-6}, [1, 1])):  # which nobody meets
        participates = Hungarian(scenario, **limits).decide(observation).participates
        assert participates.sum(axis=1).tolist() == sizes
        assert not np.any(participates & ~there)


@pytest.mark.parametrize("name", ["threshold", "time_limit", "energy_limit"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_limits__are_positive(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Hungarian(Scenario.cifar10(), **{name: value})

"""The least energy by a completion time, against searches that know nothing of its price."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from fl_edge_env import Scenario, physics
from policies.published import LeastEnergy, MinEnergy
from policies.resources import shared_resources
from tests.policies.published.systems import EQUAL, SHARED, cohort_of

STRETCHES = st.sampled_from([1.001, 1.1, 1.5, 3.0])


def decided(rule, gain, members, scenario=SHARED):
    """Times and energies of the cohort, and the decision."""
    decision = rule(gain, np.zeros(gain.shape), scenario, members)
    f, p, *band = decision
    settled = physics.time_and_energy(gain, f, p, scenario, None, *band)
    return *(values[members] for values in settled), decision


def shortest(gain, members, scenario=SHARED) -> float:
    time, *_ = decided(LeastEnergy(completion_time=1.0), gain, members, scenario)
    return float(time.max())


def least_energy(gain, device, band, end, scenario) -> np.ndarray:
    """Of a device with each of several parts of the band: every frequency tried."""
    cycles = scenario.cycles_per_round[device]
    f = np.linspace(scenario.f_min[device], scenario.f_max[device], 2500)
    left = np.maximum(end - cycles / f, 1e-300)
    density = scenario.noise_power_w * scenario.cohort_size / scenario.bandwidth_hz
    with np.errstate(over="ignore"):
        snr = np.expm1(scenario.upload_bits * np.log(2) / (band[:, None] * left))
        wanted = snr * density * band[:, None] / gain[device]
    p = np.clip(wanted, scenario.p_min[device], scenario.p_max[device])
    rate = band[:, None] * np.log2(1 + gain[device] * p / (density * band[:, None]))
    energy = 0.5 * scenario.capacitance[device] * cycles * f**2 + p * scenario.upload_bits / rate
    return np.where(wanted <= scenario.p_max[device], energy, np.inf).min(axis=1)


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32 - 1), stretch=STRETCHES)
def test_least_energy__of_two_is_that_of_the_best_split_of_all(seed, stretch):
    gain, members, _ = cohort_of(seed)
    members &= np.cumsum(members) <= 2
    a, b = np.flatnonzero(members)
    time, energy, (_, _, band) = decided(LeastEnergy(stretch=stretch), gain, members)
    end = stretch * shortest(gain, members)
    np.testing.assert_allclose(time, end, rtol=1e-6)
    share = np.append(np.linspace(0.002, 0.998, 997), band[a] / SHARED.bandwidth_hz)
    of_a = least_energy(gain, a, share * SHARED.bandwidth_hz, end * (1 + 1e-9), SHARED)
    of_b = least_energy(gain, b, (1 - share) * SHARED.bandwidth_hz, end * (1 + 1e-9), SHARED)
    best = (of_a + of_b).min()
    assert best * (1 - 2e-3) <= energy.sum() <= best * (1 + 1e-6)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_least_energy__of_a_cohort_is_no_more_than_a_local_search_finds(seed):
    gain, members, of = cohort_of(seed)
    _, energy, (f, _, band) = decided(LeastEnergy(stretch=1.4), gain, members)
    end = 1.4 * shortest(gain, members)

    def settle(x):
        computing, share = end * x[: f[members].size], np.abs(x[f[members].size :])
        left, part = np.maximum(end - computing, 1e-9 * end), share * SHARED.bandwidth_hz
        with np.errstate(over="ignore"):
            power = of.noise * part * np.expm1(np.minimum(of.nats / (left * part), 50.0))
        return computing, power, left

    def total(x):
        computing, power, left = settle(x)
        return float(np.sum(0.5 * of.capacitance * of.cycles**3 / computing**2 + power * left))

    size, scale = f[members].size, energy.sum()
    rng = np.random.default_rng(seed)
    computing, share = of.cycles / f[members] / end, band[members] / SHARED.bandwidth_hz
    start = np.append(computing, share) * rng.uniform(0.97, 1.0, 2 * size)
    found = optimize.minimize(
        lambda x: total(x) / scale,
        start,
        method="SLSQP",
        bounds=[*zip(of.cycles / of.f_max / end, of.cycles / of.f_min / end, strict=True)]
        + [(1e-4, 1.0)] * size,
        constraints=[
            {"type": "ineq", "fun": lambda x: 1.0 - x[size:].sum()},
            {"type": "ineq", "fun": lambda x: (of.p_max - settle(x)[1]) / of.p_max},
        ],
        options={"maxiter": 300, "ftol": 1e-12},
    )
    assert scale <= max(found.fun * scale, total(np.append(computing, share))) * (1 + 1e-5)
    assert found.fun >= 1 - 1e-4


@pytest.mark.parametrize("split", ["shared", "equal"])
@pytest.mark.parametrize("bits", [SHARED.model_bits, 1e4])  # the latter soon sent at any power
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
def test_least_energy__falls_as_the_time_grows(split, bits, seed):
    scenario = SHARED.replace(bandwidth_split=split, model_bits=bits)
    gain, members, _ = cohort_of(seed, scenario)
    totals = []
    for stretch in (1.0, 1.2, 2.5, 40.0):
        end = stretch * shortest(gain, members, scenario)
        time, energy, _ = decided(LeastEnergy(completion_time=end), gain, members, scenario)
        assert time.max() <= end * (1 + 1e-6)
        totals.append(energy.sum())
    assert np.all(np.diff(totals) <= 1e-9 * totals[0])
    assert totals[-1] < 0.9 * totals[0]


@given(seed=st.integers(0, 2**32 - 1), stretch=STRETCHES)
def test_least_energy__with_equal_parts_is_that_of_each_device(seed, stretch):
    gain, members, _ = cohort_of(seed, EQUAL)
    time, energy, _ = decided(LeastEnergy(stretch=stretch), gain, members, EQUAL)
    end = stretch * shortest(gain, members, EQUAL)
    assert time.max() <= end * (1 + 1e-9)
    part = np.array([EQUAL.bandwidth_hz / EQUAL.cohort_size])
    for device, found in zip(np.flatnonzero(members), energy, strict=True):
        best = least_energy(gain, device, part, end * (1 + 1e-9), EQUAL)[0]
        assert best * (1 - 2e-3) <= found <= best * (1 + 1e-6)


def test_least_energy__of_a_cohort_that_is_late_anyway_is_as_fast_as_can_be():
    gain, members, of = cohort_of(1)
    time, _, (f, p, _) = decided(LeastEnergy(completion_time=1.0), gain, members)
    np.testing.assert_allclose(time, time[0], rtol=1e-9)
    assert np.all(f[members] == of.f_max)
    assert np.all(p[members] == of.p_max)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stretch": 0.9}, "stretch must be at least 1, got 0.9"),
        ({"completion_time": 0.0}, "completion_time must be positive"),
        ({"completion_time": 9.0, "stretch": 2.0}, "give one of them, got 2.0 and 9.0"),
    ],
)
def test_min_energy__names_a_wrong_number(given, message):
    with pytest.raises(ValueError, match=message):
        MinEnergy(SHARED, **given)


def test_yang2021__is_the_system_of_the_code():
    system = Scenario.preset("yang2021")
    assert (system.num_devices, system.cohort_size, system.bandwidth_split) == (50, 50, "shared")
    density = system.noise_power_w * system.cohort_size / system.bandwidth_hz
    assert 10 * np.log10(density / 1e-3) == pytest.approx(-174.0)
    loss = -128.1 - 37.6 * np.log10(system.channel.distances(50) / 1e3)
    assert 10 * np.log10(np.median(system.mean_gain)) == pytest.approx(np.median(loss), abs=0.3)
    assert system.cycles_per_round[0] == pytest.approx(4 * 5e6 * 20)  # v times bits times cycles
    assert Scenario.from_toml(system.to_toml()) == system


@given(seed=st.integers(0, 2**32 - 1), stretch=st.floats(1.1, 3.0))
def test_least_energy__is_that_of_the_joint_optimum_when_time_is_worth_little(seed, stretch):
    gain, members, of = cohort_of(seed)
    shortest, _ = of.together(of.p_max, of.waiting + of.cycles / of.f_max)
    end = float(stretch * shortest[0])
    rule = LeastEnergy(completion_time=end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at the mean gain nobody may meet it
        hurried = SHARED.replace(deadline_s=end)
    found = shared_resources(gain, np.ones(gain.size), members, hurried, V=1e-9)
    own = rule(gain, np.zeros(gain.size), SHARED, members)
    spent = []
    for f, p, bandwidth in (own, found):
        time, energy = physics.time_and_energy(gain, f, p, SHARED, bandwidth=bandwidth)
        assert time[members].max() <= end * (1 + 1e-8)
        spent.append(energy[members].sum())
    assert spent[0] == pytest.approx(spent[1], rel=1e-5)

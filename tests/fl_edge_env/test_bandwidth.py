"""The bandwidth of a decision: what it does to a round, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, Scenario, Simulator, physics
from fl_edge_env.allocation import LEAST_SHARE, highest
from tests.support import field_values

SYSTEM = Scenario.femnist(
    num_devices=6,
    cohort_size=3,
    num_rounds=4,
    bandwidth_hz=3e6,
    objective="outcome",
    initial_queue=5.0,
)
VALID: dict[str, Any] = {"f": SYSTEM.f_mid, "p": SYSTEM.p_mid, "cohort": [4, 0, 2]}
VALID_SETTINGS = SYSTEM.f_mid, SYSTEM.p_mid
PARTS = np.array([6e5, 0, 9e5, 0, 1.5e6, 0])


def play(scenario: Scenario, allocation: Allocation, seed: int = 0):
    """The round, and the observation after it."""
    batch = allocation.f.shape[:-1]
    simulator = Simulator(scenario, *batch)
    simulator.reset(list(range(seed, seed + (batch[0] if batch else 1))))
    return simulator.advance(allocation), simulator.observe()


def random_choice(scenario: Scenario, rng: np.random.Generator, *batch: int) -> dict[str, Any]:
    """Settings and a cohort of all sizes, filled up with -1."""
    shape, places = (*batch, scenario.num_devices), min(scenario.cohort_size, scenario.num_devices)
    cohort = np.argsort(rng.random(shape), axis=-1)[..., :places]
    cohort[np.arange(places) >= rng.integers(1, places + 1, (*batch, 1))] = -1
    return {
        "f": rng.uniform(scenario.f_min, scenario.f_max, shape),
        "p": rng.uniform(scenario.p_min, scenario.p_max, shape),
        "cohort": cohort,
    }


@given(
    field_values(3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([(), (3,)]),
    st.sampled_from(["penalty", "outcome"]),
)
def test_round__with_equal_parts_is_that_of_a_decision_without(fields, seed, batch, objective):
    scenario, rng = Scenario(**fields, objective=objective), np.random.default_rng(seed)
    chosen = random_choice(scenario, rng, *batch)
    others = rng.choice([0.0, 0.3, 1.0], chosen["f"].shape)  # which does not count
    part = np.where(Allocation(**chosen).participates, 1.0, others)
    part *= scenario.bandwidth_hz / scenario.cohort_size
    wanted = play(scenario, Allocation(**chosen))
    found = play(scenario, Allocation(**chosen, bandwidth=part))
    for one, other in zip(found, wanted, strict=True):
        for name, value in (other if isinstance(other, dict) else other.info()).items():
            ours = (one if isinstance(one, dict) else one.info())[name]
            np.testing.assert_allclose(ours, value, rtol=1e-12, err_msg=name)


@given(st.integers(0, 2**32 - 1))
def test_time_and_energy__follow_from_shannons_formula_with_noise_of_the_same_density(seed):
    rng = np.random.default_rng(seed)
    chosen = random_choice(SYSTEM, rng)
    band = rng.dirichlet(np.ones(6)) * SYSTEM.bandwidth_hz + 1.0
    gain = rng.uniform(0.01, 0.5, 6)
    time, energy = physics.time_and_energy(gain, chosen["f"], chosen["p"], SYSTEM, bandwidth=band)
    density = SYSTEM.noise_power_w * SYSTEM.cohort_size / SYSTEM.bandwidth_hz  # [W/Hz]
    for n in range(6):
        f, p, b = chosen["f"][n], chosen["p"][n], band[n]
        rate = b * math.log2(1 + gain[n] * p / (density * b))
        cycles = SYSTEM.local_epochs[n] * SYSTEM.cycles_per_sample[n] * SYSTEM.num_samples[n]
        assert time[n] == pytest.approx(cycles / f + SYSTEM.model_bits / rate, rel=1e-9)
        work = SYSTEM.capacitance[n] / 2 * cycles * f**2
        assert energy[n] == pytest.approx(work + p * SYSTEM.model_bits / rate, rel=1e-9)


@given(field_values(3), st.floats(-11.9, 0), st.floats(-11.9, 0), st.floats(0, 1), st.floats(0, 1))
def test_more_band__makes_no_device_slower_and_no_upload_dearer(fields, one, other, high, strong):
    scenario = Scenario(**fields)
    gain = scenario.channel.gain_min * (1 - strong) + scenario.channel.gain_max * strong
    p = scenario.p_min * (1 - high) + scenario.p_max * high
    less, more = (
        physics.time_and_energy(
            gain, scenario.f_mid, p, scenario, bandwidth=np.full(p.shape, 10**x * 1e6)
        )
        for x in sorted((one, other))
    )
    for values, before in zip(more, less, strict=True):
        assert np.all(values <= before * (1 + 1e-12))


def test_cohort_of_one__has_the_whole_band_and_is_faster_than_with_an_equal_part():
    chosen = VALID | {"cohort": [4]}
    whole = np.where(np.arange(6) == 4, SYSTEM.bandwidth_hz, 0.0)
    alone, _ = play(SYSTEM, Allocation(**chosen, bandwidth=whole))
    wasted, _ = play(SYSTEM, Allocation(**chosen))
    single, _ = play(
        SYSTEM.replace(cohort_size=1, noise_power_w=3 * SYSTEM.noise_power_w, V=1.0),
        Allocation(**chosen),
    )
    assert alone.round_time < wasted.round_time
    assert alone.round_time == pytest.approx(single.round_time, rel=1e-12)
    assert alone.energy_spent[4] == pytest.approx(single.energy_spent[4], rel=1e-12)


@pytest.mark.parametrize("fields", [{}, {"deadline_s": 1.0}])
def test_others__do_not_count_whatever_they_are_given(fields):
    plain = play(SYSTEM.replace(deadline_s=math.inf), Allocation(**VALID, bandwidth=PARTS))[0]
    if fields:  # the slowest is late
        fields = {"deadline_s": 0.999 * float(plain.round_time)}
    system = SYSTEM.replace(**fields)
    wanted = play(system, Allocation(**VALID, bandwidth=PARTS))
    other = PARTS + np.array([0, 3e6, 0, 1.0, 0, 1e-300])
    found = play(system, Allocation(**VALID, bandwidth=other))
    np.testing.assert_equal(found[0].info(), wanted[0].info())
    np.testing.assert_equal(found[1], wanted[1])


@pytest.mark.filterwarnings("ignore:no device meets the deadline")
@given(st.integers(0, 2**32 - 1))
def test_deadline_and_first__go_with_bandwidth(seed):
    rng = np.random.default_rng(seed)
    chosen = random_choice(SYSTEM, rng)
    cohort = chosen["cohort"][chosen["cohort"] >= 0]
    band = np.zeros(6)
    band[cohort] = rng.dirichlet(np.ones(cohort.size)) * SYSTEM.bandwidth_hz + 1e-3
    band *= min(1.0, SYSTEM.bandwidth_hz / band.sum())
    first = int(rng.integers(1, cohort.size + 1))
    simulator = Simulator(SYSTEM)
    simulator.reset([3])
    gain = simulator.channel_gain.copy()
    # What each would take, by a system in which the band of the one device is an equal part.
    times = {}
    for n in cohort.tolist():
        share = band[n] / SYSTEM.bandwidth_hz * SYSTEM.cohort_size
        alone = SYSTEM.replace(
            bandwidth_hz=share * SYSTEM.bandwidth_hz,
            noise_power_w=share * SYSTEM.noise_power_w,
            V=1.0,
            lambda_=1.0,
        )
        time, energy = physics.time_and_energy(gain, chosen["f"], chosen["p"], alone)
        times[n] = float(time[n]), float(energy[n])
    ordered = sorted(time for time, _ in times.values())
    deadline = float(rng.uniform(0.5, 1.5) * ordered[-1])
    end = min(deadline, ordered[first - 1])
    system = SYSTEM.replace(deadline_s=deadline, V=1.0, lambda_=1.0)
    decision = Allocation(**chosen, first=first, bandwidth=band)
    played, _ = play(system, decision, seed=3)
    assert played.round_time == pytest.approx(end, rel=1e-9)
    for n, (time, energy) in times.items():
        if abs(time - end) > 1e-6 * end:
            assert played.late[n] == (time > end)
        if time < end * (1 - 1e-6):
            assert played.energy_spent[n] == pytest.approx(energy, rel=1e-9)


@pytest.mark.parametrize("fields", [{}, {"availability": 0.3}, {"objective": "penalty"}])
def test_batch_and_flat__play_a_decision_as_the_single_environment(fields):
    scenario, seeds = SYSTEM.replace(**fields), [5, 6, 7]
    batch = FLEdgeVectorEnv(3, scenario, autoreset_mode="Disabled")
    flat = gym.make("FLEdgeFlat-v0", scenario=scenario)
    singles = [FLEdgeEnv(scenario) for _ in seeds]
    there = batch.reset(seed=seeds)[0].get("available", np.ones((3, 6)))
    flat.reset(seed=5)
    for single, seed in zip(singles, seeds, strict=True):
        single.reset(seed=seed)
    cohort = highest(np.random.default_rng(1).random((3, 6)), 3, there > 0)
    wide = np.tile(scenario.f_mid, (3, 1)), np.tile(scenario.p_mid, (3, 1))
    bandwidth = np.linspace(1e5, 1e6, 18).reshape(3, 6)
    together, reward, *_, info = batch.step(Allocation(*wide, cohort=cohort, bandwidth=bandwidth))
    for row, single in enumerate(singles):
        own = Allocation(*VALID_SETTINGS, cohort=cohort[row], bandwidth=bandwidth[row])
        observation, alone, _, _, told = single.step(own)
        np.testing.assert_equal({n: v[row] for n, v in together.items()}, observation)
        assert reward[row] == alone
        for name, value in told.items():
            np.testing.assert_array_equal(info[name][row], value)
        if row == 0:
            _, scaled, *_ = flat.step(own)
            assert scaled == flat.get_wrapper_attr("scaling").reward(alone)


# What is refused, and what is not


@pytest.mark.parametrize(
    "bandwidth",
    [
        [600_000, 0, 900_000, 0, 1_500_000, 0],
        PARTS.astype(int),
        PARTS.astype(np.float32),
        PARTS * (1 + 5e-8),  # rounded to 32 bits
        PARTS / 7,  # a part of the band may be left
        [3e-6, 0, 3e-6, 0, 3e-6, 0],
    ],
)
def test_validate__takes_lists_integers_rounding_and_what_leaves_a_rest(bandwidth):
    allocation = Allocation(**VALID, bandwidth=bandwidth)
    allocation.validate(SYSTEM)
    assert np.isfinite(play(SYSTEM, allocation)[0].device_time).all()


@given(field_values(5), st.integers(0, 2**32 - 1))
def test_round__with_the_least_parts_is_finite(fields, seed):
    scenario = Scenario(**fields)
    chosen = random_choice(scenario, np.random.default_rng(seed))
    least = np.full(scenario.num_devices, LEAST_SHARE * scenario.bandwidth_hz)
    played, observation = play(scenario, Allocation(**chosen, bandwidth=least), seed)
    for values in (played.device_time, played.energy_spent, played.reward, *observation.values()):
        assert np.isfinite(values).all()

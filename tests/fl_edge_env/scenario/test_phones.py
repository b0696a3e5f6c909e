"""Phones of measured speeds, and the presets that have near and far or fast and slow devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import CellChannel, Scenario, physics, with_phones, with_proportional_work
from fl_edge_env.scenario.phones import QUANTILES, SCORES, phone_speeds
from tests.support import ANY_SEED


@given(st.integers(1, 300), ANY_SEED)
def test_speeds__each_part_of_the_distribution_gives_one_phone(num_devices, seed):
    speed = np.sort(phone_speeds(num_devices, seed=seed))
    edges = np.interp(np.arange(num_devices + 1) / num_devices, QUANTILES, SCORES) / 1548
    assert np.all((speed >= edges[:-1] - 1e-12) & (speed <= edges[1:] + 1e-12))


def test_speeds__have_the_measured_quantiles_in_random_order():
    speed = phone_speeds(50_000)
    quantiles = np.quantile(speed, [0.05, 0.1, 0.5, 0.9])
    np.testing.assert_allclose(quantiles * 1548, [218, 274, 1548, 3414], rtol=1e-3)
    assert abs(np.corrcoef(speed, np.arange(50_000))[0, 1]) < 4 / np.sqrt(50_000)


def test_phones__power_and_energy_scale_with_budgets():
    scenario = Scenario.phones(num_devices=30)
    speed = phone_speeds(30)
    np.testing.assert_allclose(scenario.f_max, 2e9 * speed)
    np.testing.assert_allclose(scenario.f_min, 0.5 * scenario.f_max)
    np.testing.assert_allclose(scenario.capacitance * scenario.f_max**3 / 2, 0.8)
    compute = scenario.energy_per_hz2 * scenario.f_max**2
    np.testing.assert_allclose(compute / scenario.energy_budget_j, compute[0] / 15 * speed[0])


def test_with_phones__makes_the_devices_of_the_preset():
    mixed = with_phones(Scenario.cifar10())
    preset = Scenario.phones()
    for name in preset.per_device_fields:
        np.testing.assert_array_equal(getattr(mixed, name), getattr(preset, name))
    assert with_phones(Scenario.cifar10(), seed=1) != mixed
    with pytest.raises(ValueError, match="non-negative integer"):
        with_phones(Scenario.cifar10(), seed=-1)


def test_phones__every_budget_binds_inside_the_range():
    # A share of K w in the rounds at the mean gain: over budget at the top, below it at the bottom.
    scenario = Scenario.phones()
    share = scenario.cohort_size * scenario.weights
    low, high = (
        share * physics.time_and_energy(scenario.mean_gain, f, p, scenario)[1]
        for f, p in ((scenario.f_min, scenario.p_min), (scenario.f_max, scenario.p_max))
    )
    assert np.all(low < scenario.energy_budget_j)
    assert np.all(scenario.energy_budget_j < high)


def test_cell__differs_from_cifar10_in_channel_and_noise_alone():
    cell = Scenario.cell(num_devices=10)
    paper = Scenario.cifar10(num_devices=10)
    assert cell.channel == CellChannel()
    assert cell.replace(channel=paper.channel) == paper.replace(noise_density_w_hz=2e-8)
    assert Scenario.preset("cell", num_devices=10) == cell


@pytest.mark.filterwarnings("ignore:no sampled decision meets the energy budgets")
@pytest.mark.parametrize("name", ["cell", "phones", "mobile"])
def test_noise__is_the_papers_for_two_devices_a_round(name):
    preset = Scenario.preset(name, num_devices=9)
    paper = preset.replace(noise_power_w=0.01)
    assert (preset.noise_power_w, preset.V, preset.lambda_) == (0.01, paper.V, paper.lambda_)
    for size in (1, 8):
        made = preset.replace(cohort_size=size)
        assert made.noise_power_w == pytest.approx(0.01 * 2 / size, rel=1e-15)
        assert paper.replace(cohort_size=size).noise_power_w == 0.01


def test_with_proportional_work__all_compute_equally_long():
    scenario = Scenario.phones(num_samples=np.linspace(100.0, 700.0, 120))
    shared = with_proportional_work(scenario)
    times = shared.local_epochs * 3e9 * shared.num_samples / shared.f_max
    np.testing.assert_allclose(times, times[0], rtol=1e-12)
    samples = [np.sum(each.local_epochs * each.num_samples) for each in (scenario, shared)]
    assert samples[0] == pytest.approx(samples[1], rel=1e-12)

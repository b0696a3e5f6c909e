"""Calibration of lambda and V, and warnings of budgets and deadlines."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fl_edge_env import CellChannel, Scenario, physics
from fl_edge_env.scenario.presets import PRESETS


def test_calibration__follows_the_formulas_of_the_paper():
    scenario = Scenario.femnist(
        num_devices=4,
        cohort_size=3,
        f_max=[1e9, 2e9, 3e9, 4e9],
        energy_budget_j=[1, 2, 3, 4],
        mu=0.5,
        nu=11.0,
        download_rate_bps=1e7,
        channel=CellChannel(),
    )
    time, energy = physics.time_and_energy(
        scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario
    )
    assert scenario.lambda_ == pytest.approx(0.5 * time.mean(), rel=1e-12)
    excess = (1 - (1 - 1 / 4) ** 3) * energy - [1, 2, 3, 4]
    wanted = 11 * np.mean(excess**2) / (1.5 * time.mean())
    assert pytest.approx(wanted, rel=1e-12) == scenario.V


def test_weights__given_replace_calibrated_ones():
    calibrated = Scenario.cifar10(mu=0.5, nu=2e4)
    given = Scenario.cifar10(lambda_=calibrated.lambda_, nu=2e4)
    # lambda enters the calibration of V, whichever way it came.
    assert pytest.approx(calibrated.V) == given.V
    assert Scenario.cifar10(V=7.0).replace(energy_budget_j=30.0).V == 7.0
    assert Scenario.cifar10(lambda_=0).lambda_ == 0


def test_scenario__warns_of_a_budget_at_the_nominal_point():
    with pytest.warns(UserWarning, match=r"within 0.148 J of .* 10.5 J: .* V = 0.38 J"):
        Scenario.cifar10(energy_budget_j=10.5)
    with warnings.catch_warnings(action="error"):
        Scenario.cifar10(energy_budget_j=10.5, V=1e7)
        for name in PRESETS:
            Scenario.preset(name)


def test_scenario__warns_of_budgets_that_no_sampling_meets():
    # Alike devices, each drawn with 1/N: pi E = budget where the warning begins.
    scenario = Scenario.cifar10()
    _, energy = physics.time_and_energy(np.full(120, 0.1), scenario.f_min, scenario.p_min, scenario)
    least = float(energy[0]) * (1 - (1 - 1 / 120) ** 2)
    with warnings.catch_warnings(action="error"):
        Scenario.cifar10(energy_budget_j=1.001 * least)
    with pytest.warns(UserWarning, match=r"no sampled decision meets .* cover 99.9 % of"):
        Scenario.cifar10(energy_budget_j=0.999 * least)


def test_deadline__that_nobody_can_meet_is_a_warning():
    system = Scenario.femnist(num_devices=6)
    time, _ = physics.time_and_energy(system.mean_gain, system.f_max, system.p_max, system)
    least = time.min()
    message = f"at the mean gain: the fastest, device {time.argmin()}, takes {least:.6g}"
    with pytest.warns(UserWarning, match=message):
        system.replace(deadline_s=0.99 * least)
    system.replace(deadline_s=1.01 * least)  # a warning would be an error

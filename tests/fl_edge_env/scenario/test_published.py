"""Presets of published systems against the formulas of their authors' code."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario, physics


def test_chen2021__has_the_errors_times_and_energies_of_the_authors_code():
    scenario = Scenario.preset("chen2021")
    distance = 1 / np.sqrt(scenario.mean_gain)
    # Nine users, uniform in the distance: one in each ninth of the 500 m, within half a ninth.
    np.testing.assert_allclose(np.sort(distance), 500 * (np.arange(9) + 0.5) / 9, atol=28)
    power, gain = np.full(9, 0.01), distance**-2.0
    interference = (np.mean([0.05, 0.07, 0.09, 0.11, 0.13, 0.15]) - 0.04) * 1e-6
    error = 1 - np.exp(-1.08 * (interference + 1e-14) / power / gain)
    arrives = physics.arrival_probability(gain, power, scenario)
    np.testing.assert_allclose(1 - arrives, error, rtol=1e-6)
    mbit = 39760 * 16 / 1024 / 1024
    up = mbit / np.log2(1 + power * gain / interference)
    down = mbit / (20 * np.log2(1 + gain / (0.06 * 0.000003)))
    time, energy = physics.time_and_energy(gain, scenario.f_max, power, scenario)
    # They count 2^20 bits as a Mbit, and rates by 1 MHz.
    np.testing.assert_allclose(time, (up + down) * 2**20 / 1e6, rtol=1e-5)
    np.testing.assert_allclose(
        energy, 1e-27 * 40 * 1e18 * mbit + 0.01 * up * 2**20 / 1e6, rtol=1e-5
    )

"""A scenario of a federation's log: its times are the logged medians."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario, physics
from fl_edge_env.scenario.from_log import COLUMNS

N = 5
PARAMETERS = 10_000
CYCLES = np.geomspace(1e6, 2e7, N)
RATE = np.geomspace(2e5, 9e6, N)
SAMPLES = np.array([10, 30, 20, 55, 40])
EPOCHS = np.array([1.0, 2.0, 0.5, 3.0, 1.5])
TRAIN_S = CYCLES * SAMPLES * EPOCHS / 1e9


def log(rounds=12, cohort_size=3, bytes_up=4 * PARAMETERS) -> pd.DataFrame:
    """The log of a system whose participations always take the same times."""
    device = np.concatenate([(np.arange(cohort_size) + n) % N for n in range(rounds)])
    return pd.DataFrame(
        {
            "round": np.repeat(np.arange(rounds), cohort_size),
            "device": device,
            "samples": SAMPLES[device],
            "epochs": EPOCHS[device],
            "parameters": PARAMETERS,
            "bytes_up": bytes_up,
            "train_s": TRAIN_S[device],
            "up_s": 8.0 * bytes_up / RATE[device],
        }
    )


@pytest.fixture
def load(tmp_path):
    def load(table, **fields) -> Scenario:
        path = tmp_path / "log.csv"
        table.to_csv(path, index=False)
        return Scenario.from_log(path, **fields)

    return load


def times(scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """Times of training and of uploads at the channel's mean rates [s]."""
    channel = scenario.channel
    gain = channel.gain_of_rate(np.array(channel.mean_bps))
    up_s = physics.upload_time(gain, scenario.p_max, scenario)
    return physics.compute_time(scenario.f_max, scenario), up_s


@pytest.mark.parametrize(
    ("bytes_up", "compression"),
    [(40_000, "none"), (40_600, "none"), (39_500, "none"), (5_000, "bits:40000")],
)
def test_scenario__has_the_speeds_rates_and_times_of_the_log(load, bytes_up, compression):
    scenario = load(log(bytes_up=bytes_up))
    assert (scenario.num_devices, scenario.cohort_size) == (N, 3)
    assert scenario.model_bits == 32 * PARAMETERS
    assert scenario.compression == compression
    np.testing.assert_array_equal(scenario.num_samples, SAMPLES)
    np.testing.assert_array_equal(scenario.local_epochs, EPOCHS)
    np.testing.assert_allclose(times(scenario), [TRAIN_S, 8 * bytes_up / RATE])
    # Without noise a rate hardly varies, and budgets bind nobody.
    np.testing.assert_allclose(scenario.channel.deviation_bps, 0.03 * RATE, rtol=0.02)
    system = scenario.f_max, scenario.p_max, scenario
    _, energy = physics.time_and_energy(scenario.mean_gain, *system)
    np.testing.assert_allclose(scenario.energy_budget_j, 100 * energy, rtol=0.01)


def test_scenario__has_the_medians_of_varying_times(load):
    table = log(rounds=3000)
    rng = np.random.default_rng(0)
    rate = 8 * table["bytes_up"] / table["up_s"] * (1 + 0.2 * rng.standard_normal(len(table)))
    table["up_s"] = 8 * table["bytes_up"] / rate.clip(lower=1e3)
    table["train_s"] *= np.exp(0.3 * rng.standard_normal(len(table)))
    scenario = load(table)
    np.testing.assert_allclose(times(scenario)[0], table.groupby("device")["train_s"].median())
    np.testing.assert_allclose(scenario.channel.mean_bps, RATE, rtol=0.03)
    relative = np.divide(scenario.channel.deviation_bps, scenario.channel.mean_bps)
    np.testing.assert_allclose(relative, 0.2, rtol=0.05)
    table.loc[::9, ["train_s", "up_s"]] *= 1000.0
    far = load(table)
    np.testing.assert_allclose(far.cycles_per_sample, scenario.cycles_per_sample, rtol=0.1)
    np.testing.assert_allclose(far.channel.mean_bps, scenario.channel.mean_bps, rtol=0.1)


def test_devices__are_in_sorted_order_numbers_before_names(load):
    table = log()
    table["device"] = table["device"].map({0: "b, c", 1: 5000 * "1", 2: "9", 3: "NA", 4: "007"})
    scenario = load(table.iloc[::-1])
    np.testing.assert_array_equal(scenario.num_samples, SAMPLES[[4, 2, 1, 3, 0]])


def test_times__not_measured_are_the_median_of_others(load):
    table = log()
    table.loc[table["device"] == 2, "train_s"] = np.nan
    table.loc[table["device"] == 4, "up_s"] = np.nan
    table.loc[0, ["train_s", "up_s"]] = np.nan  # others of the device were
    scenario = load(table)
    np.testing.assert_allclose(
        scenario.cycles_per_sample,
        np.where(np.arange(N) == 2, np.median(CYCLES[[0, 1, 3, 4]]), CYCLES),
    )
    np.testing.assert_allclose(
        scenario.channel.mean_bps, np.where(np.arange(N) == 4, np.median(RATE[:4]), RATE)
    )


def test_fields__take_the_place_of_the_logs(load):
    scenario = load(log(), cohort_size=2, num_rounds=7, f_max=2e9, capacitance=[1e-27] * N)
    assert (scenario.cohort_size, scenario.num_rounds) == (2, 7)
    assert scenario.f_max[0] == 2e9
    # K changes no rate.
    np.testing.assert_allclose(times(scenario)[1], 8 * 4 * PARAMETERS / RATE)
    with pytest.raises(TypeError, match=r"'cohort', .*did you mean 'cohort_size'"):
        load(log(), cohort=2)
    with pytest.raises(ValueError, match="capacitance must"):
        load(log(), capacitance="fast")


HEAD = ",".join(COLUMNS)
ROW = "0,a,10,1,100,400,1.5,2.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}\n0,,9,1,100,400,1,2", "device must be a name, got '' in row 2"),
        (f"{HEAD}\n\n{ROW}\n{ROW}", "device must be unique in its round, got 'a' in row 4"),
        (f"{HEAD}\n{ROW}\n{ROW.replace('0', '00', 1)}", "device must be unique in its round"),
        (f"{HEAD}\n{ROW}\n1,a,9,1,99,400,1,2", "parameters must .* same in all rows, got '99' in"),
        (f"{HEAD}\n0,a,9,1,0.5,400,1,2", "parameters must be an integer, got '0.5' in row 2"),
        (f"{HEAD}\n0,a,9,1,100,400,,2", "train_s must have been measured at least once"),
    ],
)
def test_log__of_another_form_is_refused(tmp_path, text, message):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^cannot read the log '.*log.csv': {message}"):
        Scenario.from_log(path)

"""The system of a log, against the laws with which the log was simulated."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fl_edge_env import physics
from fl_edge_env.channels.uplink import gain_of_rate
from policies.measured.fit import fit, rests
from tests.policies.measured.federations import draw_truth, round_robin, simulate


def test_fit__estimates_are_as_far_from_the_truth_as_their_errors_say():
    scores, overheads = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = draw_truth(rng)
        fitted = fit(simulate(rng, truth, round_robin(truth, 40, 5)))
        scores.append(
            [
                np.log(fitted.seconds_per_sample / truth.seconds) / fitted.seconds_error,
                np.log(fitted.uplink_bps / truth.uplink_bps) / fitted.uplink_error,
            ]
        )
        overheads.append(fitted.overhead_s)
        assert fitted.download_bps == pytest.approx(truth.download_bps, rel=0.2)
        assert np.mean(np.log(fitted.train_spread / truth.spread)) == pytest.approx(0.0, abs=0.15)
    each = np.swapaxes(scores, 0, 1).reshape(2, -1)
    assert np.mean(each, axis=1) == pytest.approx(0.0, abs=0.12)
    assert np.std(each, axis=1) == pytest.approx(1.0, abs=0.1)
    assert np.mean(np.abs(each) < 1.96, axis=1) == pytest.approx(0.95, abs=0.025)
    assert np.mean(overheads) == pytest.approx(0.4, abs=0.01)


def test_fit__persistence_and_deviation_of_rates_are_recovered():
    found, ratio = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = draw_truth(rng, persistence=0.8)
        fitted = fit(simulate(rng, truth, round_robin(truth, 120, 5)))
        found.append(fitted.persistence)
        ratio.append(np.log(fitted.uplink_deviation_bps / truth.deviation_bps).mean())
    assert np.mean(found) == pytest.approx(0.8, abs=0.02)
    assert np.mean(ratio) == pytest.approx(0.0, abs=0.06)


def test_fit__uplink_is_the_gamma_law_with_the_moments_of_the_logarithm(rng):
    truth = draw_truth(rng)
    fitted = fit(simulate(rng, truth, round_robin(truth, 40, 5)))
    x = np.linspace(-60.0, 30.0, 400_001)  # logarithm of bytes a second
    for n in range(3):
        mean, deviation = fitted.uplink_bps[n] / 8, fitted.uplink_deviation_bps[n] / 8
        law = stats.gamma((mean / deviation) ** 2, scale=deviation**2 / mean)
        density = law.pdf(np.exp(x)) * np.exp(x) * (x[1] - x[0])
        first, second = density @ x, density @ x**2
        assert first == pytest.approx(fitted.upload.mean[n], rel=1e-6)
        assert second - first**2 == pytest.approx(fitted.upload.variance[n], rel=1e-6)


def test_scenario__has_the_times_of_the_fit(rng):
    truth = draw_truth(rng)
    fitted = fit(simulate(rng, truth, round_robin(truth, 20, 4)))
    scenario = fitted.scenario(cohort_size=3)
    channel = scenario.channel
    gain = gain_of_rate(
        fitted.uplink_bps,
        share_hz=channel.share_hz,
        power_w=channel.reference_power_w,
        noise_power_w=channel.noise_power_w,
    )
    time, energy = physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)
    bits = 32 * truth.parameters
    expected = (
        fitted.overhead_s
        + bits / fitted.download_bps
        + fitted.seconds_per_sample * truth.samples * truth.epochs
        + bits / fitted.uplink_bps
    )
    assert time == pytest.approx(expected)
    assert (scenario.num_rounds, scenario.num_devices, scenario.cohort_size) == (20, 20, 3)
    assert scenario.energy_budget_j == pytest.approx(100 * energy)
    assert scenario.f_min == pytest.approx(1e9)
    # A device really has these rates.
    gains = channel.draw(rng, 4000, 20)
    rates = physics.upload_rate(gains, scenario.p_max, scenario)
    assert rates.mean(axis=0) == pytest.approx(fitted.uplink_bps, rel=0.05)
    assert rates.std(axis=0) == pytest.approx(fitted.uplink_deviation_bps, rel=0.1)


def test_fit__measured_energies_and_frequencies_give_the_powers(rng):
    truth = draw_truth(rng)
    table = simulate(rng, truth, round_robin(truth, 40, 5))
    frequency = rng.uniform(1.0e9, 2.0e9, len(table))
    table["frequency_hz"] = frequency
    table["train_s"] *= 1.5e9 / frequency
    # 1 W at the middle of the range, and 0.7 W of sending.
    power = (frequency / 1.5e9) ** 3
    noise = np.exp(0.05 * rng.standard_normal(len(table)))
    table["energy_j"] = (power * table["train_s"] + 0.7 * table["up_s"]) * noise
    table.loc[::7, ["energy_j", "frequency_hz"]] = np.nan
    fitted = fit(table)
    assert fitted.power_w == pytest.approx(0.7, rel=0.1)
    median = 2.0 / (fitted.capacitance * 1.5e9**3)
    assert np.median(median) == pytest.approx(1.0, rel=0.15)
    assert np.median(fitted.seconds_per_sample / truth.seconds) == pytest.approx(1.0, rel=0.1)
    ranges = table.groupby("device")["frequency_hz"]
    assert fitted.f_min.tolist() == ranges.min().to_list()
    assert fitted.f_max.tolist() == ranges.max().to_list()
    assert not any("Energy" in sentence for sentence in fitted.unknown)
    assert fitted.scenario().p_max == pytest.approx(fitted.power_w)


def test_fit__exact_powers_at_one_frequency(rng):
    truth = draw_truth(rng)
    table = simulate(rng, truth, round_robin(truth, 20, 5))
    table["energy_j"] = 2.0 * table["train_s"] + 0.5 * table["up_s"]
    fitted = fit(table)
    assert fitted.power_w == pytest.approx(0.5)
    assert 0.5 * fitted.capacitance * 1e27 == pytest.approx(2.0)


def one_round(**columns) -> pd.DataFrame:
    row = {
        "round": 0,
        "device": ["b", "a"],
        "start_s": 5.0,
        "samples": 100.0,
        "epochs": 1.0,
        "parameters": 1000.0,
        "bytes_up": 4000.0,
        "bytes_down": 0.0,
        "train_s": [1.0, 2.0],
        "up_s": [0.5, 0.1],
        "down_s": 0.0,
    }
    return pd.DataFrame(row | columns)


def test_fit__one_row_a_device_is_that_row_and_what_is_unknown_is_said():
    fitted = fit(one_round())
    assert fitted.devices == ("a", "b")
    assert fitted.seconds_per_sample == pytest.approx([0.02, 0.01])
    assert fitted.uplink_bps == pytest.approx([320_000, 64_000], rel=1e-3)
    assert np.all(np.isinf(fitted.download_bps))
    assert (fitted.overhead_s, fitted.cohort_size, fitted.model_bits) == (0.0, 2, 32_000)
    said = " ".join(fitted.unknown)
    for word in ("overhead_s", "persistence", "two rows", "download", "1 GHz", "available"):
        assert word in said
    fitted.scenario()


def test_fit__a_device_with_one_row_leans_on_the_others_more_than_one_with_many(rng):
    truth = draw_truth(rng, devices=10, apart=0.2)
    cohorts = [*round_robin(truth, 20, 5)[:, 1:], np.arange(5)]
    fitted = fit(simulate(rng, truth, cohorts))
    few, many = (rows == fitted.rows for rows in (fitted.rows.min(), fitted.rows.max()))
    assert fitted.rows.min() == 1
    assert fitted.training.own[:-1][few].max() < fitted.training.own[:-1][many].min()
    assert fitted.seconds_error[few].min() > fitted.seconds_error[many].max()


def test_fit__size_of_the_upload_is_that_of_the_model_or_a_compression():
    packed = fit(one_round(bytes_up=1000.0))
    assert packed.compression == "bits:8000"
    assert packed.uplink_bps == pytest.approx([80_000, 16_000], rel=1e-3)
    # What goes with the model counts as part of the rate.
    tiny = fit(one_round(bytes_up=0.01))  # the least that can be sent is a bit
    assert tiny.compression == "bits:1"
    assert tiny.uplink_bps == pytest.approx([10, 2], rel=1e-3)
    tiny.scenario()
    larger = fit(one_round(bytes_up=4400.0))
    assert larger.compression == "none"
    assert larger.uplink_bps == pytest.approx([320_000, 64_000], rel=1e-3)
    with pytest.raises(ValueError, match="models of 1000 to 2000 parameters"):
        fit(one_round(parameters=[1000.0, 2000.0]))


def test_rests__leave_out_pauses_gaps_and_the_last_round():
    rounds = pd.concat(
        [
            one_round(round=number, start_s=start)
            for number, start in [(0, 0.0), (1, 2.6), (2, 5.3), (3, 300.0), (5, 310.0)]
        ]
    )
    expected = [2.6 - 2.1, 2.7 - 2.1, math.nan, math.nan, math.nan]
    assert rests(rounds).to_list() == pytest.approx(expected, nan_ok=True)
    assert fit(rounds).overhead_s == pytest.approx(0.55)


def test_fit__availability_is_that_of_on_and_off_spells(rng):
    truth = draw_truth(rng, devices=20)
    table = simulate(rng, truth, round_robin(truth, 40, 5))
    share = rng.uniform(0.3, 0.9, 20)
    spells = []
    for n in range(20):
        # On for 60 s times the odds of being on, off for 60 s on average.
        ends = np.cumsum(rng.exponential([60 * share[n] / (1 - share[n]), 60.0], (3000, 2)))
        on = np.column_stack([np.append(0.0, ends[1:-1:2]), ends[::2]])
        on = on[on[:, 0] < 40_000]
        spells.append(pd.DataFrame({"device": n, "from_s": on[:, 0], "to_s": on[:, 1]}))
    spells = pd.concat(spells)
    spells["to_s"] = spells["to_s"].clip(upper=40_000.0)
    fitted = fit(table, spells)
    assert fitted.availability == pytest.approx(share, abs=0.06)
    assert abs(np.mean(fitted.availability - share)) < 0.015
    # Of all devices together the rates of changing; each has its own.
    gap = table.groupby("round")["start_s"].min().diff().median()
    slow = np.exp(-gap * (1 / 60 + (1 - share.max()) / share.max() / 60))
    fast = np.exp(-gap * (1 / 60 + (1 - share.min()) / share.min() / 60))
    assert fast < fitted.availability_persistence < slow
    with pytest.raises(ValueError, match="availability is in the log, which has 0 and others"):
        fit(table, spells.assign(device="x"))

"""Recorded gains, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import RateTraceChannel, Scenario, TraceChannel
from fl_edge_env.channels.protocol import _check_draw as check_draw
from fl_edge_env.physics import upload_rate
from fl_edge_env.streams import episode_gains
from tests.support import little_memory


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([range(5), range(3)], names=["round", "device"])
    return pd.DataFrame({"gain": rng.uniform(0.01, 0.5, 15)}, index=index).reset_index()


def test_trace__replays_the_recorded_gains_and_starts_again(table, tmp_path: Path):
    path = tmp_path / "trace.csv"
    table.sample(frac=1, random_state=0).to_csv(path, index=False)
    channel = TraceChannel(str(path))
    recorded = table["gain"].to_numpy().reshape(5, 3)
    # Older versions of pandas read decimal numbers to the last digit but one.
    np.testing.assert_allclose(channel.trace, recorded, rtol=1e-13)
    recorded = channel.trace
    assert (channel.gain_min, channel.gain_max) == (recorded.min(), recorded.max())
    scenario = Scenario(num_devices=3, channel=channel, num_rounds=12)
    np.testing.assert_allclose(scenario.mean_gain, recorded.mean(axis=0))
    with pytest.raises(ValueError, match="has 3 devices and the scenario 4: set num_devices=3"):
        Scenario(num_devices=4, channel=channel)
    starts = set()
    for seed in range(40):
        gains = np.concatenate([*episode_gains(scenario, seed)])
        (start,) = np.flatnonzero((recorded == gains[0]).all(axis=1))
        np.testing.assert_array_equal(gains, recorded[(start + np.arange(12)) % 5])
        starts.add(start)
    assert starts == set(range(5))  # by chance once in 1,500 sets of seeds


def test_unordered__has_each_devices_distribution(table, tmp_path):
    table.to_csv(tmp_path / "trace.csv", index=False)
    channel = TraceChannel(tmp_path / "trace.csv")
    view = channel.unordered()
    for name in ("mean", "gain_min", "gain_max"):
        assert getattr(view, name) == getattr(channel, name)
    np.testing.assert_array_equal(view.device_mean(3), channel.device_mean(3))
    check_draw(view, 3)
    for draw in (view.draw, view.sample):
        drawn = draw(np.random.default_rng(0), 20_000, 3)
        for device in range(3):
            gains, counts = np.unique(drawn[:, device], return_counts=True)
            np.testing.assert_array_equal(gains, np.sort(channel.trace[:, device]))
            np.testing.assert_allclose(counts, 4000, rtol=0.1)
        # Neither devices nor successive rounds depend on each other.
        both = np.hstack([drawn[1:], drawn[:-1]])
        np.testing.assert_allclose(np.corrcoef(both.T), np.eye(6), atol=0.05)
    assert "trace.csv" not in repr(vars(view))


def test_rates__are_those_of_a_device_at_the_reference(table, tmp_path: Path):
    table["rate_bps"] = 1e7 * table.pop("gain")
    path = tmp_path / "rates.csv"
    table.to_csv(path, index=False)
    channel = RateTraceChannel(path, share_hz=4e6, reference_power_w=0.2, noise_power_w=0.03)
    fields = {"bandwidth_hz": 8e6, "p_max": 0.2, "noise_power_w": 0.03}
    scenario = Scenario(num_devices=3, cohort_size=2, channel=channel, **fields)
    rate = upload_rate(channel.trace, scenario.p_max, scenario)
    np.testing.assert_allclose(rate, table["rate_bps"].to_numpy().reshape(5, 3), rtol=1e-12)
    scenario.save(tmp_path / "scenario.toml")
    assert Scenario.load(tmp_path / "scenario.toml") == scenario
    assert scenario.replace(channel=f"rates:{path}").channel == RateTraceChannel(path)
    with pytest.raises(ValueError, match=r"the channel's gain_min must be .*finite, got inf"):
        scenario.replace(channel=RateTraceChannel(path, share_hz=100.0))
    with pytest.raises(ValueError, match="share_hz must be positive and finite, got 0"):
        RateTraceChannel(path, share_hz=0)


@pytest.mark.parametrize("pairs", ["00 10 11", "01 02", "10", "00 00", "00 01 11 11", "-30 -31"])
def test_trace__needs_one_row_for_each_pair_of_round_and_device(tmp_path, pairs):
    path = tmp_path / "trace.csv"
    rows = [f"{pair[:-1]},{pair[-1]},0.1" for pair in pairs.split()]
    path.write_text("\n".join(["round,device,gain", *rows]))
    message = "round must be" if "-" in pairs else "one row for each pair of round and device"
    with pytest.raises(ValueError, match=f"trace.csv': .*{message}"):
        TraceChannel(path)


def test_trace__of_few_rows_takes_little_memory(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("round,device,gain\n1000000000000000,0,0.1\n")
    with little_memory(), pytest.raises(ValueError, match="one row for each pair"):
        TraceChannel(path)

"""Recorded gains, and files that are none."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import RateTraceChannel, Scenario, Simulator, TraceChannel
from fl_edge_env.allocation import decode_action
from fl_edge_env.physics import upload_rate
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
    simulator = Simulator(scenario, 1)
    simulator.reset([0])
    allocation = decode_action(np.zeros((1, 3, 3)), scenario, 2.0)
    for index in range(12):
        seen = simulator.observe()["channel_gain"][0]
        np.testing.assert_allclose(seen, recorded[index % 5], rtol=1e-15)
        simulator.advance(allocation)


def test_rates__are_those_of_a_device_at_the_reference(table, tmp_path: Path):
    table["rate_bps"] = 1e7 * table.pop("gain")
    path = tmp_path / "rates.csv"
    table.to_csv(path, index=False)
    channel = RateTraceChannel(path, share_hz=4e6, reference_power_w=0.2, noise_power_w=0.03)
    scenario = Scenario(
        num_devices=3,
        cohort_size=2,
        bandwidth_hz=8e6,
        p_max=0.2,
        noise_power_w=0.03,
        channel=channel,
    )
    rate = upload_rate(channel.trace, np.full(3, 0.2), scenario)
    np.testing.assert_allclose(rate, table["rate_bps"].to_numpy().reshape(5, 3), rtol=1e-12)
    scenario.save(tmp_path / "scenario.toml")
    assert Scenario.load(tmp_path / "scenario.toml") == scenario
    assert scenario.replace(channel=f"rates:{path}").channel == RateTraceChannel(path)
    with pytest.raises(ValueError, match=r"columns round, device and gain: .*'gain'"):
        TraceChannel(path)
    with pytest.raises(ValueError, match=r"the channel's gain_min must be .*finite, got inf"):
        scenario.replace(channel=RateTraceChannel(path, share_hz=100.0))


def count(*rows: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["round", "device"], dtype=np.float64).assign(gain=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="gain"), "cannot read the trace .*gain"),
        (lambda t: t.iloc[:-1], "one row for each pair of round and device"),
        (lambda t: t.assign(device=t.device + 1), "counted from 0"),
        (lambda t: t.assign(gain=-t.gain), "gain must be positive and finite"),
        (lambda t: t.assign(gain=t.gain.where(t.index > 3)), "gain must be positive and finite"),
        (lambda t: t.assign(gain="loud"), "cannot read the trace"),
        (lambda t: t.iloc[:0], "must have rows, got none"),
        (lambda _: bytes(range(256)), "cannot read the trace"),
        (lambda _: count((1e15, 0)), "one row for each pair"),
        (lambda _: count((math.nan, 0), (0, 0)), "one row for each pair"),
        (lambda _: count((-3, -6), (-3, -5), (-3, -4), (-3, -3)), "one row for each pair"),
        (lambda _: count((0, 0), (0, 1), (0.5, 1)), "one row for each pair"),
        (lambda _: count((0, 0), (0, 0)), "one row for each pair"),
    ],
)
def test_trace__a_table_of_another_form_is_refused_at_once(table, tmp_path, change, message):
    path = tmp_path / "trace.csv"
    content = change(table)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content.to_csv(path, index=False)
    with little_memory(), pytest.raises(ValueError, match=message) as raised:
        TraceChannel(path)
    assert "trace.csv" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.csv", "cannot read the trace .*nothing.csv"),
        ("/dev/zero", "it is not a regular file"),
        ("pipe.csv", "it is not a regular file"),
    ],
)
def test_trace__a_missing_file_a_pipe_or_a_device_is_refused(tmp_path, name, message):
    if name == "pipe.csv":
        os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        TraceChannel(tmp_path / name)

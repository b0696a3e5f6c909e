"""Recorded gains, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario, TraceChannel
from fl_edge_env.channels.protocol import _check_draw as check_draw
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
    gains = channel.recording.gains.reshape(3, 5).T
    np.testing.assert_allclose(gains, recorded, rtol=1e-13)
    recorded = gains
    assert (channel.gain_min, channel.gain_max) == (recorded.min(), recorded.max())
    with pytest.warns(UserWarning, match="each run of 12 rounds plays all 5 recorded rounds"):
        scenario = Scenario(num_devices=3, channel=channel, num_rounds=12)
    np.testing.assert_allclose(scenario.mean_gain, recorded.mean(axis=0))
    with pytest.raises(ValueError, match="has 3 devices and the scenario 4: set num_devices=3"):
        Scenario(num_devices=4, num_rounds=4, channel=channel)
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
            np.testing.assert_array_equal(
                gains, np.sort(channel.recording.gains.reshape(3, 5)[device])
            )
            np.testing.assert_allclose(counts, 4000, rtol=0.1)
        # Neither devices nor successive rounds depend on each other.
        both = np.hstack([drawn[1:], drawn[:-1]])
        np.testing.assert_allclose(np.corrcoef(both.T), np.eye(6), atol=0.05)
    assert "trace.csv" not in repr(vars(view))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,0 0,1 1,1 2,0 2,1", "it lacks device 0 in round 1"),
        ("0,0 0,1 1,1 1,0 2,0", "it lacks device 1 in round 2"),
        ("0,0 0,1 2,0 2,1", "it lacks device 0 in round 1"),
        ("0,0 0,1 0,1 1,0", "it has device 1 in round 0 twice"),
        ("1,0 1,1 2,0 2,1", "rounds must count from 0, but begin at 1"),
        ("1700000000,0 1700000060,0", "rounds must count from 0, but begin at 1700000000"),
        ("0,1 0,2", "devices must count from 0, but begin at 1"),
        ("-3,0", "round must be an integer from 0, got '-3' in row 2"),
        ("0,1000000000000000 0,0", "it lacks device 1 in round 0"),
    ],
)
def test_trace__names_the_first_pair_that_is_wrong(tmp_path, rows, message):
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["round,device,gain", *(f"{row},0.1" for row in rows.split())]))
    with little_memory(), pytest.raises(ValueError, match=f"trace.csv': {message}"):
        TraceChannel(path)


def test_trace__may_have_a_column_for_each_device(table, tmp_path):
    table.to_csv(tmp_path / "long.csv", index=False)
    wide = table.pivot(index="round", columns="device", values="gain")
    wide.sample(frac=1, random_state=0).to_csv(tmp_path / "wide.csv")
    assert TraceChannel(tmp_path / "wide.csv") == TraceChannel(tmp_path / "long.csv")
    wide.drop(index=3).to_csv(tmp_path / "wide.csv")
    with pytest.raises(ValueError, match=r"wide.csv': it lacks device 0 in round 3"):
        TraceChannel(tmp_path / "wide.csv")
    (tmp_path / "wide.csv").write_text("round,one,one\n0,0.1,0.2\n")
    with pytest.raises(ValueError, match="must name the columns round, one, got 'round', 'one'"):
        TraceChannel(tmp_path / "wide.csv")


def test_trace__devices_apart_begin_at_rounds_of_their_own(table, tmp_path):
    table.to_csv(tmp_path / "trace.csv", index=False)
    fields = {"num_devices": 3, "num_rounds": 5}
    with pytest.warns(UserWarning, match="each run of 5 rounds plays all 5 recorded rounds"):
        Scenario(channel=TraceChannel(tmp_path / "trace.csv"), **fields)
    channel = TraceChannel(tmp_path / "trace.csv", apart=True)
    recorded = TraceChannel(tmp_path / "trace.csv").recording.gains.reshape(3, 5)
    scenario = Scenario(channel=channel, **fields)
    starts = set()
    for seed in range(60):
        gains = np.concatenate([*episode_gains(scenario, seed, block_rounds=2)])
        place = [int(np.flatnonzero(recorded[n] == gains[0, n])[0]) for n in range(3)]
        for device, start in enumerate(place):
            expected = recorded[device, (start + np.arange(5)) % 5]
            np.testing.assert_array_equal(gains[:, device], expected)
        starts.add(tuple(place))
    assert len(starts) > 30  # of 125


def test_trace__in_decibels_is_told(table, tmp_path):
    path = tmp_path / "trace.csv"
    table.assign(gain=-100.0).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"for dB: 10 \*\* \(dB / 10\)\), got '-100.0' in row 2"):
        TraceChannel(path)
    table.assign(gain=100.0).to_csv(path, index=False)
    with pytest.warns(UserWarning, match="gains are 100 on average, .*are they in dB"):
        Scenario(num_devices=3, num_rounds=4, channel=TraceChannel(path))
    table.assign(gain=1e-10).to_csv(path, index=False)
    with pytest.warns(UserWarning, match=r"does the noise of 0.01 W belong to these gains\?"):
        Scenario(num_devices=3, num_rounds=4, channel=TraceChannel(path))

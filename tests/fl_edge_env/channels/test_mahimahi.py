"""Mahimahi's recorded links: rates by hand, the trace that comes of them, and damaged files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from fl_edge_env.channels.mahimahi import mean_rates, read_packets, record_mahimahi
from fl_edge_env.streams import episode_gains
from tests.support import outcome


def written(path: Path, times: list[int]) -> Path:
    path.write_text("".join(f"{time}\n" for time in times))
    return path


def test_mahimahi__rates_by_hand(tmp_path):
    # 2 packets until 100 ms, 1 until 200, 3 until 250, where it begins again: 2 more until 350.
    times = read_packets(written(tmp_path / "link.up", [0, 70, 200, 210, 210, 250]))
    rates = mean_rates(times, 0.1, 5)
    # (0, 100]: 0, 70. (100, 200]: 200. (200, 300]: 210, 210, 250, and 0 of the second turn.
    # (300, 400]: 70. (400, 500]: 450, 460, 460, 500.
    np.testing.assert_allclose(rates, np.array([2, 1, 4, 1, 4]) * 12_000 / 0.1)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=60).filter(any),
    st.integers(1, 7000),
    st.integers(1, 20),
)
def test_mahimahi__windows_count_each_packet_once(times, window_ms, count):
    times = np.sort(np.array(times))
    rates = mean_rates(times, 1e-3 * window_ms, count)
    end, period = window_ms * count, times[-1]
    # The link played packet by packet.
    played = [t + k * period for k in range(end // period + 1) for t in times]
    expected = sum(t <= end for t in played if t > 0) + np.count_nonzero(times == 0)
    # At the end of a turn the packets of time zero of the next one have not begun.
    if end % period == 0:
        expected -= np.count_nonzero(times == 0)
    assert np.all(rates >= 0)
    assert rates.sum() * 1e-3 * window_ms / 12_000 == pytest.approx(expected)


def test_record__gives_a_device_the_rates_of_its_link(tmp_path):
    slow = written(tmp_path / "slow.up", [500, 1000])  # two packets a second
    fast = written(tmp_path / "fast.up", [*range(1, 1001), *[1000] * 500, 3000])
    channel = record_mahimahi(
        [slow, fast, slow], tmp_path / "t.csv", window_s=1, least_rate_bps=3e4
    )
    assert channel.trace.shape == (3, 3)
    scenario = Scenario(num_devices=3, bandwidth_hz=10e6, channel=channel, num_rounds=4)
    gains = np.concatenate(list(episode_gains(scenario, 0)))
    rates = physics.upload_rate(gains, np.full(3, 0.1), scenario)
    # 1500 packets in the fast link's first second, then none, then one.
    expected = [3e4, 18e6], [3e4, 3e4], [3e4, 3e4], [3e4, 18e6]
    np.testing.assert_allclose(rates[:, :2], expected, rtol=1e-9)
    np.testing.assert_array_equal(gains[:, 0], gains[:, 2])
    longer = record_mahimahi([slow], tmp_path / "longer.csv", window_s=0.4, rounds=7)
    assert longer.trace.shape == (7, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0\n0\n", "it must end at a time above zero"),
        (b"1\n3\n2\n", "times must ascend, got 2 after 3 in line 3"),
        (b"1\n-2\n", "line 2 must be a time in milliseconds, got '-2'"),
        (b"9" * 5000, "line 1 must be a time in milliseconds, got '999"),
        (bytes(range(256)), "link.up"),
    ],
)
def test_mahimahi__a_file_of_another_form_is_refused(tmp_path, content, message):
    path = tmp_path / "link.up"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_packets(path)
    assert repr(str(path)) in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.binary(max_size=40))
def test_mahimahi__any_file_is_read_or_named(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("link") / "link.up"
    path.write_bytes(content)
    times, message = outcome(lambda: read_packets(path))
    if message:
        assert message.startswith(f"cannot read the packets of {str(path)!r}: ")
    else:
        assert np.isfinite(mean_rates(times, 0.1, 3)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": []}, r"links must be one or more files of Mahimahi, got \[\]"),
        ({"path": "trace.parquet"}, "path must end in .csv, got 'trace.parquet'"),
        ({"window_s": 0}, "window_s must be positive and finite, got 0"),
        ({"least_rate_bps": math.nan}, "least_rate_bps must be positive and finite, got nan"),
        ({"window_s": 1e-320}, "would have inf rounds of 1 devices, .*choose a larger window_s"),
        ({"rounds": 10**8}, r"would have 1e\+08 rounds of 1 devices, .*choose a larger window_s"),
        ({"share_hz": 1e3}, r"a rate of 1.2e\+07 bit/s needs a gain without bounds"),
    ],
)
def test_record__wrong_input_is_named(tmp_path, changes, message):
    link = written(tmp_path / "link.up", [1])
    given = {"links": [link], "path": tmp_path / "trace.csv", "window_s": 1.0} | changes
    with pytest.raises(ValueError, match=message):
        record_mahimahi(given.pop("links"), given.pop("path"), **given)

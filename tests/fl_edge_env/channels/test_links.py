"""Measured links, and files that are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fl_edge_env import LinkChannel, Scenario
from fl_edge_env.channels.links import delivery_rate
from fl_edge_env.physics import upload_rate
from fl_edge_env.streams import episode_gains

SYSTEM = {"bandwidth_hz": 10e6, "noise_density_w_hz": 2e-9, "p_max": 0.2}


def rates_of(scenario, gains):
    """Rate of each device at full power [bit/s]."""
    return upload_rate(gains, scenario.p_max, scenario)


@given(
    st.lists(st.tuples(st.sampled_from([0.5, 1, 3]), st.sampled_from([0, 2, 7, 50])), min_size=1),
    st.sampled_from([1, 12, 14, 900]),
)
def test_rate__is_that_of_the_earliest_delivery(intervals, upload):
    lasts, rates = np.array(intervals, dtype=float).T
    times = np.cumsum([0, *lasts])
    bits = np.cumsum([0, *rates * lasts])
    assume(bits[-1] > 0)
    turns = int(upload // bits[-1]) + 3
    ends = np.cumsum(np.tile(lasts, turns))

    def delivered(start, end):
        """Bits that the link delivers between two times, interval by interval."""
        inside = np.minimum(ends, end) - np.maximum(ends - np.tile(lasts, turns), start)
        return np.tile(rates, turns) @ np.maximum(inside, 0)

    for start, rate in enumerate(delivery_rate(times, bits, upload)):
        end = start + upload / rate
        assert delivered(start, end) == pytest.approx(upload)
        assert delivered(start, end - 1e-6) < upload - 1e-7


@pytest.fixture
def folder(tmp_path):
    """Links of 12 s, 48 kbit/s after a second without a packet; and 8 s, 0.5 Mbit/s but for two."""
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a.up").write_text("\n".join(map(str, range(1000, 12_001, 250))))
    (folder / "b.csv").write_text("time [s],rate [Mbit/s]\n20,0.5\n22,0\n24,0.5\n26,0.5\n")
    (folder / "notes.txt").write_text("not a link")
    return folder


def test_links__give_devices_their_files_rates_from_own_starts(folder):
    fields = {"num_devices": 5, "num_rounds": 22, "model_bits": 6e5}
    scenario = Scenario(channel=LinkChannel(folder, step_s=3), **fields, **SYSTEM)
    # A device comes by all seconds, as the first link's twelfth is left out.
    times = [14.5, *[13.5] * 10], [1.2, 3.2, 3.2, 2.2, 1.2, 1.2, 1.2, 1.2]
    starts = set()
    for seed in range(20):
        gains = np.concatenate([*episode_gains(scenario, seed, block_rounds=5)])
        rates = rates_of(scenario, gains)
        for device in range(5):
            due = 6e5 / np.array(times[device % 2])
            played = rates[: len(due), device]
            np.testing.assert_allclose(np.sort(played), np.sort(due))
            np.testing.assert_allclose(rates[len(due) :, device], np.resize(played, 22)[len(due) :])
        starts.add(tuple(gains[0]))
    assert len(starts) > 15
    np.testing.assert_allclose(scenario.mean_gain[[0, 3]], scenario.mean_gain[[2, 1]])


def test_links__of_the_whole_band_are_shared_by_the_cohort(folder):
    own = Scenario(num_devices=2, channel=LinkChannel(folder, step_s=3), **SYSTEM)
    whole = own.replace(channel=LinkChannel(folder, 3, share_hz=10e6))
    gains = [each.channel.recording.gains[:, None] for each in (own, whole)]
    rates = rates_of(own, gains[0])
    in_whole = upload_rate(gains[1], 0.2, whole, bandwidth=np.full(2, 10e6))
    np.testing.assert_allclose(in_whole, rates)
    assert np.all(rates_of(whole, gains[1]) < rates)
    with pytest.warns(UserWarning, match=r"gains are \S+e\+.* need a larger bandwidth_hz, such as"):
        own.replace(bandwidth_hz=1e4)
    # The rates of a scenario with other uploads are others.
    assert own.replace(compression="qsgd:4") != own.replace(compression="qsgd:4").replace(mu=2)
    assert own.replace(compression="qsgd:4").replace(compression="none") == own


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.up", "", "it must have rows, got none"),
        ("a.up", "0\n500\n", r"at least step_s = 20 s, got 0 bits in 0 s"),
        ("a.up", "0\n30000\n20000\n", r"time \[ms\] must not be before the .*'20000' in row 3"),
        ("a.up", "0\nnan\n", r"time \[ms\] must be an integer from 0, got 'nan' in row 2"),
        ("a.up", "0,12\n", "a row must have 1 fields, got '0,12' in row 1"),
        ("a.csv", "time [s],rate [bit/s]\n0,0\n99,0\n", "got 0 bits in 198 s"),
        ("a.csv", "time [s],rate [bit/s]\n0,5\n", "got 0 bits in 0 s"),
        ("a.csv", "time [s],rate [bit/s]\n0,5\n0,5\n", "be after the last one, got '0' in row 3"),
        ("a.csv", "time [s],rate [bit/s]\n0,5\n9,nan\n", "at least zero .*got 'nan' in row 3"),
        (
            "a.csv",
            "time [s],rate [kB/s]\n0,5\n",
            r"rate \[bit/s\] or rate \[Mbit/s\].*'rate \[kB/s",
        ),
    ],
)
def test_links__a_wrong_file_is_named_with_its_row(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"cannot read the link '.*{name}': .*{message}") as error:
        Scenario(channel=f"links:{tmp_path}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share_hz": 0}, "share_hz must be positive and finite, got 0"),
        ({"share_hz": "5"}, "share_hz must be positive and finite, got '5'"),
        ({"step_s": 1.5}, "step_s must be an integer of at least 1, got 1.5"),
    ],
)
def test_links__wrong_options_are_named(folder, options, message):
    with pytest.raises(ValueError, match=message):
        Scenario(channel=LinkChannel(folder, **{"step_s": 3, **options}))


def test_links__need_a_folder_with_links(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=r"the folder of links '.*' has no .up or .csv files"):
            LinkChannel(folder)

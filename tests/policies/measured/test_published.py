"""FedScale's files and Flower's metrics, worked out by hand, and hostile ones."""

from __future__ import annotations

import math
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from policies.measured import read_fedscale_availability, read_fedscale_devices, read_flower
from policies.measured.log import COLUMNS
from tests.support import Malicious, little_memory

DEVICES = {
    7: {"computation": 162.0, "communication": 5000.0},
    3: {"computation": 10, "communication": 100.0},
}
# Two spells, of which the second outlasts the trace; one of no length, and one after the end.
AVAILABILITY = {
    7: {
        "duration": 90,
        "model": "phone",
        "finish_time": 100,
        "active": [0, 80, 95, 120],
        "inactive": [50, 80, 110, 130],
    },
    3: {"finish_time": 100, "active": [10], "inactive": [20, 30]},
}


def pickled(path: Path, content: object) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscale__times_are_those_of_its_simulator(tmp_path, protocol):
    path = pickled(tmp_path / "devices", pickle.dumps(DEVICES, protocol))
    table = read_fedscale_devices(path, samples=50, parameters=128_000, epochs=2)
    assert list(table.columns) == list(COLUMNS)
    # Client 3: 3 * 10 ms for each of 100 samples; 128,000 * 32 bits are 4000 kbit of 1024 bits.
    # round device start_s samples epochs parameters bytes_up bytes_down train_s up_s down_s
    assert table.to_numpy().tolist() == [
        [0, 3, 0, 50, 2, 128_000, 512_000, 512_000, 3.0, 40.0, 40.0],
        [0, 7, 0, 50, 2, 128_000, 512_000, 512_000, pytest.approx(48.6), 0.8, 0.8],
    ]


def test_fedscale__availability_ends_with_the_trace(tmp_path):
    spells = read_fedscale_availability(pickled(tmp_path / "trace", AVAILABILITY))
    assert list(spells.columns) == ["device", "from_s", "to_s"]
    assert spells.to_numpy().tolist() == [[3, 10, 20], [7, 0, 50], [7, 95, 100]]


def nested_key(depth: int) -> bytes:
    """A dictionary whose key is so deep in tuples that its hash overflows the stack."""
    return b"\x80\x02}K\x01" + b"\x85" * depth + b"K\x01s."


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "pickle exhausted"),
        (pickle.dumps([1, 2]), r"must hold a dictionary .* got \[1, 2\]"),
        (pickle.dumps({}), "must hold a dictionary"),
        ({7: {"computation": 1.0}}, "needs computation and communication; client 7 has"),
        ({7: {"computation": 1.0, "communication": 0}}, "communication of client 7 must be pos"),
        ({7: {"computation": "1", "communication": 1}}, "computation of client 7 must be .* '1'"),
        (
            {7: {"computation": math.nan, "communication": 1}},
            "computation of client 7 must be positive and finite, got nan",
        ),
        ({7: {"computation": np.float64(1), "communication": 1}}, "it holds a tuple.*NumPy's"),
        (b"cposix\nsystem\n.", r"it holds posix\.system, .*could run code"),
        (nested_key(3_000_000), "it holds a tuple"),
        (b"\x80\x02K\x01r" + struct.pack("<I", 2**32 - 1) + b".", "it announces 4294967295"),
        (b"\x80\x04\x96" + struct.pack("<Q", 2**62) + b".", "expected 4611686018427387904 bytes"),
    ],
)
def test_fedscale__what_is_no_capacity_is_refused(tmp_path, content, part):
    path = pickled(tmp_path / "devices", content)
    with (
        little_memory(),
        pytest.raises(ValueError, match=f"cannot read FedScale's devices .*{part}"),
    ):
        read_fedscale_devices(path, samples=1, parameters=1)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscale__code_in_a_file_does_not_run(tmp_path, protocol):
    victim = tmp_path / "victim"
    path = pickled(tmp_path / "trace", pickle.dumps({7: Malicious(victim)}, protocol))
    for read in (
        read_fedscale_availability,
        lambda path: read_fedscale_devices(path, samples=1, parameters=1),
    ):
        with pytest.raises(ValueError, match="could run code when they are unpickled"):
            read(path)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"active": [10, 30, 40]}, "client 3 becomes active 3 times, and inactive only 2 times"),
        ({"active": [25]}, "client 3 is active from 25.0 to 20.0"),
        ({"active": 10}, "active of client 3 must be a list of times, got 10"),
        ({"active": ["10"]}, "each time in active of client 3 must be at least zero"),
        ({"active": [10, 15]}, "spells of a device must not overlap"),
        ({"finish_time": 0}, "finish_time of client 3 must be positive"),
        ({"finish_time": 5}, "it must have rows"),
    ],
)
def test_fedscale__what_is_no_availability_is_refused(tmp_path, changes, part):
    path = pickled(tmp_path / "trace", {3: AVAILABILITY[3] | changes})
    with pytest.raises(ValueError, match=f"cannot read FedScale's availability .*{part}"):
        read_fedscale_availability(path)


def record(devices: list[int], start_s: float) -> dict[str, object]:
    """A round of Flower's metrics, with another number beside the log."""
    rows = {name: [1.0] * len(devices) for name in COLUMNS if name != "round"}
    return rows | {"device": devices, "start_s": [start_s] * len(devices), "train-loss": 2.3}


def test_flower__rounds_become_rows():
    table = read_flower({1: record([4, 2], 0.0), 2: {"train-loss": 2.0}, 3: record([4], 9.0)})
    assert list(table.columns) == list(COLUMNS)
    assert table[["round", "device", "start_s"]].to_numpy().tolist() == [
        [1, 2, 0],
        [1, 4, 0],
        [3, 4, 9],
    ]
    assert (table[["samples", "up_s"]] == 1).all(axis=None)
    energy = read_flower({1: record([4, 2], 0.0) | {"energy_j": [0.5, 0.25]}, 2: record([4], 9.0)})
    np.testing.assert_equal(energy["energy_j"].to_numpy(), [0.25, 0.5, np.nan])


@pytest.mark.parametrize(
    ("metrics", "part"),
    [
        ({1: {"train_loss": 2.3, "num-examples": 60}}, "got num-examples, train_loss for 1 rounds"),
        ({1: {"train_loss": 2.3}}, "means over the clients alone, from which no device can be"),
        ({}, "got none for 0 rounds"),
        ({1: {"up_s": [1.0]}}, "round 1 of Flower's metrics must hold device as a list"),
        ({1: record([1], 0.0) | {"up_s": 3.0}}, "hold up_s as a list .* got 3.0"),
        (
            {1: record([1], 0.0) | {"up_s": [3.0, 2.0]}},
            "lists of one length, .* up_s 2",
        ),
        ({1: record([1], 0.0) | {"up_s": [0.0]}}, "cannot use Flower's metrics: up_s must be pos"),
    ],
)
def test_flower__other_metrics_are_refused(metrics, part):
    with pytest.raises(ValueError, match=part):
        read_flower(metrics)

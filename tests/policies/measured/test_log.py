"""Logs as they are written and read, and files that are none."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.measured import log, read_flower
from policies.measured.log import (
    COLUMNS,
    MEANING,
    append_round,
    append_rows,
    check_table,
    new_log,
    read_log,
    read_spells,
)
from tests.support import little_memory, outcome, room_for_files_of


def small(rounds: int = 6, devices: int = 4) -> pd.DataFrame:
    """Every device in every round, 10 s apart; device 0 takes 1 + 2 + 3 s, others a bit longer."""
    table = pd.MultiIndex.from_product([range(rounds), range(devices)], names=["round", "device"])
    table = table.to_frame(index=False)
    slower = 1 + 0.1 * table["device"]
    return table.assign(
        start_s=100.0 + 10 * table["round"],
        samples=400.0,
        epochs=2.0,
        parameters=1e5,
        bytes_up=4e5,
        bytes_down=4e5,
        train_s=2 * slower,
        up_s=3 * slower,
        down_s=1 * slower,
    )[list(COLUMNS)]


def written(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


positive = st.floats(1e-9, 1e15)
names = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4),
    st.sampled_from(["NA", "nan", "007", 'a"b', "a,b", "None", str(2**64)]),
)


@st.composite
def logs(draw) -> pd.DataFrame:
    """Rounds of one to three devices, whose times fit between them, in no order."""
    devices = draw(st.lists(names, min_size=1, max_size=3, unique_by=str))
    energy = draw(st.booleans())
    rows, start = [], draw(st.floats(-1e6, 1e6))
    for number in sorted(draw(st.sets(st.integers(0, 2**53 - 1), min_size=1, max_size=4))):
        times = st.floats(1e-6, 1e3)
        for device in devices[: draw(st.integers(1, len(devices)))]:
            row = {name: draw(positive) for name in ("samples", "epochs", "parameters", "bytes_up")}
            row |= {"round": number, "device": device, "start_s": start}
            row |= {"train_s": draw(times), "up_s": draw(times)}
            measured = draw(st.booleans())
            row |= {"down_s": draw(times) if measured else 0.0}
            row |= {"bytes_down": draw(positive) if measured else 0.0}
            row |= {"energy_j": draw(st.sampled_from([math.nan, 0.5]))} if energy else {}
            rows.append(row)
        start += draw(st.floats(3e3, 1e5))
    return pd.DataFrame(draw(st.permutations(rows)))


def expected(table: pd.DataFrame) -> list[list]:
    """The rows, in order of round and device, by plain Python."""

    def as_integer(name: object) -> int | None:
        text = str(name)
        return (
            int(text) if re.fullmatch("0|-?[1-9][0-9]*", text) and abs(int(text)) < 2**63 else None
        )

    rows = table.to_dict("records")
    numbered = all(as_integer(row["device"]) is not None for row in rows)
    for row in rows:
        row["device"] = as_integer(row["device"]) if numbered else str(row["device"])
    rows.sort(key=lambda row: (row["round"], row["device"]))
    present = [name for name in MEANING if any(pd.notna(row.get(name)) for row in rows)]
    return [[row[name] for name in present] for row in rows]


@given(logs(), st.sampled_from(["appended", "csv", "parquet"]), st.integers(1, 4))
def test_log__is_read_as_it_was_written(tmp_path_factory, table, way, chunk_rows):
    path = tmp_path_factory.mktemp("log") / ("log.parquet" if way == "parquet" else "log.csv")
    if way == "appended":
        for _, rows in table.groupby("round", sort=False):
            append_rows(path, rows.to_dict("records"))
    else:
        # What is not of one type is text in Parquet.
        mixed = table["device"].map(type).nunique() > 1
        written(table.assign(device=table["device"].astype(str)) if mixed else table, path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log, "_CHUNK_ROWS", chunk_rows)
        found = read_log(path)
    assert found.left_out == 0
    rows = found.table.astype(object).to_numpy().tolist()
    # Older versions of pandas read decimal numbers of CSV to the last digit but one.
    error = 0 if way == "parquet" else 1e-13
    for row, right in zip(rows, expected(table), strict=True):
        assert row[:2] == right[:2]
        assert row[2:] == pytest.approx(right[2:], rel=error, abs=0, nan_ok=True)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_log__keeps_the_newest_whole_rounds(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(log, "_CHUNK_ROWS", 7)
    table = small(rounds=30)
    shuffled = table.sample(frac=1, random_state=0).assign(comment="none")
    path = written(shuffled, tmp_path / f"log.{suffix}")
    for most_rows in (4, 21, 60, 119, 120, 1000):
        found = read_log(path, most_rows=most_rows)
        rounds = min(most_rows // 4, 30)
        pd.testing.assert_frame_equal(
            found.table, table.iloc[len(table) - 4 * rounds :].reset_index(drop=True)
        )
        assert found.left_out == 120 - 4 * rounds
    with pytest.raises(ValueError, match=r"round 29 alone has more rows than the 3 .*most_rows"):
        read_log(path, most_rows=3)


def changed(row: int, **values: object):
    """The table with other values in one row, counted from 0."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype(dict.fromkeys(values, object))
        for name, value in values.items():
            table.loc[row, name] = value
        return table

    return change


# Row 9 is line 11 of the file: device 1 in round 2.
BAD = {
    "two columns missing": (
        lambda t: t.rename(columns={"train_s": "Training_s"}).drop(columns="up_s"),
        ["it lacks train_s (is it 'Training_s'?), up_s"],
    ),
    "semicolons": (
        lambda t: t.to_csv(index=False, sep=";").encode(),
        ["it lacks round", "there must be commas between the columns"],
    ),
    "no rows": (lambda t: t.iloc[:0], ["it must have rows, got none"]),
    "empty": (lambda _: b"", ["it is empty"]),
    "noise": (lambda _: bytes(range(256)), ["codec"]),
    "cut off": (
        lambda t: t.to_csv(index=False).encode()[:-9],
        ["down_s must be at least zero", "got nothing in line 25 (device 3, round 5)"],
    ),
    "a field too many": (
        lambda t: t.to_csv(index=False).encode() + b"1,2,3,4,5,6,7,8,9,10,11,12\n",
        ["Expected 11 fields in line 26, saw 12"],
    ),
    "a field too many in all rows": (
        lambda t: t.assign(comma=1).to_csv(index=False).replace(",comma", "").encode(),
        ["line 2 has more fields than the first"],
    ),
    "text": (
        changed(9, train_s="2.5 s"),
        [
            "train_s must be positive and at most 1e+15",
            "got '2.5 s' in line 11 (device 1, round 2)",
        ],
    ),
    "true": (changed(9, epochs=True), ["epochs must be positive", "got 'True' in line 11"]),
    "a date": (
        changed(9, start_s="2024-05-01T10:00"),
        ["start_s must be a number at most 1e+15 in size", "got '2024-05"],
    ),
    "NaN": (changed(9, up_s=np.nan), ["up_s must be", "got nothing in line 11"]),
    "infinite": (changed(9, samples=np.inf), ["samples must be", "got inf in line 11"]),
    "negative": (changed(9, train_s=-1.5), ["train_s must be positive", "got -1.5 in line 11"]),
    "zero": (
        changed(9, up_s=0),
        ["up_s must be positive", "what was not measured has no row; got 0", "line 11"],
    ),
    "a download without bytes": (
        changed(9, bytes_down=0.0),
        ["down_s must be positive where bytes_down is", "got 1.1 in line 11 (device 1, round 2)"],
    ),
    "a download without time": (changed(9, down_s=0.0), ["got 0.0 in line 11"]),
    "half a round": (
        changed(9, round=2.5),
        ["round must be an integer from 0; got 2.5 in"],
    ),
    "round before 0": (
        changed(9, round=-1),
        ["round must be an integer from 0; got -1 in"],
    ),
    "no device": (changed(9, device=""), ["device must be an integer or a name", "got nothing"]),
    "a name of two lines": (changed(9, device="a\nb"), ["device must be", r"got 'a\nb'"]),
    "twice": (
        changed(9, device=0),
        ["device 0 has two rows in round 2: line 10 and 11"],
    ),
    "a clock set back": (
        lambda t: t.assign(start_s=t["start_s"] - 1e6 * (t["round"] > 3)),
        ["start_s must not go back", "is 130.0 in round 3 and -999860.0 in round 4", "monotonic"],
    ),
    "milliseconds": (
        lambda t: t.assign(**{name: 1000 * t[name] for name in ("train_s", "up_s", "down_s")}),
        [
            "20 of 20 participations",
            "6000 s against 10 s for device 0 in round 0",
            "are train_s, up_s and down_s in milliseconds? Give seconds",
        ],
    ),
    "a time beyond all": (
        changed(9, start_s=1e300),
        ["start_s must be a number at most 1e+15 in size", "got 1e+300 in line 11"],
    ),
    "a size beyond all": (changed(9, bytes_up=1e200), ["positive and at most 1e+15"]),
    "rounds that start at once": (lambda t: t.assign(start_s=5.0), ["6 s against 0 s for"]),
    "a column twice": (
        lambda t: t.set_axis([*t.columns[:-1], "train_s"], axis=1).assign(down_s=t["down_s"]),
        ["it has several columns train_s: leave one of them"],
    ),
    "energy": (
        lambda t: changed(9, energy_j=-1)(t.assign(energy_j=np.nan)),
        ["energy_j must be positive and at most 1e+15 or empty; got -1", "in line 11"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_log__of_another_form_is_refused(tmp_path, name):
    change, parts = BAD[name]
    path = tmp_path / "mine.csv"
    content = change(small())
    path.write_bytes(content) if isinstance(content, bytes) else written(content, path)
    found, message = outcome(lambda: read_log(path))
    assert found is None
    assert message.startswith(f"cannot read the log {str(path)!r}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message
    if isinstance(content, pd.DataFrame):
        _, message = outcome(lambda: check_table(content, "this table"))
        assert message.startswith("cannot use this table: ")
        assert parts[0] in message or "line" in parts[0]


def test_log__no_regular_file_and_damaged_parquet_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "noise.parquet").write_bytes(bytes(range(256)))
    for name, part in (
        ("pipe.csv", "not a regular file"),
        ("nothing.csv", "No such file"),
        ("noise.parquet", "Parquet"),
    ):
        with pytest.raises(ValueError, match=f"cannot read the log .*{name}.*{part}"):
            read_log(tmp_path / name)
    with pytest.raises(ValueError, match=f"No such file or directory: '{tmp_path}/nothing.csv'$"):
        read_log(tmp_path / "nothing.csv")


def test_log__a_small_file_that_would_fill_the_memory_is_refused(tmp_path):
    line, short = written(small(), tmp_path / "line.csv"), tmp_path / "short.csv"
    with line.open("ab") as file:
        file.truncate(10**10)  # takes no room on the disk
    head = ",".join([*COLUMNS, *(f"c{i}" for i in range(10_000))])
    short.write_text(head + "\n" * 50_000)
    pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    repeated = pa.DictionaryArray.from_arrays(np.zeros(50_000, dtype=np.int32), ["a" * 100_000])
    zeros = {name: np.zeros(50_000) for name in COLUMNS}
    pq.write_table(pa.table(zeros | {"device": repeated}), tmp_path / "text.parquet")
    lists = {name: [0.0] for name in COLUMNS} | {"train_s": [[0] * 10**6]}
    pq.write_table(pa.table(lists), tmp_path / "lists.parquet")
    for path, message in (
        (line, "it has a line of more than 1000000 bytes"),
        (short, "it has 10011 columns, more than 1000"),
        (tmp_path / "text.parquet", "device holds a text of 100000 bytes, more than 1000"),
        (tmp_path / "lists.parquet", "train_s must hold numbers or text, got list"),
    ):
        with little_memory(), pytest.raises(ValueError, match=message):
            read_log(path)


def test_log__parquet_counts_rows(tmp_path):
    path = written(
        changed(9, train_s=-1.0)(small()).astype({"train_s": float}), tmp_path / "l.parquet"
    )
    with pytest.raises(ValueError, match=r"got -1.0 in row 10 \(device 1, round 2\)"):
        read_log(path)


def test_log__without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = written(small(), tmp_path / "log.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match=r"package pyarrow: install the extra `train`"):
        read_log(path)


SUSPECT = {
    "nothing": (lambda t: t, []),
    "one long participation": (
        changed(9, train_s=30.0),
        ["1 of 20 participations.*34.4 s against 10 s for device 1 in round 2"],
    ),
    "one device in milliseconds": (
        lambda t: t.assign(train_s=t["train_s"].where(t["device"] != 2, 0.0024)),
        ["Device 2 has 3e-06 seconds per sample and epoch.*all devices is .*milliseconds"],
    ),
    "its uploads": (
        lambda t: t.assign(up_s=t["up_s"].where(t["device"] != 2, 0.0036)),
        [r"Device 2 has 8.88889e\+08 bit/s of uploads.*milliseconds"],
    ),
    "one of two devices": (
        lambda t: t[t["device"] < 2].assign(up_s=t["up_s"].where(t["device"] != 1, 0.0033)),
        [],  # nobody can say which of them is wrong
    ),
    "kilobytes": (
        lambda t: t.assign(bytes_up=30.0),
        ["Half the uploads have at most 69.*are times in milliseconds, or is bytes_up in kilo"],
    ),
    "all times in milliseconds": (
        lambda t: t.assign(**{name: 1000 * t[name] for name in t if name.endswith("_s")}),
        ["Half the uploads have at most .* bit/s: are times in milliseconds"],
    ),
    "of fast uplinks, too": (
        lambda t: t.assign(
            bytes_up=4e7, **{name: 2000 * t[name] for name in t if name.endswith("_s")}
        ),
        ["Half the rounds take 4400 s or more beside .*: are all times in milliseconds"],
    ),
    "frequencies in GHz": (
        lambda t: t.assign(frequency_hz=2.4),
        ["Half the frequencies are 2.4 Hz or less: is frequency_hz in GHz"],
    ),
    "a clock in milliseconds": (
        lambda t: t.assign(start_s=1000 * t["start_s"]),
        ["Half the rounds take more than 128.*: is start_s in milliseconds"],
    ),
    "a pause": (
        lambda t: t.assign(start_s=t["start_s"] + 5000 * (t["round"] > 3)),
        ["Between the starts of round 3 and the next lie 5010 s.*taken as a pause"],
    ),
    "a device with one row": (
        lambda t: t[(t["device"] != 3) | (t["round"] == 1)],
        [r"1 of 4 devices have one row alone \(3\).*leans on the others"],
    ),
}


@pytest.mark.parametrize("name", SUSPECT)
def test_log__suspect_values_are_named(name):
    change, patterns = SUSPECT[name]
    notes = check_table(change(small()), "it").notes
    assert len(notes) == len(patterns)
    for note, pattern in zip(notes, patterns, strict=True):
        assert re.search(pattern, note), note


def test_append__writes_all_or_nothing(tmp_path):
    path = tmp_path / "log.csv"
    rounds = [rows for _, rows in small().groupby("round")]
    append_rows(path, rounds[0])
    append_rows(path, [])
    before = path.read_bytes()
    with (
        room_for_files_of(len(before) + 50),
        pytest.raises(ValueError, match=r"cannot write the log '.*log\.csv': "),
    ):
        append_rows(path, rounds[1])
    assert path.read_bytes() == before
    append_rows(path, rounds[1])
    pd.testing.assert_frame_equal(read_log(path).table, small(rounds=2))

    before = path.read_bytes()
    for rows, part in (
        (rounds[2].assign(train_s=-1.0), "the rows for the log .*train_s must be positive"),
        (rounds[2].drop(columns="up_s"), "it lacks up_s"),
    ):
        with pytest.raises(ValueError, match=part):
            append_rows(path, rows)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "part"),
    [("round,device\n1,2\n", "its first line is not"), (",".join(MEANING) + "\n1,2", "is cut off")],
)
def test_append__to_another_file_is_refused(tmp_path, content, part):
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=part):
        append_rows(path, small(rounds=1))
    assert path.read_text() == content
    with pytest.raises(ValueError, match="give a CSV file instead"):
        append_rows(tmp_path / "log.parquet", small(rounds=1))


def test_append_round__what_is_missing_or_cannot_be_written_is_warned_of_and_all_else_kept(
    tmp_path,
):
    path, table = new_log(tmp_path / "log.csv"), small(rounds=4)
    told = {
        number: {row.pop("device"): row for row in rows.to_dict("records")}
        for number, rows in table.groupby("round")
    }
    del told[1][2]["up_s"]
    told[1][3]["up_s"] = 0.0
    told[3] = {0: {"train-loss": 1.0}}

    def add(number: int) -> dict[str, list]:
        return append_round(path, number, 100.0 + 10 * number, told[number])

    metrics = {0: add(0)}
    with pytest.warns(RuntimeWarning, match=r"no row in .*log.csv' for device 2, 3 .*lacks up_s"):
        metrics[1] = add(1)
    with (
        room_for_files_of(path.stat().st_size + 50),
        pytest.warns(RuntimeWarning, match=r"round 2 is not in the log: cannot write .*log\.csv'"),
    ):
        metrics[2] = add(2)
    with pytest.warns(RuntimeWarning, match="for device 0 in round 3: .* it lacks"):
        metrics[3] = add(3)
    right = table.drop([6, 7]).query("round < 3").reset_index(drop=True)
    pd.testing.assert_frame_equal(read_flower(metrics), right)
    pd.testing.assert_frame_equal(read_log(path).table, right.query("round < 2"))


def test_new_log__is_refused_before_a_federation_begins(tmp_path):
    (tmp_path / "there.csv").touch()
    for name, part in (
        ("log.parquet", "round by round: give a CSV file instead"),
        ("there.csv", "is there already: give another name"),
        ("absent/log.csv", "absent' is no folder to write to"),
        ("there.csv/log.csv", "there.csv' is no folder to write to"),
    ):
        with pytest.raises(ValueError, match=f"{name}'.*{part}"):
            new_log(tmp_path / name)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_spells__are_sorted_and_checked(tmp_path, suffix):
    table = pd.DataFrame({"device": [10, 9, 9], "from_s": [0.0, 5.0, 1.0], "to_s": [3.0, 6.0, 5.0]})
    path = tmp_path / f"spells.{suffix}"
    assert read_spells(written(table, path)).to_numpy().tolist() == [
        [9, 1, 5],
        [9, 5, 6],
        [10, 0, 3],
    ]
    unit, second = ("line", 3) if suffix == "csv" else ("row", 2)
    for change, part in (
        (changed(1, to_s=5.0), f"to_s must be after from_s; got 5.0 in {unit} {second} .device 9."),
        (changed(2, to_s=5.1), f"in {unit} {second + 1} and {second} of device 9 do"),
        (
            changed(1, from_s=np.nan),
            f"from_s must be a number at most 1e.15 in size; got nothing in {unit} {second}",
        ),
        (changed(2, to_s=1e308), "to_s must be a number at most 1e.15 in size; got 1e.308"),
        (lambda t: t.drop(columns="to_s"), "it lacks to_s"),
    ):
        bad = change(table)
        written(bad.astype(dict.fromkeys(bad.columns[1:], float)), path)
        with pytest.raises(ValueError, match=f"cannot read the availability .*{part}"):
            read_spells(path)


READ = """
import resource, sys
from policies.measured import read_log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
log = read_log(sys.argv[1], most_rows=int(sys.argv[2]))
print(len(log.table), log.left_out, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def read_elsewhere(path: Path, most_rows: int) -> list[int]:
    """Rows kept and left out by a process of its own, and the memory that it took [KiB]."""
    output = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(most_rows)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [int(word) for word in output.split()]


@pytest.mark.slow
def test_log__of_ten_million_rows_fits_in_memory(tmp_path):
    pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    path = tmp_path / "log.parquet"
    rounds, devices = 100, 1000
    block = small(rounds, devices)
    schema = pa.Schema.from_pandas(block)
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, 10_000, rounds):
            # The slowest devices take 600 s.
            moved = block.assign(round=block["round"] + first)
            moved["start_s"] = 1000.0 * moved["round"]
            file.write_table(pa.Table.from_pandas(moved, schema))
    kept, left_out, memory = read_elsewhere(path, 1_000_000)
    assert (kept, left_out) == (1_000_000, 9_000_000)
    # All rows would take 880 MB, and more while they are put together.
    assert memory < 700_000

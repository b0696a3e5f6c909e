"""Tables in CSV files: readers refuse everything that they would not use as it is."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, TraceChannel
from fl_edge_env.scenario.from_log import COLUMNS
from tests.support import little_memory

# Each reader with a whole table for it: the names, and the fields of its rows.
READERS = {
    "gain": (TraceChannel, "round,device,gain", ["0,0,.1", "0,1,2e-1", "1,1,1", "1,0,.4"]),
    "bytes_up": (
        Scenario.from_log,
        ",".join(COLUMNS),
        ["0,a,10,1,100,400,1.5,2.5", "0,b,20,2,100,400,,.5", "1,a,10,1,100,400,1.5,2.5"],
    ),
}
NO_NUMBERS = ["True", "false", "", "one", "1_000", "0x1", "nan", "inf", "-1", "0", "1e999", "1,"]
NO_COUNTERS = ["0.5", "-3", "True", "", "nan", "inf"]


def load(path, name, header, rows):
    path.write_text("\n".join([header, *rows]))
    return READERS[name][0](path)


@pytest.mark.parametrize("name", READERS)
def test_readers__ignore_column_order_and_empty_rows(tmp_path, name):
    _, header, rows = READERS[name]
    expected = load(tmp_path / "table.csv", name, header, rows)
    turned = [",".join(line.split(",")[::-1]) for line in (header, *rows)]
    path = tmp_path / "table.csv"
    path.write_bytes(("\ufeff" + "\r\n".join([*turned[:2], "", "," * 2, *turned[2:], ""])).encode())
    again = READERS[name][0](path)
    assert repr(again) == repr(expected)
    assert again == expected


@pytest.mark.parametrize("name", READERS)
@given(st.data())
def test_readers__refuse_a_wrong_field_by_file_row_and_value(tmp_path_factory, name, data):
    _, header, rows = READERS[name]
    place = data.draw(st.integers(0, len(rows) - 1))
    fields = rows[place].split(",")
    kind = data.draw(st.sampled_from(["more", "fewer", "round", name]))
    if kind == "more":
        fields.insert(data.draw(st.integers(0, len(fields))), "1")
    elif kind == "fewer":
        del fields[data.draw(st.integers(0, len(fields) - 1))]
    wrong = re.escape(",".join(fields))
    if kind in header.split(","):
        text = data.draw(st.sampled_from(NO_NUMBERS if kind == name else NO_COUNTERS))
        fields[header.split(",").index(kind)] = f'"{text}"'
        wrong = f"{kind} must be .*got '{re.escape(text)}'"
    rows = [*rows[:place], ",".join(fields), *rows[place + 1 :]]
    message = f"table.csv'.*({wrong}.*in row {place + 2}|in row {place + 2}.*{wrong})"
    with pytest.raises(ValueError, match=message):
        load(tmp_path_factory.mktemp("tables") / "table.csv", name, header, rows)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "change",
    [
        lambda header: f"{header},note",
        lambda header: f"{header},round",
        lambda header: header.replace("round", "device"),
        lambda header: header.partition(",")[2],
        lambda header: f"{header},",
        lambda header: header.replace(",", ", "),
        lambda _: "",
    ],
)
def test_readers__refuse_missing_unknown_and_repeated_columns(tmp_path, name, change):
    _, header, rows = READERS[name]
    named = change(header)
    width = len(header.split(","))
    more = len(named.split(",")) - width
    rows = [row + ",1" * more if more > 0 else row for row in rows]
    with pytest.raises(ValueError, match=r"table.csv': its first row must name the columns") as no:
        load(tmp_path / "table.csv", name, named, rows)
    assert str(no.value).endswith(", ".join(map(repr, named.split(","))) if named else "empty row")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["none", "folder", "pipe", "bytes", "empty", "device"])
def test_readers__refuse_what_is_no_table(tmp_path, name, kind):
    path = tmp_path / "table.csv"
    {
        "none": lambda: None,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "bytes": lambda: path.write_bytes(bytes(range(256))),
        "empty": lambda: path.write_text(READERS[name][1] + "\n\n"),
        "device": lambda: path.symlink_to("/dev/zero"),
    }[kind]()
    reasons = {"none": "No such file", "bytes": "can't decode", "empty": "must have rows, got none"}
    message = f"^cannot read the .*table.csv': .*{reasons.get(kind, 'not a regular')}"
    with little_memory(), pytest.raises(ValueError, match=message):
        READERS[name][0](path)

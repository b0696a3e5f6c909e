"""What commands print is text, whatever is in it and whatever the terminal knows."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pandas as pd
import pytest

from policies.benchmark.bars import run_with_progress
from policies.benchmark.command_line import errors_in_one_line, print_whole
from policies.benchmark.console import PlainConsole, shown
from policies.benchmark.tables import Board, comparison_tables, overview_markdown

_MAIN = "from train_fl.command_line import main; main()"
ODD = "[/bold] [red]:gear:{x} $\\frac$"


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("μ×2, 3±1 – λ…", "utf-8", "μ×2, 3±1 – λ…"),
        ("μ×2, 3±1 – λ…", "ascii", "mux2, 3+-1 - lambda..."),
        ("Gerät 設備", "iso-8859-1", "Gerät \\u8a2d\\u5099"),
        ("a\x1b[2J\rb\u202e\udcff\n\tc", "utf-8", "a\\x1b[2J\\rb\\u202e\\udcff\n\tc"),
        ("\x9b1m", "ascii", "\\x9b1m"),
    ],
)
def test_shown__is_what_the_terminal_can_show(text, encoding, expected):
    assert shown(text, encoding) == expected
    expected.encode(encoding)


def summary(*names: str) -> pd.DataFrame:
    row = {"seed": 0, "total_time": 3.0, "status": "ok", "status_reason": "", "spent_ratio": 1.0}
    row |= dict.fromkeys(("worst_spent_ratio", "influence", "aggregate_noise", "never_seen"), 1.0)
    return pd.DataFrame([{"policy": name, **row} for name in names])


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_console__names_are_no_markup(encoding, monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, errors="replace")  # as `main` makes it
    monkeypatch.setattr(sys, "stdout", stream)
    console = PlainConsole(width=100, force_terminal=True, color_system=None)
    console.print(ODD, style="bold", highlight=False)
    (table,) = comparison_tables([Board(summary(ODD, "–"), caution=ODD)], width=1000)
    table.title = ODD
    print_whole(table, console)
    assert run_with_progress(ODD, [], console=console) == []
    with pytest.raises(SystemExit), errors_in_one_line(console):
        raise ValueError(ODD)
    stream.flush()
    lines = raw.getvalue().decode(encoding).splitlines()
    assert lines[0] == ODD
    assert lines[-1].endswith(f"error: {ODD}")
    # And as title, row and caution of the table, and beside the bar.
    assert sum(ODD in line for line in lines) >= 6, lines


def test_overview__names_do_not_end_a_cell():
    lines = overview_markdown({"a|b": summary("x|y")}).splitlines()
    assert [line.replace("\\|", "").count("|") for line in lines] == [3, 3, 3]


def test_command__prints_to_a_terminal_that_knows_ascii_alone(tmp_path):
    out = tmp_path / "[bold]–[/red]"
    options = "--policies uni-d lroa --scenario digits --num-devices 4 --rounds 2"
    options += " --no-train --seeds 2 --workers 1 --energy-budget-j 100"
    ended = subprocess.run(
        [sys.executable, "-c", _MAIN, "compare", *options.split(), f"--out={out}"],
        env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "100"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    told = ended.stdout.decode("ascii")
    assert "+-" in told
    assert "[bold]-[/red]" in told

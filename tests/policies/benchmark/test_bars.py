"""Progress bars: there while the work lasts, and gone when it is done."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import UniD, evaluate
from policies.benchmark.bars import bars_shown, run_with_progress
from policies.benchmark.jobs import make_jobs
from policies.progress import steps


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[?\d;]*[A-Za-z]|\n|\r)", written):
        if part == "\n":
            row += 1
        elif part == "\x1b[1A":
            row -= 1
        elif part in ("\r", "\x1b[2K"):
            lines[row] = "" if part == "\x1b[2K" else lines[row]
        elif not part.startswith("\x1b"):
            lines[row] += part
        lines += [""] * (row + 1 - len(lines))
    return [line for line in lines if line.strip()]


@pytest.fixture
def console(monkeypatch) -> Console:
    monkeypatch.setenv("TERM", "xterm")
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def test_bars__go_one_by_one_when_their_work_is_done(console):
    with bars_shown(console):
        with steps("outer", 2) as advance:
            with steps("inner", 1) as inner:
                inner(1)
            advance(1)
            deadline = time.monotonic() + 10  # the bars are drawn anew ten times a second
            while len(bars := screen(console.file.getvalue())) != 1:
                assert time.monotonic() < deadline, bars
            assert "outer" in bars[0]
        assert screen(console.file.getvalue()) == []  # of a piece that is done nothing stays
        console.print("said")
    assert screen(console.file.getvalue()) == ["said"]


@pytest.mark.parametrize(("transient", "lines"), [(True, 0), (False, 1)])
def test_run_with_progress__leaves_its_bar_only_where_it_is_wanted(console, transient, lines):
    scenario = Scenario.digits(num_devices=4, num_rounds=3)
    jobs = make_jobs([UniD(scenario)], scenario, [0])
    run_with_progress("runs", jobs, console=console, transient=transient)
    shown = screen(console.file.getvalue())
    assert len(shown) == lines
    assert all("runs" in line and "1/1" in line for line in shown)


def test_evaluate__leaves_nothing_of_its_bar(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    scenario = Scenario.digits(num_devices=4, num_rounds=3)
    evaluate([UniD(scenario)], scenario, [0], gaps=False, progress=True)
    out, written = capsys.readouterr()
    assert "1/1" in written
    assert (out, screen(written)) == ("", [])

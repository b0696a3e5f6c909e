"""The printed comparison: order, what is told apart, and what a narrow terminal leaves out."""

from __future__ import annotations

import io
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import sem, t

from policies.benchmark.intervals import mean_interval
from policies.report.tables import (
    Comparison,
    comparison_markdown,
    comparison_table,
    overview_markdown,
    ranked,
    sheet_of,
)


def summary(**policies: dict[str, object]) -> pd.DataFrame:
    """Three runs of each policy; what is not given is alike for all."""
    common = {
        "total_time": 5e5,
        "priced_time": 5e5,
        "time_to_target": 1e5,
        "priced_time_to_target": 1e5,
        "final_accuracy": 0.9,
        "spent_ratio": 1.0,
        "excess": 0.1,
        "lack": 0.2,
        "status": "ok",
        "status_reason": "",
        "aggregate_noise": 0.5,
        "never_seen": 0,
        "gap": 0.01,
    }
    rows = [
        {"policy": name, "seed": seed} | common | changes
        for name, changes in policies.items()
        for seed in range(3)
    ]
    return pd.DataFrame(rows)


def printed(table: pd.DataFrame, width: int = 200, caution: str = "") -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    shown, notes = comparison_table(Comparison(table, 0.9, caution), width=width)
    console.print(shown, *notes, sep="\n")
    return console.export_text().splitlines()


def test_ranked__policies_that_are_not_ok_are_below():
    reckless = {"status": "over budget, leaves out", "status_reason": "leaves out 77 of 120"}
    table = summary(
        reckless={"priced_time": 1.0, "priced_time_to_target": 1.0} | reckless,
        slow={"time_to_target": 1e4, "priced_time_to_target": 3e5},
        later={"priced_time": 3.0, "priced_time_to_target": np.nan},
        never={"priced_time": 2.0, "priced_time_to_target": np.nan},
        fast={"priced_time_to_target": 2e5},
    )
    assert ranked(table) == ["fast", "slow", "never", "later", "reckless"]
    lines = printed(table)
    rows = r"fast .*\n slow .*\n never .*\n later .*\n +\n reckless .* over budget, .*\n +leaves "
    assert re.search(rows, "\n".join(lines))
    assert "reckless: leaves out 77 of 120." in lines
    markdown = comparison_markdown(Comparison(table, 0.9))
    assert "| leaves out 77 of 120 |" in markdown
    assert "priced, over fast, %" in markdown
    assert "| 50 |" in markdown  # slow
    places = [line.split(" | ")[0] for line in markdown.splitlines()[2:7]]
    assert places == ["| 1", "| 2", "| 3", "| 4", "| –"]


def test_comparison__shows_intervals_ranges_and_what_is_missing():
    table = summary(sampled={}, chosen={"gap": np.nan})
    table["total_time"] = [100.0, 102.0, 104.0] * 2
    table["time_to_target"] = [10.0, 11.0, 12.0, np.nan, 14.0, 14.0]
    table["excess"] = [9.0, 10.0, 11.0] * 2
    table["never_seen"] = [3, 4, 9] * 2
    lines = printed(table)
    text = " ".join(" ".join(lines).split())
    # Student's t with two degrees of freedom at 97.5 % is 4.303, the error of the mean 2 / sqrt(3).
    assert " 102.0±5.0 " in text
    # Half of the interval, 248.4 %, carries two digits, and the mean no more than these.
    assert " 1000±250 " in text
    assert " 3–9 " in text
    (row,) = (line for line in lines if line.split()[:1] == ["chosen"])
    assert " 14 (2/3) " in row
    assert " ok 100 " in " ".join(row.split())  # of the budget
    assert row.split()[-1] == "–"
    assert "nan" not in text


def test_comparison__narrow_terminals_hide_distances_first():
    table = summary(**{"Proportional fair, dynamic": {}, "LROA": {"total_time": 123456.0}})
    table = table.assign(outcome_gap=0.2)
    for width, hidden in ((200, 0), (160, 2), (80, 8), (78, 8)):
        lines = printed(table, width)
        head = "\n".join(lines[3:5])
        assert all(name in head for name in ("90 %, d", "status", "total", "priced"))
        assert ("bound, %" in head) == (hidden == 0)
        assert max(map(len, lines)) <= width
        assert (f" shows {hidden} more columns." in lines[-1]) == (hidden > 0)
    wide = int(lines[-1].partition("COLUMNS=")[2].split()[0])
    assert "COLUMNS" not in printed(table, wide)[-1]
    assert "COLUMNS" in printed(table, wide - 1)[-1]


@pytest.mark.parametrize("bad", [0, 1, 2, 5])
def test_comparison__has_at_most_three_lines_of_notes(bad):
    reason = "leaves out 77 of 120 devices, 3 of 120 devices up to 40 % over budget"
    late = {"status": "over budget", "status_reason": reason}
    table = summary(fine={}, **{f"policy {number}": late for number in range(bad)})
    lines = printed(table, 100, "With 3 seeds, an influence of 20 % could still be chance.")
    last = max(n for n, line in enumerate(lines) if line.startswith(" "))
    notes = [line for line in lines[last + 1 :] if line.strip()]
    assert len(notes) == min(bad, 2) + 2
    assert notes[-1].startswith("See docs/ranking.md")
    assert notes[-2].startswith("With 3 seeds")
    left = [int(line.split()[2]) for line in notes if line.startswith("Reasons for ")]
    assert sum(reason in line for line in notes) + sum(left) == bad


def test_comparison__few_seeds_are_shown_by_their_values():
    table = summary(**{"a longer name": {}})[:2]
    table = table.assign(total_time=[100.0, 104.5], never_seen=[13, 4], gap=[-1e-9, 0.01])
    text = " ".join(" ".join(printed(table)).split())
    for values in (" 100, 104.5 ", " 13, 4 ", " 0, 1"):
        assert values in text
    assert "±" not in text
    np.testing.assert_array_equal(mean_interval([2.0]), [2, np.nan, np.nan])


@given(
    st.integers(-9, 9).flatmap(
        lambda decade: st.lists(st.floats(-1, 1).map(lambda x: x * 10.0**decade), min_size=3)
    )
)
@example([9.9, 10.0, 10.1])
@example([0.0, 996.0, 1992.0])
@example([-1e-9, -1e-9, -2e-9])
def test_comparison__an_interval_has_two_digits(values):
    sample = np.array(values)
    rows = [{"policy": "a", "seed": seed, "aggregate_noise": x} for seed, x in enumerate(values)]
    common = {"total_time": 1.0, "priced_time": 1.0, "status": "ok"}
    board = Comparison(pd.DataFrame([row | common for row in rows]))
    sheet = sheet_of(board, leader=False)
    mean, _, half = sheet.columns[-1].cells["a"].partition("±")
    assert not (mean.startswith("-") and float(mean) == 0)
    error = t.ppf(0.975, len(sample) - 1) * sem(sample)
    if not half:
        assert error <= 1e-9 * abs(sample.mean())
        return
    shown = Decimal(mean)
    width = Decimal(half)
    # In units of the last digit, which is no finer than the thousandths of this column.
    unit = max(Decimal(1).scaleb(width.adjusted() - 1), Decimal("0.001"))
    assert shown % unit == width % unit == 0
    assert shown.as_tuple().exponent == width.as_tuple().exponent
    assert abs(float(shown) - sample.mean()) <= 0.5001 * float(unit)
    assert float(width) >= error * (1 - 1e-9)
    assert float(width) - error <= float(unit)


def test_overview__brackets_who_is_not_ok_and_marks_who_leads():
    first = summary(One={"priced_time_to_target": 7200.0}, Two={"status": "over budget"})
    second = summary(Two={"total_time": 36000.0, "priced_time": 18000.0})
    second = second.drop(columns="priced_time_to_target")
    assert overview_markdown({"a": first, "b": second}).splitlines() == [
        "| setting | Two | One |",
        "| --- | ---: | ---: |",
        "| a, d | (1.157) | **0.083** |",
        "| b, h | **5** | – |",
    ]
    nobody = summary(One={"status": "over budget", "priced_time_to_target": 7200.0})
    assert overview_markdown({"c": nobody}).splitlines()[-1] == "| c, d | (0.083) |"

"""The printed comparison: its order, its numbers, and what a narrow terminal hides."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import mean_interval, rounded
from policies.report.ranking import ranked
from policies.report.tables import comparison_markdown, comparison_table, overview_markdown


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


def printed(table: pd.DataFrame, width: int = 200, notes: str = "") -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    shown, below = comparison_table(Comparison(table, 0.9, notes), width=width)
    console.print(shown, *below, sep="\n")
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
    lines = printed(table, notes="With 3 seeds, an influence of 20 % could still be chance.")
    rows = r"fast .*\n slow .*\n never .*\n later .*\n +\n reckless .* over budget, .*\n +leaves "
    assert re.search(rows, "\n".join(lines))
    reason, note, reading = [line for line in lines if line and not line.startswith(" ")][-3:]
    assert reason == "reckless: leaves out 77 of 120."
    assert note.startswith("With 3 seeds")
    assert reading.startswith("Columns: docs/columns.md")
    markdown = comparison_markdown(Comparison(table, 0.9))
    for cells in ("over fast, % |", "| 1 | fast |", "| 2 | slow |", "| 50 |", "| – | reckless |"):
        assert cells in markdown
    assert "| leaves out 77 of 120 |" in markdown


def test_markdown__names_have_no_marks():
    name = r"a*b` <i> $c\d|e"
    comparison = Comparison(summary(**{name: {}, "other": {}}), 0.9, left_out={"*": "failed"})
    markdown = comparison_markdown(comparison)
    assert markdown.count(r"a\*b\` \<i> \$c\\d\|e") == 2  # in a head and in a row
    assert r"| \* (failed) |" in markdown


def test_comparison__shows_intervals_ranges_and_what_is_missing():
    table = summary(sampled={}, chosen={"gap": np.nan})
    table["total_time"] = [100.0, 102.0, 104.0] * 2
    table["time_to_target"] = [10.0, 11.0, 12.0, np.nan, 14.0, 14.0]
    table["never_seen"] = [3, 4, 9] * 2
    (row,) = (line for line in printed(table) if line.startswith(" chosen"))
    # Student's t with two degrees of freedom at 97.5 % is 4.303, the error of the mean 2 / sqrt(3).
    # No run is longer than the first policy's on the same seed.
    for cells in (r"14 \(2/3\)", r"102.0±5.0 +\S+ +0", "3–9"):
        assert re.search(f" {cells} ", row)
    assert row.split()[-1] == "–"


def test_comparison__narrow_terminals_hide_distances_first():
    table = summary(**{"Proportional fair, dynamic": {}, "LROA": {"total_time": 123456.0}})
    table = table.assign(outcome_gap=0.2)
    for width, hidden in ((160, 2), (80, 8), (78, 9)):
        lines = printed(table, width)
        head = "\n".join(lines[3:5])
        assert all(name in head for name in ("90 %, d", "status", "total", "priced"))
        assert "bound, %" not in head
        assert max(map(len, lines)) <= width
        assert f" shows {hidden} more." in lines[-1]
    wide = int(lines[-1].partition("COLUMNS=")[2].split()[0])
    assert ["COLUMNS" in printed(table, each)[-1] for each in (wide - 1, wide)] == [True, False]


def test_comparison__few_seeds_are_shown_by_their_values():
    table = summary(**{"a longer name": {}})[:2]
    table = table.assign(total_time=[100.0, 104.5], never_seen=[13, 4], gap=[-1e-9, 0.01])
    assert re.search(r" 100, 104.5 [^±]* 13, 4 +0, 1", "\n".join(printed(table)))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([9.9, 10.0, 10.1], "10.00±0.25"),
        ([0.0, 996.0, 1992.0], "1000±2500"),
        ([-1e-9, -1e-9, -2e-9], "0.000±0.001"),
        ([1e-8, 1e-8, 1e-8], "0"),
        ([1234.56, 1234.56], "1235"),
    ],
)
def test_interval__has_two_digits_and_the_mean_no_more(values, text):
    assert rounded(mean_interval(values), most_decimals=3) == text


def test_overview__brackets_who_is_not_ok_and_marks_who_leads():
    first = summary(One={"priced_time_to_target": 7200.0}, Two={"status": "over budget"})
    second = summary(Two={"total_time": 36000.0, "priced_time": 18000.0})
    second = second.drop(columns="priced_time_to_target")
    nobody = summary(Two={"status": "over budget", "priced_time_to_target": 7200.0})
    assert overview_markdown({"a": first, "b": second, "c": nobody}).splitlines() == [
        "| setting | One | Two |",
        "| --- | ---: | ---: |",
        "| a, d | **0.083** | (1.157) |",
        "| b, h | – | **5** |",
        "| c, d | – | (0.083) |",
    ]

"""The printed comparison: order, what is told apart, and what a narrow terminal leaves out."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from policies.benchmark.tables import (
    coinciding,
    comparison_markdown,
    comparison_table,
    curve_table,
    overview_markdown,
    ranked,
)


def summary(**policies: dict[str, object]) -> pd.DataFrame:
    """Two runs of each policy; what is not given is alike for all."""
    common = {
        "total_time": 5e5,
        "time_to_target": 1e5,
        "final_accuracy": 0.9,
        "spent_ratio": 1.0,
        "worst_spent_ratio": 1.5,
        "status": "ok",
        "status_reason": "",
        "influence": 0.8,
        "aggregate_noise": 0.5,
        "never_seen": 0,
        "gap": 0.01,
    }
    rows = [
        {"policy": name, "seed": seed} | common | changes
        for name, changes in policies.items()
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def printed(table: pd.DataFrame, width: int = 200, **options: object) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(comparison_table(table, 0.9, width=width, **options))
    return console.export_text().splitlines()


def test_ranked__policies_that_are_not_ok_stand_below_with_the_reason():
    reckless = {"status": "leaves out", "status_reason": "leaves out 77 of 120"}
    table = summary(
        reckless={"total_time": 1.0, "time_to_target": 1.0} | reckless,
        slow={"time_to_target": 3e5},
        never={"total_time": 2.0, "time_to_target": np.nan},
        fast={"time_to_target": 2e5},
    )
    assert ranked(table) == ["fast", "slow", "never", "reckless"]
    lines = printed(table)
    rows = [line for line in lines if line.split()[:1] and line.split()[0] in set(table.policy)]
    assert [row.split()[0] for row in rows] == ranked(table)
    assert "leaves out" in rows[-1]
    assert "reckless: leaves out 77 of 120." in " ".join(" ".join(lines).split())
    assert "| leaves out 77 of 120 |" in comparison_markdown(table)
    places = [line.split(" | ")[0] for line in comparison_markdown(table).splitlines()[2:6]]
    assert places == ["| 1", "| 2", "| 3", "| –"]


def test_comparison__an_interval_is_printed_with_half_its_width_and_what_is_not_defined_as_a_dash():
    table = summary(sampled={}, chosen={"gap": np.nan})
    table["total_time"] = [100.0, 104.0] * 2
    lines = printed(table)
    text = " ".join(" ".join(lines).split())
    # Student's t with one degree of freedom at 97.5 % is 12.706, and the error of the mean is 2.
    assert "102±26" in text
    (row,) = (line for line in lines if line.split()[:1] == ["chosen"])
    assert row.split()[-1] == "–"
    assert "nan" not in text
    assert "a dash stands for those that choose it" in text


def test_comparison__a_target_missed_in_a_run_is_told_beside_the_mean_of_the_others():
    table = summary(a={}, b={})
    table.loc[1, "time_to_target"] = np.nan
    # In days, as the runs are long.
    assert f"{1e5 / 86_400:.5g} (1 of 2 runs)" in " ".join(" ".join(printed(table)).split())


def test_comparison__a_narrow_terminal_leaves_out_columns_and_no_digits():
    table = summary(a={"total_time": 123456.0}, b={"total_time": 654321.0})
    wide = " ".join(printed(table)).split()
    for width in (100, 70, 50):
        lines = printed(table, width)
        assert max(map(len, lines)) <= width
        body = [line for line in lines if " ok " in line]
        assert all(word in wide for line in body for word in line.split())
    assert len(body[0].split()) < len(next(x for x in printed(table) if " ok " in x).split())


def test_comparison__influence_is_told_as_the_range_over_runs():
    table = summary(a={})
    table["influence"] = [0.651, 0.849]
    assert " 65–85 " in " ".join(printed(table))


def test_overview__brackets_who_is_not_ok_and_marks_who_leads():
    first = summary(One={"time_to_target": [7200.0]}, Two={"status": "over budget"})
    second = summary(Two={"total_time": 18000.0}).drop(columns="time_to_target")
    assert overview_markdown({"a": first.explode("time_to_target"), "b": second}).splitlines() == [
        "| setting | One | Two |",
        "| --- | ---: | ---: |",
        "| a, d | **0.083333** | (1.1574) |",
        "| b, h | – | **5** |",
    ]
    nobody = summary(One={"status": "over budget", "time_to_target": 7200.0})
    assert overview_markdown({"c": nobody}).splitlines()[-1] == "| c, d | (0.083333) |"


def test_curves__have_the_half_width_of_the_interval_over_seeds():
    rounds = pd.DataFrame(
        {"policy": "a", "seed": [0, 1], "round": 1, "elapsed_time": [100.0, 104.0]}
    )
    (row,) = curve_table(rounds).itertuples()
    assert row.elapsed_time == 102.0
    assert row.elapsed_time_half_width == pytest.approx(12.706 * 2, rel=1e-4)


def test_coinciding__are_policies_with_the_same_accuracy_in_every_round():
    index = pd.MultiIndex.from_product(
        [["a", "b", "c"], [0, 1], [1, 2]], names=["policy", "seed", "round"]
    )
    rounds = pd.DataFrame({"test_accuracy": [np.nan, 0.5, np.nan, 0.6] * 3}, index).reset_index()
    rounds.loc[rounds.index[-1], "test_accuracy"] = 0.7
    assert coinciding(rounds) == [["a", "b"]]
    assert coinciding(rounds.drop(columns="test_accuracy")) == []

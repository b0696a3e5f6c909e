"""The picture of a leaderboard: its rows; and the table of standings."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.benchmark.comparison import Comparison
from policies.report.ranking import ranked, ranked_overall
from policies.report.standings import save_overview, standings
from policies.report.tables import overview_markdown

NAMES = ["a", "b", "c", "d", "e"]
RUN = st.tuples(st.integers(1, 9), st.sampled_from(["ok", "over budget", "leaves out"]))


def board(runs: dict[str, tuple[int, str]], left_out: dict[str, str] | None = None) -> Comparison:
    """A setting in which a policy has a total time and a status."""
    rows = [
        {"policy": name, "seed": 0, "total_time": float(time), "status": status}
        for name, (time, status) in runs.items()
    ]
    return Comparison(pd.DataFrame(rows), left_out=left_out or {})


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, RUN)), min_size=1, max_size=4))
def test_overview__rows_are_in_the_order_of_the_tables(settings):
    summaries = [board(runs).summary for runs in settings]
    rows = ranked_overall(summaries)
    tables = [ranked(each) for each in summaries]
    for one, other in itertools.combinations(NAMES, 2):
        before = {table.index(one) < table.index(other) for table in tables}
        if len(before) == 1:
            assert before == {rows.index(one) < rows.index(other)}
    if len(tables) == 1:
        assert rows == tables[0]


def test_overview__always_ok_come_first_by_mean_rank():
    ok = "ok"
    over = "over budget"
    settings = [
        {"first": (1, ok), "few": (3, ok), "last": (9, ok), "twice": (2, ok), "once": (4, over)},
        {"first": (2, ok), "last": (9, ok), "twice": (1, ok), "once": (3, ok), "never": (1, over)},
        {"first": (2, ok), "last": (9, ok), "twice": (1, over), "once": (1, over)},
    ]
    boards = {str(number): board(runs) for number, runs in enumerate(settings)}
    order = ranked_overall([each.summary for each in boards.values()])
    assert order == ["first", "few", "last", "twice", "once", "never"]
    header = overview_markdown({name: each.summary for name, each in boards.items()}).split("\n")[0]
    assert header == f"| setting | {' | '.join(order)} |"


def test_overview__has_no_row_of_who_ran_nowhere(tmp_path):
    left_out = {"b": "needs training", "c": "needs training"}
    boards = {
        "one": board({"a": (3, "ok"), "d": (1, "over budget")}, left_out),
        "two": board({"a": (3, "ok"), "b": (9, "ok")}, {"c": "needs training"}),
    }
    assert ranked_overall([each.summary for each in boards.values()]) == ["a", "b", "d"]
    save_overview(boards, tmp_path / "overview.png", formats=("png", "pdf"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["overview.pdf", "overview.png"]
    assert np.all([path.stat().st_size for path in tmp_path.iterdir()])


def timed(**times: list[float]) -> Comparison:
    """Runs of policies that differ in the times to the target."""
    rows = [
        {"policy": name, "seed": seed, "total_time": 9.0, "time_to_target": value}
        | {"status": "ok", "status_reason": ""}
        for name, values in times.items()
        for seed, value in enumerate(values)
    ]
    return Comparison(pd.DataFrame(rows), 0.9, left_out={"late": "needs training"})


def test_standings__times_are_compared_seed_by_seed():
    table = standings(timed(fast=[1.0, 2.0, 4.0], slow=[2.0, 3.0, 4.0])).set_index("scheduler")
    # Ratios less one are 1, 1/2 and 0: mean 1/2, deviation 1/2, and t(0.975, 2) = 4.302653.
    half = 4.302653 * 0.5 / np.sqrt(3)
    row = table.loc["slow"]
    assert row["longer_than_leader"] == pytest.approx(0.5)
    assert row["longer_than_leader_low"] == pytest.approx(0.5 - half)
    assert row["longer_than_leader_high"] == pytest.approx(0.5 + half)
    assert table.loc["fast", "longer_than_leader"] == 0
    assert table["rank"].tolist()[:2] == [1, 2]
    assert table.loc["late", "status"] == "needs training"


def test_standings__a_target_missed_in_a_run_has_no_mean_time():
    table = standings(timed(misses=[0.1, np.nan], slow=[2.0, 3.0])).set_index("scheduler")
    assert table.index.tolist() == ["slow", "misses", "late"]
    assert table.loc["misses", "reached"] == 1
    assert table.loc["misses", ["time_to_target", "longer_than_leader"]].isna().all()

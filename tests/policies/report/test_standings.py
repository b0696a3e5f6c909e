"""The picture of a leaderboard: its rows; and the table of standings."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.benchmark.comparison import Comparison
from policies.report.ranking import ranked, ranked_overall, ranks
from policies.report.standings import save_overview, standings

NAMES = ["a", "b", "c", "d", "e"]
RUN = st.tuples(st.integers(1, 9), st.sampled_from(["ok", "over budget", "leaves out"]))


def board(runs: dict[str, tuple[int, str]], left_out: dict[str, str] | None = None) -> Comparison:
    """A setting in which a policy has a priced time and a status."""
    rows = [
        {"policy": name, "seed": 0, "total_time": 9.0, "priced_time": float(time), "status": status}
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


def test_overview__those_ok_in_most_settings_come_first():
    ok = "ok"
    over = "over budget"
    settings = [
        {"first": (1, ok), "few": (3, ok), "last": (9, ok), "twice": (2, ok), "once": (4, over)},
        {"first": (2, ok), "last": (9, ok), "twice": (1, ok), "once": (3, ok), "never": (1, over)},
        {"first": (2, ok), "last": (9, ok), "twice": (1, over), "once": (1, over)},
    ]
    order = ranked_overall([board(runs).summary for runs in settings])
    assert order == ["first", "last", "twice", "once", "few", "never"]


def test_overview__has_no_row_of_who_ran_nowhere(drawn, tmp_path):
    left_out = {"b": "needs training", "c": "needs training"}
    boards = {
        "one": board({"a": (3, "ok"), "d": (1, "over budget, leaves out")}, left_out),
        "two": board({"a": (3, "ok"), "b": (9, "ok")}, {"c": "needs training"}),
    }
    assert ranked_overall([each.summary for each in boards.values()]) == ["a", "b", "d"]
    save_overview(boards, tmp_path / "overview.png", formats=("png", "pdf"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["overview.pdf", "overview.png"]
    lines = {line.get_label(): line.get_xydata() for line in drawn[0].axes[0].get_lines()}
    # In the row of d, each fault has a mark at a third of a's time.
    np.testing.assert_allclose([lines["over budget"], lines["leaves out"]], [[[1 / 3, 2]]] * 2)
    assert drawn[0].axes[0].get_xlim() == drawn[0].axes[1].get_xlim()


def timed(**times: list[float]) -> Comparison:
    """Runs of policies that differ in the priced times to the target."""
    rows = [
        {"policy": name, "seed": seed, "total_time": 9.0, "priced_time": 9.0}
        | {"time_to_target": 7.0 + value, "priced_time_to_target": value}
        | {"status": "ok", "status_reason": ""}
        for name, values in times.items()
        for seed, value in enumerate(values)
    ]
    return Comparison(pd.DataFrame(rows), 0.9, left_out={"late": "needs training"})


def test_standings__times_are_compared_seed_by_seed():
    board = timed(misses=[0.1, np.nan, 0.1], fast=[1.0, 2.0, 4.0], slow=[2.0, 3.0, 4.0])
    table = standings(board).set_index("scheduler")
    assert table.index.tolist() == ["fast", "slow", "misses", "late"]
    # Ratios less one are 1, 1/2 and 0: mean 1/2, deviation 1/2, and t(0.975, 2) = 4.302653.
    half = 4.302653 * 0.5 / np.sqrt(3)
    ratio = table.filter(like="longer_than_leader")
    assert ratio.loc["slow"].tolist() == pytest.approx([0.5, 0.5 - half, 0.5 + half])
    assert ratio.loc["fast"].tolist() == [0, 0, 0]
    assert ratio.loc["misses"].isna().all()
    assert table["reached"].tolist()[:3] == [3, 3, 2]
    assert table.filter(like="rank").to_numpy()[:3].tolist() == [[1, 1, 2], [2, 1, 2], [3, 3, 3]]
    assert np.isnan(table.loc["misses", "priced_time_to_target"])
    assert table.loc["late", "status"] == "needs training"


def test_ranks__tie_where_paired_intervals_do_not_separate():
    # The times of a seed are similar, those of different seeds are not.
    seeds = np.array([1.0, 10.0, 100.0])
    table = timed(
        first=seeds, near=seeds * [1, 1.1, 1.25], next=seeds * [1.2, 1.25, 1.3], last=seeds * 2
    ).summary
    ties = {"first": (1, 1, 2), "near": (2, 1, 3), "next": (3, 2, 3), "last": (4, 4, 4)}
    assert ranks(table) == ties
    assert ranks(table[table["seed"] == 2]) == {name: 3 * (tie[0],) for name, tie in ties.items()}

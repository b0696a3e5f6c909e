"""The picture of a leaderboard: its rows; and the table of standings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from policies.benchmark.comparison import Comparison
from policies.report.ranking import ranked_overall, ranks
from policies.report.standings import save_overview, standings


def board(
    times: dict[str, list[float]], statuses: dict[str, str], left_out: dict[str, str]
) -> Comparison:
    """A setting with the priced times of each policy to the target, and statuses other than ok."""
    rows = [
        {"policy": name, "seed": seed, "total_time": 9.0, "priced_time": 9.0}
        | {"time_to_target": 7.0 + value, "priced_time_to_target": value}
        | {"status": statuses.get(name, "ok"), "status_reason": ""}
        for name, values in times.items()
        for seed, value in enumerate(values)
    ]
    return Comparison(pd.DataFrame(rows), 0.9, left_out=left_out)


def test_overall__no_rank_counts_as_the_last():
    one = {"slow": [9.0], "fast": [3.0], "absent": [2.0], "once": [2.0], "over": [1.0]}
    two = {"slow": [9.0], "fast": [3.0], "once": [1.0]}
    boards = board(one, {"over": "over budget"}, {}), board(two, {"once": "over budget"}, {})
    order = ranked_overall([each.summary for each in boards])
    # Mean ranks are 2, 3, 3, 3.5 and 5.
    assert order == ["fast", "absent", "slow", "once", "over"]


def test_overview__marks_faults_and_skips_policies_not_run(drawn, tmp_path):
    out = {"b": "needs training", "c": "needs training"}
    one = board({"a": [3.0], "d": [1.0]}, {"d": "over budget, leaves out"}, out)
    two = board({"a": [3.0], "b": [9.0]}, {}, {"c": "needs training"})
    save_overview({"one": one, "two": two}, tmp_path / "overview.png")
    first, second = drawn[0].axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b", "d"]
    assert [text.get_text() for text in second.texts] == ["not run"]
    lines = {line.get_label(): line.get_xydata() for line in first.get_lines()}
    np.testing.assert_allclose([lines["over budget"], lines["leaves out"]], [[[1 / 3, 2]]] * 2)
    assert first.get_xlim() == second.get_xlim()


def test_standings__times_are_compared_seed_by_seed():
    times = {"misses": [0.1, np.nan, 0.1], "fast": [1.0, 2.0, 4.0], "slow": [2.0, 3.0, 4.0]}
    table = standings(board(times, {}, {"late": "needs training"})).set_index("scheduler")
    assert table.index.tolist() == ["fast", "slow", "misses", "late"]
    # Ratios less one are 1, 1/2 and 0: mean and deviation 1/2, and t(0.975, 2) / sqrt(3) = 2.48414.
    ratio = table.filter(like="longer_than_leader")[:3]
    expected = [[0, 0, 0], [0.5, -0.74207, 1.74207], [np.nan] * 3]
    np.testing.assert_allclose(ratio, expected, rtol=1e-5)
    assert table["reached"].tolist()[:3] == [3, 3, 2]
    assert table.filter(like="rank").to_numpy()[:3].tolist() == [[1, 1, 2], [2, 1, 2], [3, 3, 3]]
    assert table.loc["late", "status"] == "needs training"


def test_ranks__tie_where_paired_intervals_do_not_separate():
    # The times of a seed are similar, those of different seeds are not.
    seeds = np.array([1.0, 10.0, 100.0])
    times = {
        "first": seeds,
        "near": seeds * [1, 1.1, 1.25],
        "next": seeds * [1.2, 1.25, 1.3],
        "last": seeds * 2,
    }
    table = board(times, {}, {}).summary
    ties = {"first": (1, 1, 2), "near": (2, 1, 3), "next": (3, 2, 3), "last": (4, 4, 4)}
    assert ranks(table) == ties
    assert ranks(table[table["seed"] == 2]) == {name: 3 * (tie[0],) for name, tie in ties.items()}

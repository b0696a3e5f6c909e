"""The standings of a leaderboard, and a picture of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from policies.benchmark.figures import log_ticks, no_formula, save_figure
from policies.benchmark.intervals import Interval, mean_interval, relative_interval
from policies.benchmark.status import LEAVES_OUT, OK, OVER_BUDGET
from policies.benchmark.tables import Board, by_policy, is_ok, judged_by, ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Columns of a summary whose means and intervals are in the standings.
_MEASURES = (
    "time_to_target",
    "total_time",
    "final_accuracy",
    "worst_tenth_accuracy",
    "spent_ratio",
    "worst_spent_ratio",
    "influence",
    "aggregate_noise",
    "least_participation",
    "never_seen",
    "outcome_gap",
    "gap",
)
_MOST_COLUMNS = 4  # of panels
# The policy that others are drawn against.
_REFERENCE = "LROA"


def standings(board: Board) -> pd.DataFrame:
    """The schedulers of a setting by rank, then those that are not ok, and those that were not run.

    A row for each has its `rank`, if it is ok (see `policies.benchmark.tables.ranked`), `status`
    (or why it was not run) and `status_reason`, number of `seeds`, with a target the number of runs
    that `reached` it, and for each measure its mean and, in columns `_low` and `_high`, the ends of
    its 95 % interval over seeds. `longer_than_leader` is how much longer its time is than that of
    the leader on the same seed, relative: its total time, or with a target its time to the target.
    What is not defined in every run is NaN, and the columns are the same in every setting.
    """
    summary = board.summary
    runs = {name: group.set_index("seed") for name, group in by_policy(summary)}
    names = ranked(summary)
    time = judged_by(summary)
    rows: list[dict[str, object]] = []
    for rank, name in enumerate(names, 1):
        group = runs[name]
        told = {column: group[column].iloc[0] for column in ("status", "status_reason")}
        row = {"scheduler": name, "seeds": len(group)} | told
        if told["status"] == OK:
            row["rank"] = rank
        if "time_to_target" in group:
            row["reached"] = int(group["time_to_target"].notna().sum())
        row |= _cells("longer_than_leader", _paired(group[time], runs[names[0]][time]))
        for column in _MEASURES:
            if column in group:
                row |= _cells(column, mean_interval(group[column]))
        rows.append(row)
    rows += [{"scheduler": name, "status": why} for name, why in board.left_out.items()]
    intervals = [name for each in ("longer_than_leader", *_MEASURES) for name in _names(each)]
    first = ["rank", "scheduler", "status", "status_reason", "seeds", "reached"]
    columns = [*first, *intervals]
    table = pd.DataFrame(rows).reindex(columns=columns)
    return table.astype(dict.fromkeys(("rank", "seeds", "reached"), "Int64"))


def _names(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _cells(name: str, interval: Interval) -> dict[str, float]:
    return dict(zip(_names(name), interval, strict=True))


def _paired(values: pd.Series, reference: pd.Series) -> Interval:
    """The relative interval of values, paired with those of the same seed."""
    return relative_interval(values, reference.reindex(values.index))


def save_overview(
    boards: Mapping[str, Board], path: Path, formats: Sequence[str] = ("png",)
) -> None:
    """Draw the time of each scheduler over that of LROA, a panel for each setting, in rows.

    The picture is written beside `path` in each of the formats, with that as its suffix.
    """
    order = overview_rows(list(boards.values()))
    columns = math.ceil(len(boards) / math.ceil(len(boards) / _MOST_COLUMNS))
    panels: list[Callable[[Axes], None]] = [
        partial(_draw_board, name=name, board=board, order=order, first=index % columns == 0)
        for index, (name, board) in enumerate(boards.items())
    ]
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    paths = [path.with_suffix(f".{kind}") for kind in formats]
    save_figure(rows, paths, panel_size=(3.3, 0.8 + 0.17 * len(order)))


def overview_rows(boards: Sequence[Board]) -> list[str]:
    """Who ran, from the best: those that are ok in more of their settings, then by mean rank.

    Who comes before another one in every table, comes before it here, too.
    """
    places: dict[str, list[tuple[bool, int]]] = {}
    for board in boards:
        runs = dict(by_policy(board.summary))
        for rank, name in enumerate(ranked(board.summary)):
            places.setdefault(name, []).append((not is_ok(runs[name]), rank))
    return sorted(places, key=lambda name: tuple(np.mean(places[name], axis=0)))


def _draw_board(axes: Axes, name: str, board: Board, order: Sequence[str], first: bool) -> None:
    """The panel of a setting: a row for each scheduler, from the best at the top."""
    runs = {policy: group.set_index("seed") for policy, group in by_policy(board.summary)}
    time = judged_by(board.summary)
    reached = [policy for policy in ranked(board.summary) if runs[policy][time].notna().all()]
    reference = _REFERENCE if _REFERENCE in reached else next(iter(reached), _REFERENCE)
    axes.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    for row, policy in enumerate(order):
        if policy in reached:
            ratio = [1 + value for value in _paired(runs[policy][time], runs[reference][time])]
            _draw_point(axes, row, Interval(*ratio), runs[policy]["status"].iloc[0])
            continue
        told = "target missed in a run" if policy in runs else "–"
        box = {"facecolor": "white", "linewidth": 0, "pad": 1}
        place = axes.get_yaxis_transform()
        text = axes.text(0.5, row, told, ha="center", va="center", transform=place, bbox=box)
        text.set_fontsize("x-small")
    axes.set_xscale("log")
    log_ticks(axes.xaxis)
    axes.set_ylim(len(order) - 0.4, -0.6)
    names = [no_formula(policy) if first else "" for policy in order]
    axes.set_yticks(range(len(order)), names)
    axes.set_title(no_formula("\n".join(textwrap.wrap(name, 24))))
    what = "total time" if board.target is None else f"time to {100 * board.target:g} %"
    axes.set_xlabel(no_formula(f"{what} / {reference}'s"))


_STATUS_LOOKS = {OK: ("#0072B2", "o"), OVER_BUDGET: ("#D55E00", "s"), LEAVES_OUT: ("#CC79A7", "^")}


def _draw_point(axes: Axes, row: int, ratio: Interval, status: str) -> None:
    """A ratio of times with its interval, hollow where the scheduler is not ok."""
    color, marker = _STATUS_LOOKS[status]
    if np.isfinite(ratio.low):  # an axis of logarithms has no place for zero
        ends = [max(ratio.low, ratio.mean / 10), ratio.high]
        axes.plot(ends, [row, row], color=color, zorder=2)
    axes.plot(
        ratio.mean, row, marker, color=color, label=status, zorder=3,
        markerfacecolor=color if status == OK else "white",
    )  # fmt: skip

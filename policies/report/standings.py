"""The standings of a leaderboard as a table and as a figure.

`fl-edge leaderboard` passes each setting's `Comparison` to `standings`, whose rows are
leaderboard.csv, and all of them to `save_overview`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import Interval, mean_interval, relative_interval
from policies.benchmark.status import LEAVES_OUT, OK, OVER_BUDGET, OVERWEIGHTS, TOO_MANY
from policies.report.figures import Dot, Mark, draw_dots, log_ticks, save_figure, wrapped
from policies.report.ranking import by_seed, is_ok, ranked, ranked_overall, ranking_column, ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Columns of a summary with means and intervals in the standings.
_MEASURES = (
    "time_to_target",
    "priced_time_to_target",
    "total_time",
    "priced_time",
    "final_accuracy",
    "worst_tenth_accuracy",
    "spent_ratio",
    "lack",
    "excess",
    "worst_spent_ratio",
    "influence",
    "aggregate_noise",
    "least_participation",
    "never_seen",
    "outcome_gap",
    "accuracy_gap",
    "gap",
)
_MOST_COLUMNS = 4  # of panels
# The policy to which the figure compares the others.
_REFERENCE = "LROA"


def standings(comparison: Comparison) -> pd.DataFrame:
    """The schedulers of a setting by rank, then those that are not ok, then those not run.

    The row of a scheduler has its `rank` if it is ok, and in `rank_low` and `rank_high` the first
    and last that chance explains (see `policies.report.ranking.ranks`). It has its `status` (or why
    it was not run) and `status_reason`, the number of `seeds`, and with a target the number of runs
    that `reached` it. For each measure it has the mean and, in columns `_low` and `_high`, the ends
    of its 95 % interval over seeds. `longer_than_leader` is its priced time, until the target if
    there is one, over the leader's on the same seed, minus one. A measure that is undefined in a
    run is NaN. The columns are the same in every setting.
    """
    found = ranks(comparison.summary)
    runs = by_seed(comparison.summary)
    names = ranked(comparison.summary)
    time = ranking_column(comparison.summary)
    rows = []
    for name in names:
        row = _row(name, runs[name], _paired(runs[name][time], runs[names[0]][time]))
        if name in found:
            row |= zip(_columns("rank"), found[name], strict=True)
        rows.append(row)
    rows += [{"scheduler": name, "status": why} for name, why in comparison.left_out.items()]
    order = [*_columns("rank"), "scheduler", "status", "status_reason", "seeds", "reached"]
    order += [name for each in ("longer_than_leader", *_MEASURES) for name in _columns(each)]
    table = pd.DataFrame(rows).reindex(columns=order)
    return table.astype(dict.fromkeys((*_columns("rank"), "seeds", "reached"), "Int64"))


def _row(name: str, runs: pd.DataFrame, longer: Interval) -> dict[str, object]:
    """The row of a scheduler but for its rank, given its time over the leader's, less one."""
    row = {"scheduler": name, "seeds": len(runs)}
    row |= {column: runs[column].iloc[0] for column in ("status", "status_reason")}
    if "time_to_target" in runs:
        row["reached"] = runs["time_to_target"].notna().sum()
    intervals = {column: mean_interval(runs[column]) for column in _MEASURES if column in runs}
    for column, interval in (intervals | {"longer_than_leader": longer}).items():
        row |= zip(_columns(column), interval, strict=True)
    return row


def _columns(measure: str) -> tuple[str, str, str]:
    """The columns of a mean and the ends of its interval."""
    return measure, f"{measure}_low", f"{measure}_high"


def _paired(values: pd.Series, reference: pd.Series) -> Interval:
    """The relative interval of values, paired with a reference by seed."""
    return relative_interval(values, reference.reindex(values.index))


def save_overview(
    comparisons: Mapping[str, Comparison], path: Path, formats: Sequence[str] = ("png",)
) -> None:
    """Draw each scheduler's priced time relative to LROA's, a panel for each setting, in rows.

    If LROA misses the target in a run, times are relative to the best scheduler that reaches it.
    Schedulers are in the order of `ranked_overall`. All panels have the same axis.

    The figure is written next to `path`, once for each format, with the format as its suffix.
    """
    order = ranked_overall([comparison.summary for comparison in comparisons.values()])
    columns = math.ceil(len(comparisons) / math.ceil(len(comparisons) / _MOST_COLUMNS))
    settings = {name: _dots(comparison, order) for name, comparison in comparisons.items()}
    ends = [1.0, *(end for _, dots in settings.values() for dot in dots for end in dot.ends)]
    limits = (np.nanmin(ends) / 1.1, np.nanmax(ends) * 1.1)
    panels = []
    for index, (name, (label, dots)) in enumerate(settings.items()):
        if index % columns:
            dots = [dot._replace(label="") for dot in dots]
        panels.append(partial(_draw_setting, name=name, label=label, dots=dots, limits=limits))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    paths = [path.with_suffix(f".{kind}") for kind in formats]
    save_figure(rows, paths, panel_size=(3.3, 0.8 + 0.17 * len(order)))


def _dots(comparison: Comparison, order: Sequence[str]) -> tuple[str, list[Dot]]:
    """The label of a setting's panel, and its rows: ratios to the reference's time, and faults."""
    runs = by_seed(comparison.summary)
    time = ranking_column(comparison.summary)
    reached = [policy for policy in ranked(comparison.summary) if runs[policy][time].notna().all()]
    reached.sort(key=lambda policy: policy != _REFERENCE)
    dots = []
    for policy in order:
        if policy in reached:
            longer = _paired(runs[policy][time], runs[reached[0]][time])
            ratio = Interval(*np.add(longer, 1))
            faults = runs[policy]["status"].iloc[0].split(", ")
            marks = [Mark(*_STATUS_LOOKS[fault], fault) for fault in faults]
            dots.append(Dot(policy, ratio, "", marks, is_ok(runs[policy])))
        else:
            dots.append(
                Dot(policy, None, "target missed in a run" if policy in runs else "not run")
            )
    target = comparison.target
    goal = "" if target is None else f" to {100 * target:g} %"
    return f"priced time{goal} ÷\n{[*reached, _REFERENCE][0]}'s (log axis)", dots


def _draw_setting(
    axes: Axes, name: str, label: str, dots: Sequence[Dot], limits: tuple[float, float]
) -> None:
    """The panel of a setting: a row for each scheduler, from the best at the top."""
    axes.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    draw_dots(axes, dots)
    axes.set(xscale="log", xlim=limits)
    log_ticks(axes.xaxis)
    axes.set_title("\n".join(wrapped(name, 22)), parse_math=False)
    axes.set_xlabel(label, parse_math=False)


_STATUS_LOOKS = {
    OK: ("#0072B2", "o", 5),
    OVER_BUDGET: ("#D55E00", "s", 5),
    LEAVES_OUT: ("#CC79A7", "^", 9),
    OVERWEIGHTS: ("#009E73", "D", 5),
    TOO_MANY: ("#E69F00", "v", 9),
}

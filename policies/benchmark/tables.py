"""Tables of a comparison, for the terminal and for files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.measure import Measurement
from rich.table import Table
from scipy.special import stdtrit

from policies.benchmark.console import PlainConsole
from policies.benchmark.intervals import mean_interval
from policies.benchmark.status import OK


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which a duration in seconds reads well, and its length [s]."""
    for name, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return name, length
    return "s", 1.0


class Board(NamedTuple):
    """The runs of a setting, a row each, and what else its table and picture tell."""

    summary: pd.DataFrame
    target: float | None = None  # test accuracy
    caution: str = ""  # what the runs cannot tell from luck
    left_out: Mapping[str, str] = MappingProxyType({})  # who was not run, and why


class Column(NamedTuple):
    """A column of a comparison: to what it belongs, its name in two lines, how soon it is left out.

    Without cells a column does not apply.
    """

    group: str
    header: str
    importance: int
    cells: dict[str, str]

    @property
    def name(self) -> str:
        """The header in one line."""
        return self.header.strip().replace("-\n", "").replace("\n", " ")


def comparison_tables(
    boards: Sequence[Board], *, width: int = 100, leader: bool = False
) -> list[Table]:
    """Tables for the terminal with the same columns: a row for each policy, values over seeds.

    Policies that are ok come first, and the fastest first among them; the others stand below a
    line, and the reasons below the table. Total times are compared with those of the first policy
    of a summary, or times to the target, if there is one, with those of the `leader`. If the
    terminal is narrow, the tables leave out the least important columns, and say so.
    """
    columns = comparison_columns(boards, "status", leader=leader)
    places = sorted(range(len(columns[0])), key=lambda place: columns[0][place].importance)
    wide, dropped, whole = PlainConsole(width=1000), 0, 0
    while True:
        tables = [
            _table(board, each, places[:dropped], whole)
            for board, each in zip(boards, columns, strict=True)
        ]
        needed = max(Measurement.get(wide, wide.options, table).maximum for table in tables)
        if needed <= width or len(places) - dropped <= _LEAST_COLUMNS:
            return tables
        whole, dropped = whole or needed, dropped + 1


def _table(board: Board, columns: Sequence[Column], hidden: Collection[int], whole: int) -> Table:
    """A table without the columns at `hidden` places; with them a terminal must be `whole` wide."""
    summary = board.summary
    runs, names = dict(by_policy(summary)), ranked(summary)
    fallen = [name for name in names if not is_ok(runs[name])]
    table = Table(title=over_seeds(summary), box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    kept = [column for place, column in enumerate(columns) if place not in hidden]
    for group, column in zip(_group_heads(kept), kept, strict=True):
        table.add_column(f"{group}\n{column.header}", justify="right", no_wrap=True)
    for name in names:
        if [name] == fallen[:1] != names[:1]:
            table.add_section()
        style = "red" if name in fallen else None
        table.add_row(name, *(column.cells.get(name, "–") for column in kept), style=style)
    told = [f"{name}: {runs[name]['status_reason'].iloc[0]}." for name in fallen]
    told.append(caption(kept, board))
    if hidden:
        unseen = [columns[place].name.replace(", %", "") for place in sorted(hidden)]
        told.append(
            f"Not shown, as the terminal is narrow: {', '.join(unseen)}. COLUMNS={whole} before "
            "the command shows them."
        )
    table.caption, table.caption_justify = "\n".join(told), "left"
    return table


def comparison_markdowns(boards: Sequence[Board]) -> list[str]:
    """The tables of a comparison in Markdown, with the same columns: policies by rank.

    The others' time is compared with that of the leader. Policies that are not ok have no rank.
    Below a table stands what the columns mean.
    """
    tables = []
    for board, columns in zip(
        boards, comparison_columns(boards, "status_reason", leader=True), strict=True
    ):
        runs = dict(by_policy(board.summary))
        rows = [["rank", "scheduler", *(column.name for column in columns)]]
        rows.append(["---:", "---", *["---:"] * len(columns)])
        for rank, name in enumerate(ranked(board.summary), 1):
            place = str(rank) if is_ok(runs[name]) else "–"
            rows.append([place, name, *(column.cells.get(name, "–") for column in columns)])
        for name, reason in board.left_out.items():
            rows.append(["–", f"{name} ({reason})", *["–"] * len(columns)])
        tables.append(f"{_markdown(rows)}\n\n{caption(columns, board)}")
    return tables


def over_seeds(summary: pd.DataFrame) -> str:
    """A title that says what the numbers of a table are."""
    seeds = summary["seed"].nunique()
    if seeds < _LEAST_SEEDS:
        return "One seed" if seeds == 1 else "Values of both seeds"
    return f"Mean and 95 % interval over {seeds} seeds"


def overview_markdown(summaries: Mapping[str, pd.DataFrame]) -> str:
    """The times of several settings in Markdown: a row for each of them, a column a scheduler.

    The time is the one by which a setting is ranked. That of a scheduler that is not ok stands in
    brackets, and the shortest of the others is bold.
    """
    names = list(dict.fromkeys(name for each in summaries.values() for name in each["policy"]))
    rows = [["setting", *names], ["---", *["---:"] * len(names)]]
    for setting, summary in summaries.items():
        runs, time = dict(by_policy(summary)), judged_by(summary)
        unit, length = time_unit(float(summary["total_time"].max()))
        best = ranked(summary)[0]
        row = [f"{setting}, {unit}"]
        for name in names:
            cell = _reached(runs[name][time] / length) if name in runs else "–"
            if name in runs and not is_ok(runs[name]):
                cell = f"({cell})"
            elif name == best:
                cell = f"**{cell}**"
            row.append(cell)
        rows.append(row)
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def judged_by(summary: pd.DataFrame) -> str:
    """The column by which `ranked` orders policies that are alike otherwise."""
    return "time_to_target" if "time_to_target" in summary else "total_time"


_STATUS_TOLD = (
    "A policy is ok if, beyond luck, no device spends more than 10 % and all together no more than "
    "3 % over the budget, and none counts less than half of what its data ask for."
)
# A narrow terminal drops columns until these many are left.
_LEAST_COLUMNS = 2
# With fewer seeds the values stand in place of their mean: an interval would say nothing.
_LEAST_SEEDS = 3
_INFLUENCE, _NOISE = "least in-\nfluence, %", "aggregate\nnoise"
_WORST_TENTH = "worst\ntenth, %"
_GAP, _OUTCOME_GAP = "above\nbound, %", "outcome\nbound, %"


def ranked(summary: pd.DataFrame) -> list[str]:
    """Policies from the best to the worst: those that are ok first, then by time.

    The time is that to the target where there is one, and a policy that reaches it in every run
    comes before one that does not.
    """
    rank = {}
    for name, group in by_policy(summary):
        time = group["total_time"]
        missed = 0
        if "time_to_target" in summary:
            missed = int(group["time_to_target"].isna().sum())
            time = group["time_to_target"] if missed == 0 else time
        rank[name] = (not is_ok(group), missed, float(time.mean()))
    return sorted(rank, key=lambda name: rank[name])


def is_ok(runs: pd.DataFrame) -> bool:
    """True if a policy, of which these are the runs, keeps to its constraints."""
    return bool((runs["status"] == OK).all())


def comparison_columns(boards: Sequence[Board], status: str, *, leader: bool) -> list[list[Column]]:
    """The columns of each board, the same for all: a quantity that one has, all of them have."""
    every = dict.fromkeys(str(name) for board in boards for name in board.summary)
    several = any(board.summary["policy"].nunique() > 1 for board in boards)
    return [
        _columns(board, list(every), status, leader=leader, several=several) for board in boards
    ]


def _columns(
    board: Board, every: Sequence[str], status: str, *, leader: bool, several: bool
) -> list[Column]:
    """The columns of `every` quantity, and the times compared where a board has several."""
    summary = board.summary
    runs = {name: group.set_index("seed") for name, group in by_policy(summary)}
    unit, length = time_unit(float(summary["total_time"].max()))
    first = ranked(summary)[0] if leader else next(iter(runs))
    time = judged_by(summary) if leader else "total_time"
    columns = []

    def add(
        group: str,
        header: str,
        importance: int,
        needed: str,
        cell: Callable[[pd.DataFrame], str],
    ) -> None:
        if needed in every:
            cells = {name: cell(one) for name, one in runs.items() if needed in summary}
            columns.append(Column(group, header, importance, cells))

    def scaled(column: str, factor: float, decimals: int) -> Callable[[pd.DataFrame], str]:
        return lambda group: _numbers(factor * group[column], decimals)

    def longer(group: pd.DataFrame) -> str:
        if group is runs[first]:
            return "–"
        return _numbers(100 * (group[time] / runs[first][time].reindex(group.index) - 1), 2)

    goal = "target" if board.target is None else f"{100 * board.target:g} %"
    target = "time_to_target"
    add("outcome", f"time to\n{goal}, {unit}", 11, target, lambda g: _reached(g[target] / length))
    final = "final_accuracy"
    add("outcome", "final\naccuracy, %", 9, final, scaled(final, 100, 2))
    tenth = "worst_tenth_accuracy"
    add("outcome", _WORST_TENTH, 2, tenth, scaled(tenth, 100, 2))
    add("outcome", f"total\ntime, {unit}", 10, "total_time", scaled("total_time", 1 / length, 3))
    if several:
        word = "longer" if time == "total_time" else "later"
        add("outcome", f"{word} than\n{first}, %", 1, "total_time", longer)
    for group, header, importance, needed, cell in (
        ("constraints", "\nstatus", 12, status, lambda g: g[status].iloc[0] or OK),
        ("constraints", "spent, %\nof budget", 4, "spent_ratio", scaled("spent_ratio", 100, 1)),
        (
            "constraints",
            "worst\ndevice, %",
            6,
            "worst_spent_ratio",
            scaled("worst_spent_ratio", 100, 0),
        ),
        ("constraints", _INFLUENCE, 5, "influence", lambda g: _range(100 * g["influence"])),
        ("constraints", _NOISE, 3, "aggregate_noise", scaled("aggregate_noise", 1, 3)),
        ("constraints", "never\nseen", 2, "never_seen", lambda g: _range(g["never_seen"])),
        ("distance", _GAP, 7, "gap", scaled("gap", 100, 3)),
        ("distance", _OUTCOME_GAP, 8, "outcome_gap", scaled("outcome_gap", 100, 2)),
    ):
        add(group, header, importance, needed, cell)
    return columns


def _group_heads(columns: Sequence[Column]) -> list[str]:
    """For each column the group that begins there, or nothing."""
    groups = [column.group for column in columns]
    return [g if g != before else "" for before, g in zip(["", *groups], groups, strict=False)]


def caption(columns: Sequence[Column], board: Board) -> str:
    """Answers to what a reader may ask about the columns that are shown."""
    told = [_STATUS_TOLD, board.caution] if board.caution else [_STATUS_TOLD]
    headers = {column.header for column in columns if column.cells}
    if _WORST_TENTH in headers:
        told.append(
            "Worst tenth: mean of the tenth of the devices with the least accuracy, which is that "
            "on test data with the classes mixed as in a device's own data."
        )
    if _INFLUENCE in headers:
        told.append(
            "Influence is the mean weight of a device in the aggregate over its share of the data, "
            "of the device with the least."
        )
    if _NOISE in headers:
        told.append("Aggregate noise is the mean sum of the squared weights of a round.")
    if any(re.search(r"\d–\d", cell) for column in columns for cell in column.cells.values()):
        told.append("A range is that from the lowest to the highest run.")
    runs = [group for _, group in by_policy(board.summary)]
    undefined = [group for group in runs if _GAP in headers and group["gap"].isna().any()]
    if any(_samples(group) for group in undefined):
        told.append(
            "The first bound holds for policies that sample their cohort, where no device drops "
            "out and the bound is positive, and both for uploads as those of the first policy; a "
            "dash stands elsewhere."
        )
    elif undefined:
        told.append(
            "The first bound holds for policies that sample their cohort; a dash stands for those "
            "that choose it."
        )
    if _OUTCOME_GAP in headers:
        told.append(
            "Above the outcome bound: no policy of any kind can be below it, when time, energy "
            "really spent and missing participation all count at their prices. Read it beside the "
            "status: who leaves devices out pays no more than the price."
        )
        if any(group["outcome_gap"].isna().any() and not _samples(group) for group in runs):
            told.append("A dash stands for policies that give bandwidths or have other uploads.")
    return "\n".join(told)


def _samples(group: pd.DataFrame) -> bool:
    """True if a policy draws its cohorts; one that chooses them has no sampling error."""
    return "sampling_error" in group and bool(group["sampling_error"].notna().any())


def _numbers(values: pd.Series, most_decimals: int = 3) -> str:
    """Mean and half of the 95 % interval, rounded up to two digits; of few seeds the values.

    The mean has no more digits than the interval. A dash stands where the quantity is not defined.
    """
    sample = values.to_numpy(np.float64)
    if not np.isfinite(sample).all():
        return "–"
    if len(sample) < _LEAST_SEEDS:
        return ", ".join(_digits(value, most_decimals) for value in sample)
    mean, low, high = mean_interval(sample)
    half = (high - low) / 2
    if not half > 1e-12 * abs(mean):  # all the same, but for rounding
        return _digits(mean, most_decimals)
    up = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(half)
    unit = Decimal(1).scaleb(max(up.adjusted() - 1, -most_decimals))
    # Adding zero removes the sign of what has become zero.
    return f"{Decimal(mean).quantize(unit) + 0:f}±{up.quantize(unit, ROUND_CEILING):f}"


def _digits(value: float, most_decimals: int) -> str:
    """A number to four digits, or all of those before the point."""
    decimals = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, min(max(decimals, 0), most_decimals)) + 0.0:.15g}"


def _range(values: pd.Series) -> str:
    """The least and the greatest of numbers that take few values, rounded; of few seeds all."""
    if len(values) < _LEAST_SEEDS:
        return ", ".join(f"{value:.0f}" for value in values)
    low, high = f"{values.min():.0f}", f"{values.max():.0f}"
    return low if low == high else f"{low}–{high}"


def _reached(values: pd.Series) -> str:
    reached = values.dropna()
    if reached.empty:
        return "not reached"
    missed = "" if len(reached) == len(values) else f" ({len(reached)} of {len(values)} runs)"
    return _numbers(reached) + missed


def coinciding(rounds: pd.DataFrame) -> list[list[str]]:
    """Policies whose models were as good in every round of every seed, in groups."""
    if "test_accuracy" not in rounds:
        return []
    groups: list[tuple[pd.DataFrame, list[str]]] = []
    for name, group in by_policy(rounds):
        curves = group.pivot(index="round", columns="seed", values="test_accuracy")
        twins = next((names for other, names in groups if other.equals(curves)), None)
        if twins is None:
            groups.append((curves, [name]))
        else:
            twins.append(name)
    return [names for _, names in groups if len(names) > 1]


def curve_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """The data of the curves: for each policy and round the mean over seeds of each quantity.

    Columns `*_half_width` have half the width of Student's 95 % interval, NaN for a single seed.
    """
    names = ["elapsed_time", "energy_ratio", "spent_ratio", "penalty", "sampling_error"]
    names += ["train_loss", "test_loss", "test_accuracy"]
    groups = rounds.groupby(["policy", "round"], sort=False)[[n for n in names if n in rounds]]
    count = groups.count()
    quantile = count.map(lambda n: stdtrit(max(n - 1, 1), 0.975))
    half = groups.std().div(np.sqrt(count)).mul(quantile)
    return groups.mean().join(half.add_suffix("_half_width")).reset_index()


def by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each policy, in order of appearance."""
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]

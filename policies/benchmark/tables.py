"""The tables of a comparison: one description of the columns, three writers.

A command makes a `Board` of a summary (`policies.benchmark.summary.summarise`). `sheets` turns
boards into ranked rows of texts, and from these `comparison_tables` writes for the terminal,
`comparison_markdowns` for pages and `policies.benchmark.latex.comparison_latex` for papers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from policies.benchmark.intervals import digits, mean_interval, rounded
from policies.benchmark.status import OK

_STATUS = (
    "A policy is ok if, beyond luck, no device spends more than 10 % and all together no more than "
    "3 % over the budget, and no device lacks more than half and all together no more than 5 % of "
    "what their data ask for."
)
# A narrow terminal drops columns until this many are left.
_LEAST_COLUMNS = 2
# With fewer seeds the values stand instead of their mean: an interval would say nothing.
_LEAST_SEEDS = 3


class Board(NamedTuple):
    """The runs of a setting, a row each, and what else its table and picture show."""

    summary: pd.DataFrame
    target: float | None = None  # test accuracy
    caution: str = ""  # what the runs cannot show
    left_out: Mapping[str, str] = MappingProxyType({})  # policies that were not run, and why


class Column(NamedTuple):
    """A column of a table: its group, its name in two lines, and its cell for each policy.

    Without cells a column does not apply. A narrow terminal drops the least important first.
    """

    group: str
    header: str
    importance: int
    quantity: str  # of a summary
    cells: dict[str, str]

    @property
    def name(self) -> str:
        """The header in one line."""
        return self.header.strip().replace("-\n", "").replace("\n", " ")


class Sheet(NamedTuple):
    """The table of a board as texts: policies by rank, of which the first `good` are ok."""

    title: str
    names: list[str]
    good: int
    columns: list[Column]


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which a duration in seconds reads well, and its length [s]."""
    for name, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return name, length
    return "s", 1.0


def by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each policy, in order of appearance."""
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]


def is_ok(runs: pd.DataFrame) -> bool:
    """True if a policy, of which these are the runs, keeps to its constraints."""
    return bool((runs["status"] == OK).all())


def judged_by(summary: pd.DataFrame) -> str:
    """The column by which `ranked` orders policies that are alike otherwise."""
    return "time_to_target" if "time_to_target" in summary else "total_time"


def ranked(summary: pd.DataFrame) -> list[str]:
    """Policies from the best to the worst: those that are ok first, then by time.

    The time is that to the target where there is one, and a policy that reaches it in every run
    comes before one that does not.
    """
    rank = {}
    for name, group in by_policy(summary):
        time = group[judged_by(summary)]
        missed = int(time.isna().sum())
        time = group["total_time"] if missed else time
        rank[name] = (not is_ok(group), missed, float(time.mean()))
    return sorted(rank, key=lambda name: rank[name])


def ranked_overall(summaries: Sequence[pd.DataFrame]) -> list[str]:
    """The policies of several settings, first those that are ok in all of theirs, by mean rank.

    The others follow by the number of settings in which they are ok, then by mean rank. A policy
    that comes before another in every setting comes before it here.
    """
    good, ranks = dict[str, list[bool]](), dict[str, list[int]]()
    for summary in summaries:
        runs = dict(by_policy(summary))
        for rank, name in enumerate(ranked(summary)):
            good.setdefault(name, []).append(is_ok(runs[name]))
            ranks.setdefault(name, []).append(rank)

    def place(name: str) -> tuple[bool, int, float]:
        always = all(good[name])
        return not always, 0 if always else -sum(good[name]), float(np.mean(ranks[name]))

    return sorted(ranks, key=place)


def comparison_tables(
    boards: Sequence[Board], *, width: int = 100, leader: bool = False
) -> list[Table]:
    """Tables for the terminal with the same columns: a row for each policy, values over seeds.

    Policies that are ok come first, and the fastest first among them; the others stand below a
    line, and the reasons below the table. Total times are compared with those of the first policy
    of a summary, or times to the target, if there is one, with those of the `leader`. If the
    terminal is narrow, the tables leave out the least important columns, and say so.
    """
    every = sheets(boards, leader=leader)
    columns = every[0].columns
    places = sorted(range(len(columns)), key=lambda place: columns[place].importance)
    wide, dropped, whole = Console(markup=False, emoji=False, width=1000), 0, 0
    while True:
        tables = [
            _table(board, sheet, places[:dropped], whole)
            for board, sheet in zip(boards, every, strict=True)
        ]
        needed = max(Measurement.get(wide, wide.options, table).maximum for table in tables)
        if needed <= width or len(places) - dropped <= _LEAST_COLUMNS:
            return tables
        whole, dropped = whole or needed, dropped + 1


def _table(board: Board, sheet: Sheet, hidden: Collection[int], whole: int) -> Table:
    """A table without the columns at `hidden` places; with them a terminal must be `whole` wide."""
    table = Table(title=sheet.title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    kept = [column for place, column in enumerate(sheet.columns) if place not in hidden]
    before = ""
    for column in kept:
        group = column.group if column.group != before else ""
        table.add_column(f"{group}\n{column.header}", justify="right", no_wrap=True)
        before = column.group
    for place, name in enumerate(sheet.names):
        if 0 < place == sheet.good:
            table.add_section()
        style = "red" if place >= sheet.good else None
        table.add_row(name, *(column.cells.get(name, "–") for column in kept), style=style)
    runs, bad = dict(by_policy(board.summary)), sheet.names[sheet.good :]
    notes = [f"{name}: {runs[name]['status_reason'].iloc[0]}." for name in bad]
    notes.append(caption(kept, board))
    if hidden:
        unseen = [sheet.columns[place].name.replace(", %", "") for place in sorted(hidden)]
        notes.append(
            f"Not shown, as the terminal is narrow: {', '.join(unseen)}. COLUMNS={whole} before "
            "the command shows them."
        )
    table.caption, table.caption_justify = "\n".join(notes), "left"
    return table


def comparison_markdowns(boards: Sequence[Board]) -> list[str]:
    """The tables of a comparison in Markdown, with the same columns: policies by rank.

    The others' time is compared with that of the leader. Policies that are not ok have no rank.
    Below a table stands what the columns mean.
    """
    tables = []
    for board, sheet in zip(boards, sheets(boards, "status_reason", leader=True), strict=True):
        rows = [["rank", "scheduler", *(column.name for column in sheet.columns)]]
        rows.append(["---:", "---", *["---:"] * len(sheet.columns)])
        for rank, name in enumerate(sheet.names, 1):
            place = str(rank) if rank <= sheet.good else "–"
            rows.append([place, name, *(column.cells.get(name, "–") for column in sheet.columns)])
        for name, reason in board.left_out.items():
            rows.append(["–", f"{name} ({reason})", *["–"] * len(sheet.columns)])
        tables.append(f"{_markdown(rows)}\n\n{caption(sheet.columns, board)}")
    return tables


def overview_markdown(summaries: Mapping[str, pd.DataFrame]) -> str:
    """The times of several settings in Markdown: a row for each, a column for each scheduler.

    The columns are in the order of `ranked_overall`, and the time is the one by which a setting is
    ranked. Brackets mark schedulers that are not ok, and bold the shortest time of the others.
    """
    names = ranked_overall(list(summaries.values()))
    rows = [["setting", *names], ["---", *["---:"] * len(names)]]
    for setting, summary in summaries.items():
        runs, time = dict(by_policy(summary)), judged_by(summary)
        unit, length = time_unit(float(summary["total_time"].max()))
        cells = {name: _reached(group[time] / length) for name, group in runs.items()}
        cells |= {name: f"({cells[name]})" for name in runs if not is_ok(runs[name])}
        best = ranked(summary)[0]
        if is_ok(runs[best]):
            cells[best] = f"**{cells[best]}**"
        rows.append([f"{setting}, {unit}", *(cells.get(name, "–") for name in names)])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def sheets(boards: Sequence[Board], status: str = "status", *, leader: bool) -> list[Sheet]:
    """The table of each board, all with the same columns: a quantity that one has, all have.

    The column of the status shows `status`, a column of the summaries.
    """
    every = {str(name) for board in boards for name in board.summary}
    if any(board.summary["policy"].nunique() > 1 for board in boards):
        every.add("longer")
    return [_sheet(board, every, status, leader=leader) for board in boards]


def _sheet(board: Board, every: Collection[str], status: str, *, leader: bool) -> Sheet:
    summary, names = board.summary, ranked(board.summary)
    first = names[0] if leader else str(summary["policy"].iloc[0])
    time = judged_by(summary) if leader else "total_time"
    reference = summary[summary["policy"] == first].set_index("seed")[time]
    # The first has a dash.
    other = summary["seed"].map(reference).where(summary["policy"] != first)
    runs = dict(by_policy(summary.assign(longer=summary[time] / other - 1)))
    unit, length = time_unit(float(summary["total_time"].max()))
    words = {
        "unit": unit,
        "goal": "target" if board.target is None else f"{100 * board.target:g} %",
        "longer": "longer" if time == "total_time" else "later",
        "first": first,
    }
    columns = []
    for group, header, importance, quantity, scale, cell in _columns(status, length):
        if quantity in every:
            cells = {}
            for name, group_runs in runs.items():
                if quantity in group_runs:
                    values = group_runs[quantity]
                    cells[name] = cell(values if scale == 1 else scale * values)
            columns.append(Column(group, header.format(**words), importance, quantity, cells))
    good = sum(is_ok(group) for group in runs.values())
    seeds = summary["seed"].nunique()
    title = f"Mean and 95 % interval over {seeds} seeds"
    if seeds < _LEAST_SEEDS:
        title = "One seed" if seeds == 1 else "Values of both seeds"
    return Sheet(title, names, good, columns)


def _columns(
    status: str, length: float
) -> list[tuple[str, str, int, str, float, Callable[[pd.Series], str]]]:
    """Group, header, importance, quantity of a summary, its scale, and the text of its values.

    Times are in a unit of this `length` [s].
    """
    few, two, three = (partial(_numbers, most_decimals=most) for most in (1, 2, 3))
    none = partial(_numbers, most_decimals=0)
    outcome, constraints, distance = "outcome", "constraints", "distance"
    return [
        (outcome, "time to\n{goal}, {unit}", 11, "time_to_target", 1 / length, _reached),
        (outcome, "final\naccuracy, %", 9, "final_accuracy", 100, two),
        (outcome, "worst\ntenth, %", 2, "worst_tenth_accuracy", 100, two),
        (outcome, "total\ntime, {unit}", 10, "total_time", 1 / length, three),
        (outcome, "{longer} than\n{first}, %", 1, "longer", 100, two),
        (constraints, "\nstatus", 12, status, 1, lambda values: values.iloc[0] or OK),
        (constraints, "spent, %\nof budget", 4, "spent_ratio", 100, few),
        (constraints, "worst\ndevice, %", 6, "worst_spent_ratio", 100, none),
        (constraints, "least in-\nfluence, %", 5, "influence", 100, _range),
        (constraints, "aggregate\nnoise", 3, "aggregate_noise", 1, three),
        (constraints, "never\nseen", 2, "never_seen", 1, _range),
        (distance, "above\nbound, %", 7, "gap", 100, three),
        (distance, "outcome\nbound, %", 8, "outcome_gap", 100, two),
    ]


def _numbers(values: pd.Series, most_decimals: int = 3) -> str:
    """Mean and half of the 95 % interval, see `rounded`; of few seeds the values.

    A dash stands where the quantity is not defined.
    """
    sample = values.to_numpy(np.float64)
    if not np.isfinite(sample).all():
        return "–"
    if len(sample) < _LEAST_SEEDS:
        return ", ".join(digits(value, most_decimals) for value in sample)
    return rounded(mean_interval(sample), most_decimals)


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


def caption(columns: Sequence[Column], board: Board) -> str:
    """Explanations of the columns that are shown."""
    notes = [_STATUS, board.caution] if board.caution else [_STATUS]
    shown = {column.quantity for column in columns if column.cells}
    if "worst_tenth_accuracy" in shown:
        notes.append(
            "Worst tenth: mean of the tenth of the devices with the least accuracy, which is that "
            "on test data with the classes mixed as in a device's own data."
        )
    if "influence" in shown:
        notes.append(
            "Influence is the mean weight of a device in the aggregate over its share of the data, "
            "of the device with the least."
        )
    if "aggregate_noise" in shown:
        notes.append("Aggregate noise is the mean sum of the squared weights of a round.")
    if any(re.search(r"\d–\d", cell) for column in columns for cell in column.cells.values()):
        notes.append("A range is that from the lowest to the highest run.")
    runs = [group for _, group in by_policy(board.summary)]
    undefined = [group for group in runs if "gap" in shown and group["gap"].isna().any()]
    if any(_samples(group) for group in undefined):
        notes.append(
            "The first bound holds for policies that sample their cohort, where no device drops "
            "out and the bound is positive, and both for uploads as those of the first policy; a "
            "dash stands elsewhere."
        )
    elif undefined:
        notes.append(
            "The first bound holds for policies that sample their cohort; a dash stands for those "
            "that choose it."
        )
    if "outcome_gap" in shown:
        notes.append(
            "Above the outcome bound: no policy of any kind can be below it, when time, energy "
            "really spent and missing participation all count at their prices. Read it beside the "
            "status: who leaves devices out pays no more than the price."
        )
        if any(group["outcome_gap"].isna().any() and not _samples(group) for group in runs):
            notes.append("A dash stands for policies that give bandwidths or have other uploads.")
    return "\n".join(notes)


def _samples(group: pd.DataFrame) -> bool:
    """True if a policy draws its cohorts; one that chooses them has no sampling error."""
    return "sampling_error" in group and bool(group["sampling_error"].notna().any())


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

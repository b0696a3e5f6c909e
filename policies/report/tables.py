"""The tables of a comparison: one description of the columns, and a writer for each medium.

`table_texts` turns a `policies.benchmark.comparison.Comparison` into ranked rows of texts.
`comparison_table` formats these for the terminal, `comparison_markdown` for pages and
`policies.report.latex.comparison_latex` for papers. docs/columns.md explains the columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import digits, mean_interval, rounded
from policies.benchmark.status import OK
from policies.benchmark.summary import by_policy
from policies.report.ranking import is_ok, ranked, ranked_overall, ranking_column, ranks

# The number of columns that a table always shows, however narrow the terminal.
_LEAST_COLUMNS = 4
# With fewer seeds a table lists the values: an interval would say nothing.
LEAST_SEEDS = 3


class Column(NamedTuple):
    """A column of a table: its group, its name in two lines, and its cell for each policy.

    A narrow terminal hides the least important columns.
    """

    group: str
    header: str
    importance: int
    quantity: str  # of a summary
    cells: dict[str, str]

    @property
    def name(self) -> str:
        """The header in one line."""
        return self.header.strip().replace("\n", " ")


class TableTexts(NamedTuple):
    """The table of a comparison as texts: policies by rank, the first `good` of which are ok."""

    title: str
    names: list[str]
    good: int
    columns: list[Column]

    def rows(self) -> list[list[str]]:
        """The name and the cells of each policy."""
        return [[name, *(column.cells[name] for column in self.columns)] for name in self.names]

    def without(self, hidden: Sequence[Column]) -> TableTexts:
        """The table without some columns."""
        return self._replace(columns=[each for each in self.columns if each not in hidden])


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which a duration in seconds reads well, and its length [s]."""
    for name, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return name, length
    return "s", 1.0


def comparison_table(
    comparison: Comparison, *, width: int = 100, leader: bool = False
) -> tuple[Table, list[str]]:
    """A table for the terminal, and notes below it.

    A row for each policy shows values over seeds: policies that are ok by priced time, then below a
    line the others. Total times are compared with the first policy of the summary, or priced times
    with the `leader`. A narrow terminal hides the least important columns. The notes say why
    policies are not ok, what the limits are, and where to read on.
    """
    whole = table_texts(comparison, leader=leader)
    texts = whole
    while table_width(_table(texts)) > width and len(texts.columns) > _LEAST_COLUMNS:
        texts = texts.without([min(texts.columns, key=lambda column: column.importance)])
    hidden = len(whole.columns) - len(texts.columns)
    reading = "Columns: docs/columns.md; status: docs/ranking.md."
    if hidden:
        needed = table_width(_table(whole))
        reading += f" COLUMNS={needed} shows {hidden} more."
    return _table(texts), [*_notes(comparison, texts), reading]


def table_width(table: Table) -> int:
    """The width at which a table is whole."""
    wide = Console(markup=False, emoji=False, width=1000)
    return Measurement.get(wide, wide.options, table).maximum


def _table(texts: TableTexts) -> Table:
    table = Table(title=texts.title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    before = ""
    for column in texts.columns:
        group = column.group if column.group != before else ""
        table.add_column(f"{group}\n{column.header}", justify="right", no_wrap=True)
        before = column.group
    for place, (name, *cells) in enumerate(texts.rows()):
        if 0 < place == texts.good:
            table.add_section()
        for index, column in enumerate(texts.columns):
            if column.quantity == "status":  # which may name several faults
                cells[index] = cells[index].replace(", ", ",\n")
        table.add_row(name, *cells, style="red" if place >= texts.good else None)
    return table


def _notes(comparison: Comparison, texts: TableTexts) -> list[str]:
    """The reasons of policies that are not ok, and what the runs cannot show."""
    runs = dict(by_policy(comparison.summary))
    bad = [f"{name}: {runs[name]['status_reason'].iloc[0]}." for name in texts.names[texts.good :]]
    return [*bad, *comparison.notes.splitlines()]


def not_run(comparison: Comparison) -> list[str]:
    """A sentence for each policy without results."""
    return [f"No results: {label} ({why})." for label, why in comparison.left_out.items()]


def comparison_markdown(comparison: Comparison) -> str:
    """The table of a comparison in Markdown: policies by rank, priced times against the leader's.

    Policies that are not ok have no rank.
    """
    texts = table_texts(comparison, "status_reason", leader=True)
    found = ranks(comparison.summary)
    rows = [
        ["rank", "scheduler", *(escaped(column.name) for column in texts.columns)],
        ["---:", "---", *["---:"] * len(texts.columns)],
    ]
    for name, *cells in texts.rows():
        rows.append([rank_text(*found[name]) if name in found else "–", escaped(name), *cells])
    for name, reason in comparison.left_out.items():
        rows.append(["–", f"{escaped(name)} ({reason})", *["–"] * len(texts.columns)])
    return "\n\n".join(filter(None, [_markdown(rows), comparison.notes]))


def rank_text(rank: int, first: int, last: int) -> str:
    """A rank, or the ranks from the first to the last that chance explains."""
    return f"{first}–{last}" if first < last else str(rank)


def overview_markdown(summaries: Mapping[str, pd.DataFrame]) -> str:
    """The priced times of several settings in Markdown: a row each, a column for each scheduler.

    The columns are in the order of `ranked_overall`. The time is the one that ranks the setting.
    Brackets mark schedulers that are not ok, and bold the shortest time of the others.
    """
    names = ranked_overall(list(summaries.values()))
    rows = [["setting", *map(escaped, names)], ["---", *["---:"] * len(names)]]
    for setting, summary in summaries.items():
        runs = dict(by_policy(summary))
        time = ranking_column(summary)
        unit, length = time_unit(float(summary["total_time"].max()))
        cells = {name: _reached(group[time] / length) for name, group in runs.items()}
        cells |= {name: f"({cells[name]})" for name in runs if not is_ok(runs[name])}
        best = ranked(summary)[0]
        if is_ok(runs[best]):
            cells[best] = f"**{cells[best]}**"
        rows.append([f"{escaped(setting)}, {unit}", *(cells.get(name, "–") for name in names)])
    return _markdown(rows)


def escaped(name: str) -> str:
    """A name in which Markdown finds no code, emphasis, formula or tag."""
    return re.sub(r"([\\`*<$])", r"\\\1", name)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def table_texts(
    comparison: Comparison, status: str = "status", *, leader: bool = False
) -> TableTexts:
    """The table of a comparison as texts, with this column of the summary as the status."""
    summary = comparison.summary
    names = ranked(summary)
    first = names[0] if leader else str(summary["policy"].iloc[0])
    ranks_by = ranking_column(summary)
    summary = _compared(summary, first, ranks_by if leader else "total_time")
    runs = dict(by_policy(summary))
    unit, length = time_unit(float(summary["total_time"].max()))
    words = {
        "unit": unit,
        "goal": "target" if comparison.target is None else f"{100 * comparison.target:g} %",
        "longer": "priced, over" if leader else "longer than",
        "first": first,
    }
    columns = []
    for group, header, importance, quantity, scale, cell in _columns(status, ranks_by, length):
        if quantity in summary:
            cells = {
                name: cell(each[quantity] if scale == 1 else scale * each[quantity])
                for name, each in runs.items()
            }
            columns.append(Column(group, header.format(**words), importance, quantity, cells))
    good = sum(is_ok(group) for group in runs.values())
    return TableTexts(_title(summary["seed"].nunique()), names, good, columns)


def _compared(summary: pd.DataFrame, first: str, time: str) -> pd.DataFrame:
    """The summary with the time of other policies over the first's on the same seed, less one."""
    others = summary["policy"] != first
    if not others.any():
        return summary
    reference = summary[~others].set_index("seed")[time]
    return summary.assign(longer=summary[time] / summary["seed"].map(reference).where(others) - 1)


def _title(seeds: int) -> str:
    if seeds >= LEAST_SEEDS:
        return f"Mean and 95 % interval over {seeds} seeds"
    return "One seed" if seeds == 1 else "Values of both seeds"


def _columns(
    status: str, ranks_by: str, length: float
) -> list[tuple[str, str, int, str, float, Callable[[pd.Series], str]]]:
    """Group, header, importance, quantity of a summary, its scale, and the text of its values.

    Times are in a unit of this `length` [s].
    """
    few, two, three = (partial(_numbers, most_decimals=most) for most in (1, 2, 3))
    to_target = "target" in ranks_by
    priced = "priced to\n{goal}, {unit}" if to_target else "priced\ntime, {unit}"
    return [
        ("outcome", "time to\n{goal}, {unit}", 14, "time_to_target", 1 / length, _reached),
        ("outcome", "final\naccuracy, %", 8, "final_accuracy", 100, two),
        ("outcome", "worst\ntenth, %", 5, "worst_tenth_accuracy", 100, two),
        ("outcome", "total\ntime, {unit}", 12, "total_time", 1 / length, three),
        ("outcome", priced, 13, ranks_by, 1 / length, _reached if to_target else three),
        ("outcome", "{longer}\n{first}, %", 6, "longer", 100, two),
        ("constraints", "\nstatus", 15, status, 1, lambda values: values.iloc[0] or OK),
        ("constraints", "spent, %\nof budget", 7, "spent_ratio", 100, few),
        ("constraints", "excess,\n%", 11, "excess", 100, few),
        ("constraints", "lack,\n%", 10, "lack", 100, few),
        ("constraints", "aggregate\nnoise", 3, "aggregate_noise", 1, three),
        ("constraints", "never\nseen", 4, "never_seen", 1, _range),
        ("distance", "above\nbound, %", 1, "gap", 100, three),
        ("distance", "above outcome\nbound, %", 2, "outcome_gap", 100, two),
        ("distance", "above bound\nto {goal}, %", 4, "accuracy_gap", 100, two),
    ]


def _numbers(values: pd.Series, most_decimals: int = 3) -> str:
    """Mean and half of the 95 % interval, see `rounded`; for few seeds the values.

    A dash if the quantity is not defined.
    """
    sample = values.to_numpy(np.float64)
    if not np.isfinite(sample).all():
        return "–"
    if len(sample) < LEAST_SEEDS:
        return ", ".join(digits(value, most_decimals) for value in sample)
    return rounded(mean_interval(sample), most_decimals)


def _range(values: pd.Series) -> str:
    """The rounded range over seeds, for numbers that take few values; for few seeds the values."""
    if len(values) < LEAST_SEEDS:
        return ", ".join(f"{value:.0f}" for value in values)
    low = f"{values.min():.0f}"
    high = f"{values.max():.0f}"
    return low if low == high else f"{low}–{high}"


def _reached(values: pd.Series) -> str:
    """`_numbers` of the runs that reached the target, and how many of all these are."""
    reached = values.dropna()
    if reached.empty:
        return "not reached"
    missed = "" if len(reached) == len(values) else f" ({len(reached)}/{len(values)})"
    return _numbers(reached) + missed

"""Tables of a comparison, for the terminal and for files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from scipy.special import stdtrit

from policies.benchmark.statistics import Interval, mean_interval, relative_interval
from policies.benchmark.status import OK


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which a duration in seconds reads well, and its length [s]."""
    for name, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return name, length
    return "s", 1.0


class _Column(NamedTuple):
    """A column of the comparison: what it says, and how soon it is left out."""

    header: str
    importance: int
    cells: dict[str, str]


def comparison_table(
    summary: pd.DataFrame,
    target_accuracy: float | None = None,
    *,
    caution: str = "",
    width: int = 100,
    time: str = "total_time",
) -> Table:
    """A table for the terminal: a row for each policy, means with 95 % intervals over seeds.

    Policies that are ok come first, and the fastest first among them; the others stand below a
    line, and the reasons below the table. The `time`, total or to the target, is compared with that
    of the first policy of the summary. If the terminal is narrow, the table leaves out the least
    important columns. `caution` is told below, too: what the runs cannot tell from luck.
    """
    runs = {name: group.set_index("seed") for name, group in by_policy(summary)}
    first = next(iter(runs))
    names = ranked(summary)
    fallen = [name for name in names if not _is_ok(runs[name])]
    reasons = [f"{name}: {runs[name]['status_reason'].iloc[0]}." for name in fallen]
    columns = _comparison_columns(runs, first, target_accuracy, time, "status")
    seeds = len(runs[first])
    title = f"Mean and 95 % interval over {seeds} seeds" if seeds > 1 else "One seed"
    dropped = 0
    while True:
        least = sorted(column.importance for column in columns)[:dropped]
        table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("", no_wrap=True)
        kept = [column for column in columns if column.importance not in least]
        for column in kept:
            table.add_column(column.header, justify="right", no_wrap=True)
        for name in names:
            if [name] == fallen[:1] != names[:1]:
                table.add_section()
            style = "red" if name in fallen else None
            table.add_row(name, *(column.cells[name] for column in kept), style=style)
        table.caption = "\n".join([*reasons, _comparison_caption(kept, caution, runs)])
        table.caption_justify = "left"
        needed = Measurement.get(Console(width=1000), Console(width=1000).options, table).maximum
        if needed <= width or len(kept) <= _LEAST_COLUMNS:
            return table
        dropped += 1


def comparison_markdown(
    summary: pd.DataFrame,
    target_accuracy: float | None = None,
    *,
    caution: str = "",
    left_out: Mapping[str, str] | None = None,
) -> str:
    """The table of a comparison in Markdown: policies by rank, and below what the columns mean.

    The others' time is compared with that of the leader. Policies that are not ok have no rank.
    `left_out` names policies that were not run, and why.
    """
    runs = {name: group.set_index("seed") for name, group in by_policy(summary)}
    names = ranked(summary)
    time = judged_by(summary)
    columns = _comparison_columns(runs, names[0], target_accuracy, time, "status_reason")
    # The first line of a header tells to which group of columns it belongs.
    headers = [
        " ".join(column.header.split("\n")[1:]).strip().replace("- ", "") for column in columns
    ]
    rows = [["rank", "scheduler", *headers], ["---:", "---", *["---:"] * len(columns)]]
    for rank, name in enumerate(names, 1):
        place = str(rank) if _is_ok(runs[name]) else "–"
        rows.append([place, name, *(column.cells[name] for column in columns)])
    for name, reason in (left_out or {}).items():
        rows.append(["–", f"{name} ({reason})", *["–"] * len(columns)])
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    caption = _comparison_caption(columns, caution, runs)
    return "\n".join(lines) + (f"\n\n{caption}" if caption else "")


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
            if name in runs and not _is_ok(runs[name]):
                cell = f"({cell})"
            elif name == best:
                cell = f"**{cell}**"
            row.append(cell)
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def judged_by(summary: pd.DataFrame) -> str:
    """The column by which `ranked` orders policies that are alike otherwise."""
    return "time_to_target" if "time_to_target" in summary else "total_time"


STATUS_TOLD = (
    "A policy is ok if, beyond luck, no device spends more than 10 % and all together no more than "
    "3 % over the budget, and none counts less than half of what its data ask for."
)
# A narrow terminal drops columns until these many are left.
_LEAST_COLUMNS = 3
# Headers of three lines: what the column belongs to, where that begins, and its name in two.
_INFLUENCE, _NOISE = "\nleast in-\nfluence, %", "\naggregate\nnoise"
_WORST_TENTH = "\nworst\ntenth, %"
_GAP, _OUTCOME_GAP = "distance\nabove\nbound, %", "\noutcome\nbound, %"


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
        rank[name] = (not _is_ok(group), missed, float(time.mean()))
    return sorted(rank, key=lambda name: rank[name])


def _is_ok(runs: pd.DataFrame) -> bool:
    """True if a policy, of which these are the runs, keeps to its constraints."""
    return bool((runs["status"] == OK).all())


def _comparison_columns(
    runs: dict[str, pd.DataFrame], first: str, target_accuracy: float | None, time: str, status: str
) -> list[_Column]:
    unit, length = time_unit(max(float(group["total_time"].max()) for group in runs.values()))
    reference = runs[first][time]

    def column(header: str, importance: int, cell: Callable[[pd.DataFrame], str]) -> _Column:
        return _Column(header, importance, {name: cell(group) for name, group in runs.items()})

    def longer(group: pd.DataFrame) -> str:
        if group is runs[first]:
            return "–"
        interval = relative_interval(group[time], reference.reindex(group.index))
        return _interval_text(Interval(*(100 * value for value in interval)), 2)

    any_run = runs[first]
    columns = []
    if "time_to_target" in any_run and target_accuracy is not None:
        header = f"\ntime to\n{100 * target_accuracy:g} %, {unit}"
        columns.append(column(header, 11, lambda g: _reached(g["time_to_target"] / length)))
    if "final_accuracy" in any_run:
        columns.append(
            column("\nfinal\naccuracy, %", 9, lambda g: _interval(100 * g["final_accuracy"], 2))
        )
    if "worst_tenth_accuracy" in any_run:
        columns.append(
            column(_WORST_TENTH, 2, lambda g: _interval(100 * g["worst_tenth_accuracy"], 2))
        )
    columns.append(
        column(f"\ntotal\ntime, {unit}", 10, lambda g: _interval(g["total_time"] / length))
    )
    if len(runs) > 1:
        word = "longer" if time == "total_time" else "later"
        columns.append(column(f"\n{word} than\n{first}, %", 1, longer))
    columns[0] = columns[0]._replace(header=f"outcome{columns[0].header}")
    columns += [
        column("constraints\n\nstatus", 12, lambda g: g[status].iloc[0] or OK),
        column("\nspent, %\nof budget", 4, lambda g: _interval(100 * g["spent_ratio"], 1)),
        column("\nworst\ndevice, %", 6, lambda g: _interval(100 * g["worst_spent_ratio"], 0)),
        column(_INFLUENCE, 5, lambda g: _range(100 * g["influence"])),
        column(_NOISE, 3, lambda g: _interval(g["aggregate_noise"])),
        column("\nnever\nseen", 2, lambda g: _range(g["never_seen"])),
    ]
    if "gap" in any_run:
        columns.append(column(_GAP, 8, lambda g: _interval(100 * g["gap"], 3)))
    if "outcome_gap" in any_run:
        columns.append(column(_OUTCOME_GAP, 7, lambda g: _interval(100 * g["outcome_gap"], 2)))
    return columns


def _comparison_caption(
    columns: Sequence[_Column], caution: str, runs: dict[str, pd.DataFrame]
) -> str:
    """Answers to what a reader may ask about the columns that are shown."""
    told = [STATUS_TOLD, caution] if caution else [STATUS_TOLD]
    headers = {column.header for column in columns}
    if _WORST_TENTH in headers:
        told.append(
            "Worst tenth: mean of the tenth of the devices with the least accuracy, which is that "
            "on test data with the classes mixed as in a device's own data."
        )
    if _INFLUENCE in headers:
        told.append(
            "Influence is the mean weight of a device in the aggregate over its share of the data: "
            "of the device with the least, from the lowest to the highest run."
        )
    if _NOISE in headers:
        told.append("Aggregate noise is the mean sum of the squared weights of a round.")
    undefined = [group for group in runs.values() if _GAP in headers and group["gap"].isna().any()]
    if any(
        "sampling_error" in group and group["sampling_error"].notna().any() for group in undefined
    ):
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
    return "\n".join(told)


def _interval(values: pd.Series, most_decimals: int = 3) -> str:
    """Mean of values with its interval; see `_interval_text`."""
    return _interval_text(mean_interval(values.to_numpy()), most_decimals)


def _interval_text(interval: Interval, most_decimals: int) -> str:
    """Mean and half width, the latter rounded up to two digits and at most so many decimals.

    A dash where the quantity is not defined.
    """
    mean, low, high = interval
    if math.isnan(mean):
        return "–"
    half = (high - low) / 2
    if not half > 0:
        return f"{mean:.5g}"
    decimals = min(max(1 - math.floor(math.log10(half)), 0), most_decimals)
    half = math.ceil(half * 10**decimals) / 10**decimals
    return f"{mean:.{decimals}f}±{half:.{decimals}f}"


def _range(values: pd.Series) -> str:
    """The least and the greatest of numbers that take few values, rounded."""
    low, high = f"{values.min():.0f}", f"{values.max():.0f}"
    return low if low == high else f"{low}–{high}"


def _reached(values: pd.Series) -> str:
    reached = values.dropna()
    if reached.empty:
        return "not reached"
    missed = "" if len(reached) == len(values) else f" ({len(reached)} of {len(values)} runs)"
    return _interval(reached) + missed


def coinciding(rounds: pd.DataFrame) -> list[list[str]]:
    """Policies whose models had the same accuracy in every round of every seed, in groups."""
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

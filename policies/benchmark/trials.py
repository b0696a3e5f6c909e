"""What a search has tried: tables and a picture."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd
from rich import box
from rich.table import Table

from policies.benchmark.figures import no_formula, save_figure
from policies.benchmark.search import NEARLY, Point, Tried, Value, nearly_as_good, ranked
from policies.benchmark.tables import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPLETE, BEHIND, DIVERGED = "complete", "behind", "diverged"

# So many of the best are listed, and all that do nearly as well.
_LISTED = 5


def trials_table(
    tried: Sequence[Tried], names: Sequence[str], seeds: Sequence[int]
) -> pd.DataFrame:
    """A row for each point in the order in which they were tried.

    The values of its options, its `outcome` (see `outcome_of`) and `status_reason`, where it is
    complete `time_to_target`, the mean over the seeds, and for each of these `time_<seed>`, the
    time to the target or until the run was ended [s].
    """
    rows: list[dict[str, object]] = []
    for one in tried:
        times = {f"time_{seed}": math.nan for seed in seeds}
        times |= dict(zip(times, (run.time for run in one.runs), strict=False))
        row: dict[str, object] = {
            **dict(zip(names, one.point, strict=True)),
            "outcome": outcome_of(one),
            "status_reason": "" if one.status is None else one.status.reason,
            "time_to_target": one.time if one.complete else math.nan,
        }
        rows.append(row | times)
    return pd.DataFrame(rows)


def outcome_of(one: Tried) -> str:
    """`COMPLETE`, the name of a status that is not ok, `DIVERGED` or `BEHIND`."""
    if one.complete:
        return COMPLETE
    if one.status is not None and not one.ok:
        return one.status.name
    return DIVERGED if math.isinf(one.time) else BEHIND


def counted(tried: Sequence[Tried]) -> str:
    """A sentence on how many settings had which outcome."""
    number = Counter(map(outcome_of, tried))
    each = ", ".join(f"{count} {outcome}" for outcome, count in number.most_common())
    return (
        f"{len(tried)} settings tried: {each}. Behind are those that had not reached the target "
        "when they could no longer be the best."
    )


def duration(seconds: float) -> str:
    """A time to three digits, in a unit in which it reads well."""
    unit, length = time_unit(seconds)
    return f"{seconds / length:.3g} {unit}"


def value_text(value: Value) -> str:
    """A value of an option as a command takes it."""
    return value if isinstance(value, str) else f"{value:g}"


def best_rows(
    tried: Sequence[Tried], best: Tried | None, own: Point, names: Sequence[str]
) -> list[dict[str, str]]:
    """The best on the seeds of the search, all within `NEARLY` among them, and the own one."""
    complete = ranked(tried)
    near = complete[: max(_LISTED, len(nearly_as_good(tried)))]
    shown = near + [one for one in tried if one.point == own and one not in near]
    rows = []
    for one in shown:
        roles = [
            role for role, whose in (("best", one is best), ("own", one.point == own)) if whose
        ]
        values = dict(zip(names, map(value_text, one.point), strict=True))
        rows.append(
            {"": " and ".join(roles)}
            | {name.replace("_", " "): value for name, value in values.items()}
            | {
                "mean time to target": duration(one.time) if one.complete else outcome_of(one),
                "over the least": f"{one.time / near[0].time:.2f}" if one.complete else "–",
            }
        )
    return rows


def at_an_end(point: Point, choices: Mapping[str, Sequence[Value]]) -> list[str]:
    """A sentence on numbers of a point of which no larger or no smaller one was tried, if any."""
    ends = [
        f"{name.replace('_', ' ')} {value:g}"
        for (name, values), value in zip(choices.items(), point, strict=True)
        if not isinstance(value, str) and len(values) > 1 and value in (values[0], values[-1])
    ]
    return [f"At an end of what was tried: {', '.join(ends)}."] if ends else []


def rich_table(rows: Sequence[Mapping[str, str]], title: str) -> Table:
    """Rows of text for the terminal, under headings in as many lines as keep columns narrow."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        width = max(10, *(len(row[name]) for row in rows))
        heading = textwrap.fill(name, width, break_long_words=False)
        justify: Literal["left", "right"] = "right" if name else "left"
        table.add_column(heading, justify=justify, vertical="bottom", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return table


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of text in Markdown."""
    lines = [list(rows[0]), ["---:"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def save_trials(
    tried: Sequence[Tried], choices: Mapping[str, Sequence[Value]], own: Point, path: Path
) -> None:
    """Draw the mean time of the points that were played over each option."""
    panels = [
        partial(_draw_option, tried=tried, own=own, place=place, name=name, values=values)
        for place, (name, values) in enumerate(choices.items())
    ]
    save_figure([panels], [path], panel_size=(2.6, 3.6))


def _draw_option(
    axes: Axes, tried: Sequence[Tried], own: Point, place: int, name: str, values: Sequence[Value]
) -> None:
    """A mark for each point, of which those that were ended early would be higher."""
    played = [one for one in tried if one.runs and math.isfinite(one.time)]
    unit, length = time_unit(max((one.time for one in played), default=1.0))
    kinds = (
        ("ended early", "^", "lightgrey", [one for one in played if not one.complete]),
        ("target reached", "o", "#0072B2", [one for one in played if one.complete]),
        (f"within {100 * (NEARLY - 1):.0f} % of the best", "o", "#D55E00", nearly_as_good(played)),
        ("own", "x", "black", [one for one in played if one.point == own]),
    )
    for label, marker, color, shown in kinds:
        x = [values.index(one.point[place]) for one in shown]
        y = [one.time / length for one in shown]
        axes.plot(x, y, marker, color=color, label=label, markersize=5)
    names = [no_formula(value_text(value)) for value in values]
    axes.set_xticks(range(len(values)), names, rotation=90)
    axes.tick_params(labelsize="small")
    axes.set(xlabel=name.replace("_", " "), xlim=(-0.5, len(values) - 0.5))
    if place == 0:
        axes.set_ylabel(f"mean time [{unit}]")

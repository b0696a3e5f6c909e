"""The figures of a comparison.

`fl-edge compare` calls `save_plots`. Each ``draw_`` function fills one panel. `save_figure` lays
out panels above a legend; the paper's figures and a leaderboard's overview use it as well.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import ticker

from fl_edge_env.files import atomic_path
from fl_edge_env.rendering import fonts
from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import Interval, half_width, mean_interval
from policies.benchmark.status import OK
from policies.benchmark.summary import by_policy
from policies.report.ranking import is_ok, ranked, ranking_column
from policies.report.styles import looks
from policies.report.tables import LEAST_SEEDS, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

    Panel: TypeAlias = Callable[[Axes], None]

# Print sizes: a column is 3.3 inches wide and a page 7. Publishers require TrueType fonts, type 42.
_PAGE = 7.0
_PRINT = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.xmargin": 0.02,
    "font.size": 7.5,
    "grid.alpha": 0.3,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
}
_POLICY = "policy"  # group id of the lines that a legend begins with
# With fewer seeds the figures show single runs: an interval would say little.
_LEAST_SEEDS_OF_A_BAND = 5
# Ticks in a decade, by the least ratio of the ends of the axis.
_TICKS = ((300, (1,)), (30, (1, 3)), (4, (1, 2, 5)), (1, (1, 1.5, 2, 3, 5, 7)))

_NAMES = "accuracy_over_rounds accuracy_over_time energy overview"
# The files that `save_plots` may write.
PLOTS = tuple(f"{name}.{kind}" for name in _NAMES.split() for kind in ("png", "pdf"))


def save_plots(comparison: Comparison, folder: Path, *, formats: Sequence[str] = ("png",)) -> None:
    """Draw each panel to its own file, and the ranking to one called ``overview``.

    Each figure is written in all `formats`, ``"png"`` or ``"pdf"``.
    """
    rounds = comparison.rounds
    overview = [partial(draw_ranking, comparison=comparison)]
    figures = {"overview": overview, "energy": [partial(draw_energy, rounds=rounds)]}
    if "test_accuracy" in rounds:
        target = comparison.target
        over_time = partial(draw_accuracy_over_time, rounds=rounds, target=target)
        over_rounds = partial(draw_accuracy_over_rounds, rounds=rounds, target=target)
        overview.append(over_time)
        figures |= {"accuracy_over_time": [over_time], "accuracy_over_rounds": [over_rounds]}
    for name, panels in figures.items():
        rows = comparison.summary["policy"].nunique() if panels is overview else 0
        paths = [folder / f"{name}.{kind}" for kind in formats]
        save_figure([panels], paths, panel_size=(3.5, max(2.5, 0.8 + 0.26 * rows)))


def save_figure(
    grid: Sequence[Sequence[Panel]],
    paths: Sequence[Path],
    *,
    panel_size: tuple[float, float] = (3.5, 2.5),
    rows_apart: bool = False,
) -> None:
    """Draw rows of panels to files, each in the format of its suffix.

    A legend below all panels, or below each row if `rows_apart`, lists what the panels label.
    `panel_size` is in inches; no row is wider than a page. Of matplotlib's configuration, only the
    fonts change a figure.
    """
    from matplotlib.figure import Figure

    rows = len(grid)
    columns = max(map(len, grid))
    with mpl.style.context(["default", _PRINT, fonts()]):
        size = (min(panel_size[0] * columns, _PAGE), panel_size[1] * rows)
        figure = Figure(figsize=size, layout="constrained")
        parts = list(figure.subfigures(rows, squeeze=False).flat) if rows_apart else [figure]
        places = [part.subplots(rows // len(parts), columns, squeeze=False) for part in parts]
        for row, axes_row in zip(grid, np.concatenate(places), strict=True):
            _draw_row(row, axes_row)
        for part in parts:
            _legend(part, figure)
        for path in paths:
            # Without a date the file is repeatable.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=200, metadata=metadata)


def _draw_row(row: Sequence[Panel], places: Sequence[Axes]) -> None:
    """Draw panels at the first places, and leave the others empty."""
    for panel, axes in zip_longest(row, places):
        if panel is None:
            axes.set_axis_off()
            continue
        panel(axes)
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), ticker.AutoLocator):
                axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))


def _legend(part: Figure | SubFigure, figure: Figure) -> None:
    """A legend below the panels: each label once, policies first."""
    labelled = [
        pair for axes in part.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    ]
    # Bars have no group id.
    labelled.sort(key=lambda pair: getattr(pair[0], "get_gid", str)() != _POLICY)
    handles: dict[str, Any] = {}
    for handle, label in labelled:
        handles.setdefault(label, handle)
    if not handles:
        return
    inches = 0.5 + 0.045 * max(map(len, handles))  # of a column
    columns = min(len(handles), max(1, int(figure.get_figwidth() / inches)))
    figure.set_figheight(figure.get_figheight() + 0.16 * math.ceil(len(handles) / columns))
    place: Any = "outside lower center"
    legend = part.legend(list(handles.values()), list(handles), loc=place, ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)  # "$" in a name is no formula


_Style: TypeAlias = dict[str, Any]  # keywords of a line


def _curves(
    rounds: pd.DataFrame, *columns: str
) -> Iterator[tuple[pd.DataFrame, _Style, list[pd.DataFrame]]]:
    """The runs and line style of each policy, and columns: a row per round, a column per seed."""
    runs = dict(by_policy(rounds))
    for name, look in looks(list(runs)).items():
        # Dashes above a solid line leave both visible.
        more = {"zorder": 1.9 if look.linestyle == "-" else 2, "gid": _POLICY}
        style = look._asdict() | more | {"label": _label(name, runs[name])}
        pivot = partial(runs[name].pivot, index="round", columns="seed")
        yield runs[name], style, [pivot(values=each) for each in columns]


def _label(name: str, runs: pd.DataFrame) -> str:
    """The name of a policy in a figure, with its status if it is not ok."""
    status = str(runs["status"].iloc[0]).replace(" ", "\xa0")  # in one line
    return name + ("" if status == OK else f" ({status})")


def _thin(style: _Style, **look: Any) -> _Style:
    """Keywords of an unlabelled thin line in a policy's style."""
    return style | {"linewidth": 0.6, "label": None, "gid": None} | look


def _draw_runs(axes: Axes, style: _Style, values: pd.DataFrame, *, most: float = math.inf) -> None:
    """Mean over seeds and its 95 % band inside [0, most], or the single runs if few."""
    runs = values.to_numpy()
    x = values.index
    mean = runs.mean(axis=1)
    axes.plot(x, mean, **style)
    if runs.shape[1] >= _LEAST_SEEDS_OF_A_BAND:
        half = half_width(runs)
        low, high = np.clip([mean - half, mean + half], 0.0, most)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
        _note(axes, "95 % interval", linewidth=6, alpha=0.3)
    elif runs.shape[1] > 1:
        axes.plot(x, runs, **_thin(style, alpha=0.4))
        _note(axes, "single runs", linewidth=0.6, alpha=0.4)


def _note(axes: Axes, label: str, **look: Any) -> None:
    """Add an entry to the legend."""
    axes.plot([], [], label=label, **{"color": "grey"} | look)


def averaged(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rounds with a column's running average in each run."""
    runs = rounds.groupby(["policy", "seed"], sort=False)[column]
    return rounds.assign(**{column: runs.transform(lambda run: run.expanding().mean())})


def draw_column(axes: Axes, rounds: pd.DataFrame, column: str) -> None:
    """A column for each policy over rounds."""
    for _, style, (values,) in _curves(rounds, column):
        _draw_runs(axes, style, values)
    axes.set_xlabel("round")


class Mark(NamedTuple):
    """How a dot looks, and its label in a legend."""

    color: str
    marker: str = "o"
    size: float = 5
    legend: str | None = None


class Dot(NamedTuple):
    """A row of `draw_dots`."""

    label: str  # at the left
    value: Interval | None
    note: str  # instead of a missing value
    marks: Sequence[Mark] = ()  # the first in front
    filled: bool = True
    priced: float | None = None

    @property
    def ends(self) -> Any:
        """The ends of the interval, above zero for a logarithmic axis; none without a value."""
        return np.clip(self.value[1:], self.value.mean / 10, None) if self.value else []


def draw_dots(axes: Axes, dots: Sequence[Dot]) -> None:
    """A dot for each value with a line for its interval, one below the other."""
    for row, dot in enumerate(dots):
        if dot.value is None:
            box = {"facecolor": "white", "linewidth": 0, "pad": 1}
            across = axes.get_yaxis_transform()
            axes.text(0.02, row, dot.note, transform=across, va="center", size="small", bbox=box)
            continue
        axes.plot(dot.ends, [row, row], color=dot.marks[0].color, zorder=2)
        for color, marker, size, legend in reversed(dot.marks):
            face = color if dot.filled else "white"
            axes.plot(
                dot.value.mean, row, marker, color=color, markerfacecolor=face, markersize=size,
                label=legend, zorder=3, clip_on=False,
            )  # fmt: skip
        if dot.priced is not None:
            axes.plot(dot.priced, row + 0.25, "kD", markersize=4, clip_on=False)
    axes.set_yticks(range(len(dots)), [dot.label for dot in dots], parse_math=False)
    axes.set_ylim(len(dots) - 0.4, -0.6)
    axes.margins(x=0.06)


def draw_ranking(axes: Axes, comparison: Comparison) -> None:
    """The time of each policy by rank, with its interval; hollow if it is not ok.

    A diamond below it marks the priced time, which ranks the policies.
    """
    summary = comparison.summary
    runs = dict(by_policy(summary))
    time = "total_time"
    goal = "Total time"
    priced = ranking_column(summary)
    reached = any(group[priced].notna().all() for group in runs.values())
    if priced != "priced_time" and reached and comparison.target is not None:
        time = "time_to_target"
        goal = f"Time to {100 * comparison.target:g} % test accuracy"
    else:
        priced = "priced_time"
    unit, length = time_unit(summary[time].max())
    chosen = looks(list(runs))
    dots = []
    for name in ranked(summary):
        group = runs[name]
        label = "\n".join(wrapped(_label(name, group), 26))
        value, note = _mean(group[time] / length)
        marks = [Mark(chosen[name].color)]
        dots.append(Dot(label, value, note, marks, is_ok(group), group[priced].mean() / length))
    draw_dots(axes, dots)
    axes.plot([], [], "kD", markersize=4, label="priced time (ranks those that are ok)")
    seeds = summary["seed"].nunique()
    spread = "with 95 % interval" if seeds >= LEAST_SEEDS else "over seeds"
    axes.set(xlabel=f"time [{unit}], mean {spread}", title=goal, xlim=(0, None))


def _mean(times: pd.Series) -> tuple[Interval | None, str]:
    """The mean over seeds, with an interval if they are many, or a note on missed targets."""
    missed = times.isna().sum()
    if missed:
        return None, f"target missed in {missed} of {len(times)} runs"
    interval = mean_interval(times)
    if len(times) < LEAST_SEEDS:
        interval = Interval(interval.mean, math.nan, math.nan)
    return interval, ""


def draw_accuracy_over_time(axes: Axes, rounds: pd.DataFrame, target: float | None = None) -> None:
    """Mean test accuracy over simulated time, until all runs have reached the target."""
    end = rounds["elapsed_time"].max()
    if target is not None:  # soon after the last run has reached it
        reached = rounds[rounds["test_accuracy"] >= target].groupby(["policy", "seed"])
        if reached.ngroups == rounds.groupby(["policy", "seed"]).ngroups:
            end = min(end, 1.2 * reached["elapsed_time"].first().max())
    unit, length = time_unit(end)
    ends = []
    for runs, style, values, time in _measured(rounds):
        x, y = _mean_curve(time.loc[values.index] / length, values)
        style["label"] = None
        axes.plot(x, y, **style)
        last = min(x[-1], end / length)
        ends.append((np.interp(last, x, y), last, style, runs))
    _frame_accuracy(axes, target, "time", f"time [{unit}]")
    axes.set_xlim(0, end / length)
    _label_ends(axes, ends)


def _mean_curve(times: pd.DataFrame, values: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Times and mean values over seeds, whose times differ: interpolated to common ones."""
    grid = np.linspace(times.iloc[0].max(), times.iloc[-1].min(), 200)
    mean = np.mean([np.interp(grid, times[seed], values[seed]) for seed in values], axis=0)
    return [*grid, times.iloc[-1].mean()], [*mean, values.iloc[-1].mean()]


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, _Style, pd.DataFrame]]) -> None:
    """Name policies at the right of the panel, given the ends of their curves: y, x, style, runs.

    Dots at the names, and where curves end earlier, are hollow if the policy is not ok.
    """
    right = axes.get_xlim()[1]
    row = min(7, 100 / max(len(ends), 1))
    level = math.inf
    for y, x, style, runs in sorted(ends, key=lambda end: -end[0]):
        level = min(y, level - row)  # below the name before
        axes.plot([1.03 * right, 1.13 * right], [level, level], **style, clip_on=False)
        name = str(runs["policy"].iloc[0])
        axes.text(1.16 * right, level, name, va="center", size="small", parse_math=False)
        face = style["color"] if is_ok(runs) else "white"
        dots = {1.08 * right: level} | ({x: y} if x < right else {})
        axes.plot(
            [*dots], [*dots.values()], "o", color=style["color"], markerfacecolor=face,
            clip_on=False,
        )  # fmt: skip


def draw_accuracy_over_rounds(
    axes: Axes, rounds: pd.DataFrame, target: float | None = None
) -> None:
    """Test accuracy over rounds; policies that train identical models share a curve."""
    for _, style, values, _ in _measured(rounds):
        _draw_runs(axes, style, values, most=100)
    _frame_accuracy(axes, target, "rounds", "round")
    # Whole numbers, even if there are few rounds.
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))


def _measured(
    rounds: pd.DataFrame,
) -> Iterator[tuple[pd.DataFrame, _Style, pd.DataFrame, pd.DataFrame]]:
    """The runs, style, accuracies and times of each policy that has test accuracies."""
    for runs, style, (test, time) in _curves(rounds, "test_accuracy", "elapsed_time"):
        values = 100.0 * test.dropna()
        if len(values):
            yield runs, style, values, time


def _frame_accuracy(axes: Axes, target: float | None, over: str, xlabel: str) -> None:
    if target is not None:
        draw_limit(axes, 100.0 * target, f"target: {100 * target:g} %")
    axes.set(
        title=f"Accuracy over {over}", xlabel=xlabel, ylabel="test accuracy [%]", ylim=(0, 100)
    )


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines that break between words only."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def draw_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    """Energy spent so far over the budget: mean over devices, and thin the worst device."""
    draw_column(axes, averaged(rounds, "spent_ratio"), "spent_ratio")
    draw_limit(axes, 1.0, "budget")
    # In the first rounds some device always spends many times its budget.
    last = rounds.groupby(["policy", "seed"])["worst_spent_ratio"].last()
    top = 2 * max(axes.dataLim.y1, last.max())
    for _, style, (worst,) in _curves(rounds, "worst_spent_ratio"):
        axes.plot(worst.mean(axis=1), **_thin(style))
    _note(axes, "worst device", linewidth=0.6)
    axes.set(title="Energy spent", ylabel="energy / budget so far", yscale="log", ylim=(None, top))
    log_ticks(axes.yaxis)


def draw_limit(axes: Axes, level: float, label: str) -> None:
    """A pale stripe at a budget or a target, which lines may cross."""
    axes.axhline(level, color="0.75", linewidth=2.5, zorder=0.5, label=label)


def log_ticks(axis: Axis) -> None:
    """Set a few plain numbers as the ticks of a logarithmic axis of any range."""
    low, high = axis.get_view_interval()
    for least, subs in _TICKS:
        locator: ticker.Locator = ticker.LogLocator(subs=subs)
        ticks = locator.tick_values(low, high)
        if high / low > least and sum(low <= tick <= high for tick in ticks) > 1:
            break
    else:
        locator = ticker.MaxNLocator(5, steps=(1, 2, 5, 10))
    axis.set_major_locator(locator)
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter("{x:g}")

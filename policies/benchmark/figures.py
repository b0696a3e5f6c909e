"""The figures of a comparison.

`fl-edge compare` calls `save_plots` with the rounds of all runs and the bounds along their paths.
Each ``draw_`` function fills one panel. `save_figure` lays out panels and names their lines, also
those of the paper's figures and of a leaderboard's overview.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from fl_edge_env.files import atomic_path
from fl_edge_env.typing import FloatArray
from policies.benchmark.intervals import half_width
from policies.benchmark.status import OK
from policies.benchmark.styles import looks
from policies.benchmark.tables import by_policy, coinciding, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

    Panel: TypeAlias = Callable[[Axes], None]

# Sizes are those of print, where a column is 3.3 inches wide and a page 7. Publishers ask for fonts
# as type 42, TrueType.
_PAGE = 7.0
_PRINT: dict[Any, Any] = {
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
    "lines.markersize": 4,
    "pdf.fonttype": 42,
}
_POLICY = "policy"  # group id of the lines that a legend begins with
# With fewer seeds the runs are lines: an interval would say little.
_LEAST_SEEDS_OF_A_BAND = 5
# Ticks in a decade, by the least ratio of the ends of the axis.
_TICKS = ((300, (1,)), (10, (1, 3)), (4, (1, 2, 5)), (1, (1, 1.5, 2, 3, 5, 7)))

_NAMES = "accuracy_over_rounds accuracy_over_time energy loss objective outcome overview time"
# The files that `save_plots` may write.
PLOTS = tuple(f"{name}.{kind}" for name in _NAMES.split() for kind in ("png", "pdf"))


def save_plots(
    rounds: pd.DataFrame,
    bounds: pd.DataFrame | None,
    folder: Path,
    *,
    target: float | None = None,
    formats: Sequence[str] = ("png",),
) -> None:
    """Draw each panel to a file of its own, and the main ones to one called ``overview``.

    Each is written in all `formats`, of which matplotlib knows ``"png"`` and ``"pdf"``. The
    `target` accuracy is a line in the panels of accuracy.
    """
    panels: dict[str, Panel] = {"time": partial(draw_time, rounds=rounds)}
    if "test_accuracy" in rounds:
        panels = {
            "accuracy_over_time": partial(draw_accuracy_over_time, rounds=rounds, target=target),
            "accuracy_over_rounds": partial(
                draw_accuracy_over_rounds, rounds=rounds, target=target
            ),
        }
    panels["energy"] = partial(draw_energy, rounds=rounds)
    main = list(panels.values())
    if bounds is not None:
        for what in ("objective", "outcome"):
            panels[what] = partial(draw_distance, rounds=rounds, bounds=bounds, what=what)
        if len(main) < 3 and rounds["priced_objective"].notna().any():
            main.append(panels["objective"])
        main.append(panels["outcome"])
    if "test_loss" in rounds:
        panels["loss"] = partial(draw_loss, rounds=rounds)
    grids = {name: [[panel]] for name, panel in panels.items()}
    grids["overview"] = [main[:2], main[2:]]
    for name, grid in grids.items():
        save_figure(grid, [folder / f"{name}.{kind}" for kind in formats])


def save_figure(
    grid: Sequence[Sequence[Panel]],
    paths: Sequence[Path],
    *,
    panel_size: tuple[float, float] = (3.5, 2.5),
    rows_apart: bool = False,
) -> None:
    """Draw rows of panels to files, each in the format of its suffix.

    What the panels label is named below them, below each row if these have other lines.
    `panel_size` is in inches; no row is wider than a page.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = len(grid), max(map(len, grid))
    with mpl.style.context(["default", _PRINT]):  # whatever the user's matplotlibrc says
        width, height = min(panel_size[0] * columns, _PAGE), panel_size[1] * rows
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        parts = list(figure.subfigures(rows, squeeze=False).flat) if rows_apart else [figure]
        places = [part.subplots(rows // len(parts), columns, squeeze=False) for part in parts]
        for row, axes_row in zip(grid, np.concatenate(places), strict=True):
            for panel, axes in zip(row, axes_row, strict=False):
                panel(axes)
            for axes in axes_row[len(row) :]:
                axes.set_axis_off()
        for part in parts:
            _legend(part, figure)
        for path in paths:
            # Without a date the file is repeatable.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=200, metadata=metadata)


def _legend(part: Figure | SubFigure, figure: Figure) -> None:
    """Name what panels label in rows below them, each name once and policies first."""
    labelled = [
        pair
        for axes in part.axes
        if axes.get_legend() is None
        for pair in zip(*axes.get_legend_handles_labels(), strict=True)
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


def _time_average(values: pd.DataFrame) -> pd.DataFrame:
    return values.expanding().mean()


_Style: TypeAlias = dict[str, Any]  # keywords of a line


def _curves(rounds: pd.DataFrame, *columns: str) -> Iterator[tuple[_Style, list[pd.DataFrame]]]:
    """For each policy the style of its line, and columns: a row per round and a column per seed.

    A policy that is not ok is named with its status.
    """
    groups = by_policy(rounds)
    chosen = looks([name for name, _ in groups])
    for name, group in groups:
        status = str(group["status"].iloc[0])
        # Spaces that do not break keep it in one line.
        note = "" if status == OK else " " + f"({status})".replace(" ", "\xa0")
        label = {"label": f"{name}{note}", "gid": _POLICY}
        tables = [group.pivot(index="round", columns="seed", values=each) for each in columns]
        yield chosen[name].keywords() | label, tables


def _thin(style: _Style, linewidth: float, **look: Any) -> _Style:
    """Keywords for what stands behind the line of a policy, without a name."""
    return style | {"linewidth": linewidth, "marker": "", "label": None, "gid": None} | look


def _draw_runs(axes: Axes, style: _Style, values: pd.DataFrame, *, most: float = math.inf) -> None:
    """Mean over seeds and its 95 % band inside [0, most], or the single runs if few."""
    runs, x = values.to_numpy(), values.index
    axes.plot(x, runs.mean(axis=1), **style)
    if runs.shape[1] >= _LEAST_SEEDS_OF_A_BAND:
        mean, half = runs.mean(axis=1), half_width(runs)
        low, high = np.clip([mean - half, mean + half], 0.0, most)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
        _note(axes, "95 % interval", linewidth=6, alpha=0.3)
    elif runs.shape[1] > 1:
        axes.plot(x, runs, **_thin(style, 0.6, alpha=0.4))
        _note(axes, "single runs", linewidth=0.6, alpha=0.4)


def _note(axes: Axes, label: str, **look: Any) -> None:
    """An explanation below the panels."""
    axes.plot([], [], label=label, **{"color": "grey"} | look)


def draw_average(axes: Axes, rounds: pd.DataFrame, column: str) -> None:
    """The time average of a column so far, for each policy over rounds."""
    for style, (values,) in _curves(rounds, column):
        _draw_runs(axes, style, _time_average(values))
    axes.set_xlabel("round")


def draw_accuracy_over_time(axes: Axes, rounds: pd.DataFrame, target: float | None = None) -> None:
    """Test accuracy over simulated time, with a dot where the runs end."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    low, high = _frame_accuracy(axes, rounds, target, "time")
    begins = []
    for style, values, time in _measured(rounds):
        times = time.loc[values.index] / length
        # Seeds are evaluated at different times: bring them to a common grid by interpolation.
        grid = np.geomspace(times.iloc[0].max(), times.iloc[-1].min(), 200)
        common = pd.DataFrame({s: np.interp(grid, times[s], values[s]) for s in values}, index=grid)
        end = values.iloc[-1:].set_axis([times.iloc[-1].mean()])
        curves = pd.concat([common, end])
        _draw_runs(axes, style, curves, most=100)
        axes.plot(curves.index[-1], values.iloc[-1].mean(), "o", color=style["color"])
        begins += [*curves.index[curves.mean(axis=1).between(low, high)][:1]]
    _note(axes, "end of the runs", marker="o", linestyle="")
    # The axis begins where the first line comes into the picture.
    axes.set(xscale="log", xlabel=f"time [{unit}]", xlim=(min(begins, default=None), None))
    log_ticks(axes.xaxis)


def draw_accuracy_over_rounds(
    axes: Axes, rounds: pd.DataFrame, target: float | None = None
) -> None:
    """Test accuracy over rounds; policies that train alike share a curve."""
    _frame_accuracy(axes, rounds, target, "rounds")
    for style, values, _ in _measured(rounds):
        _draw_runs(axes, style, values, most=100)
    same = [f"{' and '.join(twins)} are the same." for twins in coinciding(rounds)]
    axes.set_xlabel("\n".join(["round", *textwrap.wrap(" ".join(same), 40)]))


def _measured(rounds: pd.DataFrame) -> Iterator[tuple[_Style, pd.DataFrame, pd.DataFrame]]:
    """The style, curves and times of each policy whose models were measured."""
    for style, (test, time) in _curves(rounds, "test_accuracy", "elapsed_time"):
        values = 100.0 * test.dropna()
        if len(values):
            yield style, values, time


def _frame_accuracy(
    axes: Axes, rounds: pd.DataFrame, target: float | None, over: str
) -> tuple[float, float]:
    """Label the panel, draw the target and set the limits, which are returned.

    The worst quarter of the values, mostly those of the first climb, are hidden unless a run ends
    among them.
    """
    axes.set(title=f"Accuracy over {over}", ylabel="test accuracy [%]")
    table = rounds[np.isfinite(rounds["test_accuracy"])]
    last = table.groupby(["policy", "seed"])["test_accuracy"].last()
    shown = [*last, *table["test_accuracy"].quantile((0.25, 1.0))]
    if target is not None:
        shown.append(target)
        draw_limit(axes, 100.0 * target, f"target: {100 * target:g} %")
    if table.empty:
        return -math.inf, math.inf
    low, high = 100.0 * min(shown), 100.0 * max(shown)
    room = 0.05 * (high - low or 1.0)
    low, *_, high = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(max(low - room, 0.0), high)
    axes.set_ylim(low, high)
    return low, high


def draw_loss(axes: Axes, rounds: pd.DataFrame) -> None:
    """Loss on the test set over rounds, and behind it that of the participants in training."""
    for style, (train, test) in _curves(rounds, "train_loss", "test_loss"):
        values = test.dropna(how="all")
        if len(values):
            _draw_runs(axes, style, values)
        axes.plot(train.mean(axis=1), **_thin(style, 0.4, linestyle="-", alpha=0.3))
    _note(axes, "in training", linewidth=0.4, alpha=0.3)
    axes.set(xlabel="round", ylabel="loss", title="Loss on the test set")
    axes.set_ylim(bottom=0.0)


def draw_partition(axes: Axes, counts: FloatArray) -> None:
    """Samples of each class on each device, stacked, of counts of shape (N, C)."""
    devices, colors = np.arange(len(counts)), mpl.colormaps["viridis"]
    base = np.zeros(len(counts))
    for label, height in enumerate(counts.T):
        color = colors(label / max(counts.shape[1] - 1, 1))
        axes.bar(devices, height, bottom=base, width=1.0, color=color, label=str(label))
        base += height
    axes.set(xlabel="device", ylabel="samples", title="Classes on the devices")
    axes.margins(x=0)
    axes.set_axisbelow(True)
    if counts.shape[1] <= 10:
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5), title="class")


def draw_time(axes: Axes, rounds: pd.DataFrame) -> None:
    """Simulated time over rounds."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    for style, (time,) in _curves(rounds, "elapsed_time"):
        _draw_runs(axes, style, time / length)
    axes.set(xlabel="round", ylabel=f"time [{unit}]", title="Time of the rounds so far")
    axes.set_ylim(bottom=0.0)


def draw_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    """Energy really spent so far over the budget: mean over devices, and thin the worst device."""
    draw_average(axes, rounds, "spent_ratio")
    draw_limit(axes, 1.0, "budget")
    # In the first rounds one device spends many times its budget, whatever the policy.
    last = rounds.groupby(["policy", "seed"])["worst_spent_ratio"].last()
    top = 2 * max(axes.dataLim.y1, last.max())
    for style, (worst,) in _curves(rounds, "worst_spent_ratio"):
        axes.plot(worst.mean(axis=1), **_thin(style, 0.6))
    _note(axes, "device that spends most", linewidth=0.6)
    axes.set(ylabel="energy / budget so far", title="Energy spent")
    axes.set(yscale="log", ylim=(None, top))
    log_ticks(axes.yaxis)


def draw_distance(axes: Axes, rounds: pd.DataFrame, bounds: pd.DataFrame, what: str) -> None:
    """Time-average priced outcome or objective above its path bound.

    Lines end at the `outcome_gap` or `gap` of a summary; a policy without it has no line.
    """
    bound, whose = ("outcome_bound", what) if what == "outcome" else ("bound", f"{what}'s")
    least = _time_average(bounds.pivot(index="round", columns="seed", values=bound))
    for style, (priced,) in _curves(rounds, f"priced_{what}"):
        values = 100 * (_time_average(priced) / least.where(least > 0) - 1)
        if values.iloc[-1].notna().all():
            _draw_runs(axes, style, values)
    title = f"Distance to the {whose} bound"
    axes.set(xlabel="round", ylabel="above the bound so far [%]", title=title)
    # Some are within one per cent of it, and others at many times the bound.
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_formatter("{x:g}")
    draw_bound(axes, 0.0)


def draw_limit(axes: Axes, level: float, label: str) -> None:
    """A pale stripe at what should be kept to or reached, such as a budget: one can be beyond."""
    axes.axhline(level, color="0.75", linewidth=2.5, zorder=0.5, label=label)


def draw_bound(axes: Axes, level: float, label: str = "cannot be beaten") -> None:
    """A line at a bound, and a shade where nobody can be; of a panel that is otherwise complete."""
    scale, top = axes.yaxis.get_transform(), axes.get_ylim()[1]
    low, high = scale.transform([level, top])
    below = float(scale.inverted().transform(low - 0.08 * (high - low)))
    bottom = min(axes.get_ylim()[0], below)
    axes.axhspan(bottom, level, color="0.85", zorder=0.5)
    axes.axhline(level, color="black", linewidth=0.8, zorder=1, label=label)
    axes.set_ylim(bottom, top)


def log_ticks(axis: Axis) -> None:
    """Ticks of an axis of logarithms that are read as numbers, a few whatever its range."""
    low, high = axis.get_view_interval()
    for least, subs in _TICKS:
        locator: Locator = LogLocator(subs=subs)
        ticks = locator.tick_values(low, high)
        if high / low > least and sum(low <= tick <= high for tick in ticks) > 1:
            break
    else:
        locator = MaxNLocator(5, steps=(1, 2, 5, 10))
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")

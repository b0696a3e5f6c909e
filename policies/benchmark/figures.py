"""Plots of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas as pd

from fl_edge_env.files import atomic_path
from fl_edge_env.typing import FloatArray
from policies.benchmark.measure import ACCURACY, Measure, measure_of
from policies.benchmark.statistics import mean_interval
from policies.benchmark.status import OK
from policies.benchmark.tables import by_policy, coinciding, time_unit
from policies.progress import track

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Panel: TypeAlias = Callable[[Axes], None]

# Okabe and Ito's colours and four of Tol's, each with a line style: apart also in grey and for the
# colour-blind.
_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_COLORS = (*_OKABE_ITO, "#882255", "#999933", "#332288", "#777777")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

_NAMES = (
    "accuracy_over_rounds accuracy_over_time energy loss metric_over_rounds metric_over_time "
    "objective overview time"
)
# The files that `save_plots` may write.
PLOTS = tuple(f"{name}.png" for name in _NAMES.split())


def save_plots(rounds: pd.DataFrame, bounds: pd.DataFrame | None, folder: Path) -> None:
    """Draw each panel to a PNG file of its own, and the main ones to ``overview.png``."""
    drawn: list[Callable[..., None]] = [draw_time, draw_energy]
    if (measure := measure_of(rounds)) is not None:
        drawn = [draw_accuracy_over_time, draw_accuracy_over_rounds, draw_energy]
    panels: dict[str, Panel] = {
        draw.__name__.removeprefix("draw_"): partial(draw, rounds=rounds) for draw in drawn
    }
    if measure is not None and measure.name != ACCURACY:
        panels = {name.replace(ACCURACY, "metric"): panel for name, panel in panels.items()}
    if bounds is not None:
        panels["objective"] = partial(draw_objective, rounds=rounds, bounds=bounds)
    main = list(panels.values())
    overview = [main[:2], main[2:]] if len(main) == 4 else [main]
    if "test_loss" in rounds:
        panels["loss"] = partial(draw_loss, rounds=rounds)
    grids = {name: [[panel]] for name, panel in panels.items()} | {"overview": overview}
    for name, grid in track(list(grids.items()), "drawing"):
        save_figure(grid, [folder / f"{name}.png"])


def save_figure(
    grid: Sequence[Sequence[Panel]],
    paths: Sequence[Path],
    *,
    panel_size: tuple[float, float] = (5.2, 3.7),
) -> None:
    """Draw a grid of panels to files, each in the format of its suffix.

    What the panels of a row label is explained at its end. `panel_size` is in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = len(grid), len(grid[0])
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        width, height = panel_size
        figure = Figure(figsize=(width * columns + 1.6, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        for row, axes_row in zip(grid, figure.subplots(rows, columns, squeeze=False), strict=True):
            for panel, axes in zip(row, axes_row, strict=True):
                panel(axes)
                axes.grid(alpha=0.3)
            _explain(axes_row)
        for path in paths:
            # A fixed date makes the file repeatable.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=150, metadata=metadata)


def no_formula(name: str) -> str:
    """A name as matplotlib draws it as it is, also if it has a dollar."""
    return name.replace("$", r"\$")


def _explain(axes_row: Sequence[Axes]) -> None:
    """One legend for a row of panels, beside the last, where it covers nothing."""
    if any(axes.get_legend() is not None for axes in axes_row):
        return
    handles: dict[str, Any] = {}
    for axes in axes_row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        axes_row[-1].legend(
            list(handles.values()),
            list(handles),
            fontsize="small",
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )


def _curves(rounds: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """For each policy its values, a row per round and a column per seed."""
    return {
        name: group.pivot(index="round", columns="seed", values=column)
        for name, group in by_policy(rounds)
    }


def _time_average(values: pd.DataFrame) -> pd.DataFrame:
    return values.expanding().mean()


# A curve has at most this many points: more than a picture has columns.
_MOST_POINTS = 2000


def thinned(values: pd.DataFrame) -> pd.DataFrame:
    """Rows at even distances, the first and the last among them, where there are very many."""
    if len(values) <= _MOST_POINTS:
        return values
    return values.iloc[np.linspace(0, len(values) - 1, _MOST_POINTS).round().astype(np.int64)]


class _Style(NamedTuple):
    """Style of a policy: a colour and a line of its own, and pale where its `status` is not ok."""

    color: str
    line: Any
    alpha: float
    label: str


def _styles(rounds: pd.DataFrame) -> dict[str, _Style]:
    styles = {}
    for index, (name, group) in enumerate(by_policy(rounds)):
        # The second turn of the colours has other lines than the first.
        color = _COLORS[index % len(_COLORS)]
        line = _LINES[(index + index // len(_COLORS)) % len(_LINES)]
        status = str(group["status"].iloc[0])
        alpha, label = (1.0, name) if status == OK else (0.4, f"{name} ({status})")
        label = no_formula(label)
        styles[name] = _Style(color, line, alpha, label)
    return styles


# With fewer seeds each run is a line: an interval of so few says little.
_LEAST_SEEDS_OF_A_BAND = 5
_BAND_LABEL = "95 % interval"


def _draw_runs(
    axes: Axes, style: _Style, values: pd.DataFrame, *, least: float = 0.0, most: float = math.inf
) -> None:
    """Mean over seeds and its 95 % band inside [least, most], or the single runs if few."""
    look: dict[str, Any] = {"color": style.color, "linestyle": style.line, "alpha": style.alpha}
    values = thinned(values)
    x = values.index
    if values.shape[1] < _LEAST_SEEDS_OF_A_BAND:
        for index, seed in enumerate(values.columns):
            label = style.label if index == 0 else None
            axes.plot(x, values[seed], linewidth=1, label=label, **look)
        return
    intervals = np.array([mean_interval(row) for row in values.to_numpy()])
    axes.plot(x, intervals[:, 0], label=style.label, **look)
    low, high = np.clip(intervals[:, 1:].T, least, most)
    axes.fill_between(
        x, low, high, color=style.color, alpha=0.2 * style.alpha, linewidth=0, label="_band"
    )
    if _BAND_LABEL not in axes.get_legend_handles_labels()[1]:
        axes.fill_between([], [], [], color="grey", alpha=0.3, linewidth=0, label=_BAND_LABEL)


def _draw_all(
    axes: Axes, rounds: pd.DataFrame, column: str, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    """A column of each policy over rounds, changed by a function."""
    curves = _curves(rounds, column)
    for name, style in _styles(rounds).items():
        _draw_runs(axes, style, change(curves[name]))


def draw_accuracy_over_time(axes: Axes, rounds: pd.DataFrame) -> None:
    """Test accuracy, or another metric, over simulated time, with a circle where a run ends."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    measure = measure_of(rounds) or Measure()
    accuracy, time = _curves(rounds, f"test_{measure.name}"), _curves(rounds, "elapsed_time")
    factor = measure.unit[0]
    for name, style in _styles(rounds).items():
        values = factor * accuracy[name].dropna()
        times = time[name].loc[values.index] / length
        # Seeds are evaluated at different times: bring them to a common grid by interpolation.
        grid = np.linspace(times.iloc[0].max(), times.iloc[-1].min(), 200)
        common = {s: np.interp(grid, times[s], values[s]) for s in values.columns}
        _draw_runs(axes, style, pd.DataFrame(common, index=grid), **_range(measure))
        end = times.iloc[-1].mean(), values.iloc[-1].mean()
        axes.plot(*end, "o", color=style.color, alpha=style.alpha)
    axes.plot([], [], "o", color="grey", label="end of a run")
    _name_measure(axes, measure, "time", xlabel=f"time [{unit}]")


def draw_accuracy_over_rounds(axes: Axes, rounds: pd.DataFrame) -> None:
    """Test accuracy, or another metric, over rounds; policies that train alike share a curve."""
    measure = measure_of(rounds) or Measure()
    curves, factor = _curves(rounds, f"test_{measure.name}"), measure.unit[0]
    for name, style in _styles(rounds).items():
        values = factor * curves[name].dropna()
        _draw_runs(axes, style, values, **_range(measure))
    for twins in coinciding(rounds):
        axes.plot([], [], " ", label=no_formula(f"({' and '.join(twins)} are the same)"))
    _name_measure(axes, measure, "rounds", xlabel="round")


def _range(measure: Measure) -> dict[str, float]:
    """The least and the most that a metric can be, as far as known."""
    return {"most": 100} if measure.name == ACCURACY else {"least": -math.inf}


def _name_measure(axes: Axes, measure: Measure, over: str, xlabel: str) -> None:
    """Title and labels of a metric's curves."""
    accuracy = measure.name == ACCURACY
    name = measure.name.capitalize() if accuracy else no_formula(measure.name)
    axes.set(xlabel=xlabel, title=f"{name} over {over}")
    if accuracy:
        axes.set(ylabel="test accuracy [%]", ylim=(0, 100))
    else:
        axes.set(ylabel=f"test {name}")


def draw_loss(axes: Axes, rounds: pd.DataFrame) -> None:
    """Loss on the test set over rounds, and behind it that of the participants in training."""
    train, test = _curves(rounds, "train_loss"), _curves(rounds, "test_loss")
    least = min(0.0, *rounds[["train_loss", "test_loss"]].min())  # one's own may be negative
    for name, style in _styles(rounds).items():
        values = test[name].dropna(how="all")
        if len(values):
            _draw_runs(axes, style, values, least=least)
        mean = thinned(train[name]).mean(axis=1)
        axes.plot(mean, color=style.color, alpha=0.25, linewidth=0.6)
    axes.set(xlabel="round", ylabel="loss", title="Loss on the test set (pale: in training)")
    axes.set_ylim(bottom=least)


def draw_partition(axes: Axes, counts: FloatArray) -> None:
    """Samples of each class on each device, stacked, of counts of shape (N, C)."""
    classes = counts.shape[1] > 1  # or numbers to predict
    devices, colors = np.arange(len(counts)), mpl.colormaps["viridis"]
    base = np.zeros(len(counts))
    for label, height in enumerate(counts.T):
        color = colors(label / max(counts.shape[1] - 1, 1))
        axes.bar(devices, height, bottom=base, width=1.0, color=color, label=str(label))
        base += height
    title = f"{'Classes' if classes else 'Samples'} on the devices"
    axes.set(xlabel="device", ylabel="samples", title=title)
    axes.margins(x=0)
    axes.set_axisbelow(True)
    if classes and counts.shape[1] <= 10:
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5), title="class")


def draw_time(axes: Axes, rounds: pd.DataFrame) -> None:
    """Simulated time over rounds."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    _draw_all(axes, rounds, "elapsed_time", lambda time: time / length)
    axes.set(xlabel="round", ylabel=f"elapsed time [{unit}]", title="Time to finish")
    axes.set_ylim(bottom=0)


def draw_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    """Energy really spent so far over the budget: mean over devices, and thin the worst device."""
    mean, worst = _curves(rounds, "spent_ratio"), _curves(rounds, "worst_spent_ratio")
    for name, style in _styles(rounds).items():
        _draw_runs(axes, style, _time_average(mean[name]))
        worst_mean = thinned(worst[name]).mean(axis=1)
        axes.plot(worst_mean, color=style.color, linewidth=0.7, alpha=style.alpha)
    axes.axhline(1.0, color="black", linewidth=1, zorder=1, label="budget")
    axes.set(
        xlabel="round",
        ylabel="energy spent / budget",
        title="Energy of all devices (thin: of the worst)",
    )
    # One device may spend many times its budget, and does in the first rounds.
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")


def draw_expected_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    """Time-average expected energy over budget, mean over devices, as the paper's figure has it."""
    _draw_all(axes, rounds, "energy_ratio", _time_average)
    axes.axhline(1.0, color="black", linewidth=1, zorder=1, label="budget")
    axes.set(xlabel="round", ylabel="expected energy / budget", title="Expected energy")


def draw_penalty(axes: Axes, rounds: pd.DataFrame) -> None:
    """Time-average penalty, as the paper's figure has it."""
    _draw_all(axes, rounds, "penalty", _time_average)
    axes.set(xlabel="round", ylabel="time-average objective [s]", title="Objective")


def draw_objective(axes: Axes, rounds: pd.DataFrame, bounds: pd.DataFrame) -> None:
    """Time-average priced objective above its path bound, of policies that sample."""
    least = _time_average(bounds.pivot(index="round", columns="seed", values="bound"))
    curves = _curves(rounds, "priced_objective")
    for name, style in _styles(rounds).items():
        values = 100 * (_time_average(curves[name]) / least.where(least > 0) - 1)
        if not values.isna().to_numpy().any():
            _draw_runs(axes, style, values)
    axes.axhline(0.0, color="black", linewidth=1, zorder=1, label="cannot be beaten")
    axes.set(
        xlabel="round",
        ylabel="above the bound [%]",
        title="Priced objective above the bound",
    )

"""Plots of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas as pd

from fl_edge_env.files import atomic_path
from fl_edge_env.typing import FloatArray
from policies.benchmark.bound import LowerBound
from policies.benchmark.statistics import mean_interval
from policies.benchmark.tables import by_policy, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Panel: TypeAlias = Callable[[Axes], None]

# Okabe and Ito's colours with a line style each: apart also in grey and for the colour-blind.
_STYLES = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", (0, (5, 1, 1, 1, 1, 1))),
    ("#56B4E9", (0, (1, 1))),
)


# The files that `save_plots` may write.
PLOTS = (
    "accuracy_over_rounds.png",
    "accuracy_over_time.png",
    "energy.png",
    "loss.png",
    "objective.png",
    "overview.png",
    "time.png",
)


def save_plots(rounds: pd.DataFrame, bound: LowerBound | None, folder: Path) -> None:
    """Draw each panel to a PNG file of its own, and the main ones to ``overview.png``.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `policies.benchmark.rollout.run_episode` gives it, all policies together.
    bound : LowerBound, optional
        Drawn with the objective.
    folder : Path
        Existing folder for the files.
    """
    panels: dict[str, Panel] = {
        "energy": lambda axes: draw_energy(axes, rounds),
        "objective": lambda axes: draw_objective(axes, rounds, bound),
    }
    if "test_accuracy" in rounds:
        panels = {
            "accuracy_over_time": lambda axes: draw_accuracy_over_time(axes, rounds),
            "accuracy_over_rounds": lambda axes: draw_accuracy_over_rounds(axes, rounds),
        } | panels
    else:
        panels = {"time": lambda axes: draw_time(axes, rounds)} | panels
    alone: dict[str, Panel] = {}
    if "test_loss" in rounds:
        alone = {"loss": lambda axes: draw_loss(axes, rounds)}
    for name, panel in (panels | alone).items():
        save_figure([[panel]], [folder / f"{name}.png"])
    all_panels = list(panels.values())
    grid = [all_panels[:2], all_panels[2:]] if len(all_panels) == 4 else [all_panels]
    save_figure(grid, [folder / "overview.png"])


def save_figure(grid: Sequence[Sequence[Panel]], paths: Sequence[Path]) -> None:
    """Draw a grid of panels to files.

    Parameters
    ----------
    grid : sequence of sequences of callable
        Rows of panels, all of the same length; each draws on the axes it is given.
    paths : sequence of Path
        The files, with a suffix for each format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = len(grid), len(grid[0])
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.2 * columns, 3.7 * rows), layout="constrained")
        FigureCanvasAgg(figure)
        for row, axes_row in zip(grid, figure.subplots(rows, columns, squeeze=False), strict=True):
            for panel, axes in zip(row, axes_row, strict=True):
                panel(axes)
                axes.grid(alpha=0.3)
        for path in paths:
            # A fixed date makes the file repeatable.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
            with atomic_path(path) as temporary:
                figure.savefig(temporary, dpi=150, metadata=metadata)


def _curves(rounds: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """For each policy its values, a row per round and a column per seed."""
    return {
        name: group.pivot(index="round", columns="seed", values=column)
        for name, group in by_policy(rounds)
    }


def _time_average(values: pd.DataFrame) -> pd.DataFrame:
    return values.expanding().mean()


def _draw_band(axes: Axes, index: int, name: str, x: pd.Index, values: pd.DataFrame) -> None:
    """Mean over seeds and its 95 % band."""
    color, style = _STYLES[index % len(_STYLES)]
    intervals = np.array([mean_interval(row) for row in values.to_numpy()])
    axes.plot(x, intervals[:, 0], color=color, linestyle=style, label=name)
    axes.fill_between(x, intervals[:, 1], intervals[:, 2], color=color, alpha=0.2, linewidth=0)


def _legend(axes: Axes, rounds: pd.DataFrame, **place: Any) -> None:
    """What is labelled, and what the bands are."""
    from matplotlib.patches import Patch

    handles = axes.get_legend_handles_labels()[0]
    if rounds["seed"].nunique() > 1:
        handles.append(Patch(color="grey", alpha=0.3, linewidth=0, label="95 % interval"))
    axes.legend(handles=handles, fontsize="small", framealpha=0.6, **place)


def draw_accuracy_over_time(axes: Axes, rounds: pd.DataFrame) -> None:
    """Test accuracy over simulated time, with a circle where a run ends."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    accuracy, time = _curves(rounds, "test_accuracy"), _curves(rounds, "elapsed_time")
    for index, (name, values) in enumerate(accuracy.items()):
        values = 100 * values.dropna()
        times = time[name].loc[values.index] / length
        # Seeds are evaluated at different times: bring them to a common grid by interpolation.
        grid = np.linspace(times.iloc[0].max(), times.iloc[-1].min(), 200)
        common = pd.DataFrame({s: np.interp(grid, times[s], values[s]) for s in values.columns})
        _draw_band(axes, index, name, pd.Index(grid), common)
        color, _ = _STYLES[index % len(_STYLES)]
        axes.plot(times.iloc[-1].mean(), values.iloc[-1].mean(), "o", color=color)
    axes.set(xlabel=f"time [{unit}]", title="Accuracy over time")
    axes.plot([], [], "o", color="grey", label="end of a run")
    _finish_accuracy(axes, rounds)


def draw_accuracy_over_rounds(axes: Axes, rounds: pd.DataFrame) -> None:
    """Test accuracy over rounds."""
    for index, (name, values) in enumerate(_curves(rounds, "test_accuracy").items()):
        values = 100 * values.dropna()
        _draw_band(axes, index, name, values.index, values)
    axes.set(xlabel="round", title="Accuracy over rounds")
    _finish_accuracy(axes, rounds)


def _finish_accuracy(axes: Axes, rounds: pd.DataFrame) -> None:
    axes.set(ylabel="test accuracy [%]", ylim=(0, 100))
    _legend(axes, rounds, loc="lower right")


def draw_loss(axes: Axes, rounds: pd.DataFrame) -> None:
    """Loss on the test set over rounds, and behind it that of the participants in training."""
    train = _curves(rounds, "train_loss")
    for index, (name, values) in enumerate(_curves(rounds, "test_loss").items()):
        values = values.dropna(how="all")
        if len(values):
            _draw_band(axes, index, name, values.index, values)
        color, _ = _STYLES[index % len(_STYLES)]
        axes.plot(train[name].mean(axis=1), color=color, alpha=0.25, linewidth=0.6)
    axes.set(
        xlabel="round", ylabel="cross-entropy", title="Loss on the test set (pale: in training)"
    )
    axes.set_ylim(bottom=0)
    _legend(axes, rounds)


def draw_partition(axes: Axes, counts: FloatArray) -> None:
    """Samples of each class on each device, stacked.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    counts : ndarray, shape (N, C)
        Number of samples.
    """
    devices, colors = np.arange(len(counts)), mpl.colormaps["turbo"]
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
    for index, (name, values) in enumerate(_curves(rounds, "elapsed_time").items()):
        _draw_band(axes, index, name, values.index, values / length)
    axes.set(xlabel="round", ylabel=f"elapsed time [{unit}]", title="Time to finish")
    axes.set_ylim(bottom=0)
    _legend(axes, rounds)


def draw_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    """Time-average expected energy over budget, mean over devices."""
    for index, (name, values) in enumerate(_curves(rounds, "energy_ratio").items()):
        _draw_band(axes, index, name, values.index, _time_average(values))
    axes.axhline(1.0, color="black", linewidth=1, zorder=1, label="budget")
    axes.set(
        xlabel="round",
        ylabel="time-average energy / budget",
        title="Mean energy against budget",
    )
    _legend(axes, rounds)


def draw_objective(axes: Axes, rounds: pd.DataFrame, bound: LowerBound | None) -> None:
    """Time-average objective, with the lower bound and its 95 % band where it is given."""
    for index, (name, values) in enumerate(_curves(rounds, "penalty").items()):
        _draw_band(axes, index, name, values.index, _time_average(values))
    if bound is not None:
        error = 1.96 * bound.standard_error
        axes.axhline(
            bound.value, color="black", linewidth=1, zorder=1, label="lower bound within budget"
        )
        axes.axhspan(bound.value - error, bound.value + error, color="black", alpha=0.2, lw=0)
    axes.set(xlabel="round", ylabel="time-average objective [s]", title="Objective")
    _legend(axes, rounds)

"""Tables and plots of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from scipy import stats

from fl_edge_env.files import atomic_path
from fl_edge_env.typing import FloatArray
from policies.bound import LowerBound
from policies.statistics import mean_interval

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


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which a duration reads well, and its length [s].

    Parameters
    ----------
    seconds : float
        The duration.
    """
    for name, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return name, length
    return "s", 1.0


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


def comparison_table(summary: pd.DataFrame, target_accuracy: float | None = None) -> Table:
    """A table for the terminal: policies side by side, means with 95 % intervals over seeds.

    Parameters
    ----------
    summary : pandas.DataFrame
        As `policies.evaluation.summarise` returns it. The first policy is compared with the
        others.
    target_accuracy : float, optional
        The accuracy to which `time_to_target` refers.

    Returns
    -------
    rich.table.Table
    """
    unit, length = time_unit(summary["total_time"].max())
    runs = {name: group.set_index("seed") for name, group in _by_policy(summary)}
    first = next(iter(runs))
    seeds = len(runs[first])
    title = f"Mean and 95 % interval over {seeds} seeds" if seeds > 1 else "One seed"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in runs:
        table.add_column(name, justify="right")

    def row(label: str, cell: Callable[[pd.DataFrame], str]) -> None:
        table.add_row(label, *(cell(group) for group in runs.values()))

    def saving(group: pd.DataFrame) -> str:
        return _interval(100 * (1 - runs[first]["total_time"] / group["total_time"]), 2)

    row(f"total time, {unit}", lambda g: _interval(g["total_time"] / length))
    row(f"time {first} saves, %", lambda g: "" if g is runs[first] else saving(g))
    if "final_accuracy" in summary:
        row("final accuracy, %", lambda g: _interval(100 * g["final_accuracy"], 2))
    if "time_to_target" in summary and target_accuracy is not None:
        row(
            f"time to {100 * target_accuracy:g} %, {unit}",
            lambda g: _reached(g["time_to_target"] / length),
        )
    row("energy / budget", lambda g: _interval(g["energy_ratio"]))
    row("of worst device", lambda g: _interval(g["worst_energy_ratio"]))
    row("objective, s", lambda g: _interval(g["mean_objective"]))
    if "bound_gap" in summary:
        row("above bound, %", lambda g: _interval(100 * g["bound_gap"], 2) + _mark(g))
        if not summary["within_budget"].all():
            table.caption = (
                "* In some run a device was over its energy budget. The bound holds for policies "
                "within budget only: such a run may lie below it."
            )
    return table


def _interval(values: pd.Series, most_decimals: int = 3) -> str:
    """Mean and half width, the latter rounded up to two digits and at most so many decimals."""
    mean, low, high = mean_interval(values.to_numpy())
    half = (high - low) / 2
    if not half > 0:
        return f"{mean:.5g}"
    decimals = min(max(1 - math.floor(math.log10(half)), 0), most_decimals)
    half = math.ceil(half * 10**decimals) / 10**decimals
    return f"{mean:.{decimals}f}±{half:.{decimals}f}"


def _reached(values: pd.Series) -> str:
    reached = values.dropna()
    if reached.empty:
        return "not reached"
    missed = "" if len(reached) == len(values) else f" ({len(reached)} of {len(values)} runs)"
    return _interval(reached) + missed


def _mark(group: pd.DataFrame) -> str:
    return "" if group["within_budget"].all() else "*"


def save_plots(rounds: pd.DataFrame, bound: LowerBound | None, folder: Path) -> None:
    """Draw each panel to a PNG file of its own, and the main ones to ``overview.png``.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `policies.rollout.run_episode` gives it, all policies together.
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


def curve_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """The data of the curves: for each policy and round the mean over seeds and its 95 % interval.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `policies.rollout.run_episode` gives it, all policies together.

    Returns
    -------
    pandas.DataFrame
        `policy`, `round`, and for each quantity a column with the mean and one with the half
        width of Student's t interval, NaN for a single seed.
    """
    names = ["elapsed_time", "energy_ratio", "penalty", "sampling_error"]
    names += ["train_loss", "test_loss", "test_accuracy"]
    groups = rounds.groupby(["policy", "round"], sort=False)[[n for n in names if n in rounds]]
    count = groups.count()
    quantile = count.map(lambda n: stats.t.ppf(0.975, max(n - 1, 1)))
    half = groups.std().div(np.sqrt(count)).mul(quantile)
    return groups.mean().join(half.add_suffix("_half_width")).reset_index()


def _by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]


def _curves(rounds: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """For each policy its values, a row per round and a column per seed."""
    return {
        name: group.pivot(index="round", columns="seed", values=column)
        for name, group in _by_policy(rounds)
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

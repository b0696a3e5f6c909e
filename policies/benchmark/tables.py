"""Tables of a comparison, for the terminal and for files."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from scipy import stats

from policies.benchmark.statistics import mean_interval


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


def comparison_table(summary: pd.DataFrame, target_accuracy: float | None = None) -> Table:
    """A table for the terminal: policies side by side, means with 95 % intervals over seeds.

    Parameters
    ----------
    summary : pandas.DataFrame
        As `policies.benchmark.evaluation.summarise` returns it. The first policy is compared with
        the others.
    target_accuracy : float, optional
        The accuracy to which `time_to_target` refers.

    Returns
    -------
    rich.table.Table
    """
    unit, length = time_unit(summary["total_time"].max())
    runs = {name: group.set_index("seed") for name, group in by_policy(summary)}
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


def curve_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """The data of the curves: for each policy and round the mean over seeds and its 95 % interval.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `policies.benchmark.rollout.run_episode` gives it, all policies together.

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


def by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each policy, in order of appearance."""
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]

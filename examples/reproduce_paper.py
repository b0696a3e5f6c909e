"""Draw a figure of the paper's Section VII, or one on the lower bound, and print its table.

python examples/reproduce_paper.py baselines

The figures:

    baselines  LROA, Uni-D and Uni-S (Figures 1 and 2)
    lambda     LROA under different lambda (Figure 3)
    v          energy and objective of LROA under different V (Figure 4)
    k          LROA and Uni-D with different K, each at its best mu and nu (Figures 5 and 6)
    bound      LROA's distance from the lower bound under different V

A figure shows the settings of a board, examples/leaderboards/paper_FIGURE.toml. To show others,
give a changed copy as BOARD. With `train = true` above its settings, models are trained and the
figure shows their accuracy; in a copy of the baselines, remove the settings with other mu.

The figure (PNG, PDF) and the means over seeds in each setting (CSV) go to the folder --out. Rerun
the command to resume it.
"""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from policies.benchmark.comparison import compare_settings
from policies.benchmark.summary import by_policy
from policies.report.figures import (
    averaged,
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_column,
    draw_energy,
    draw_limit,
    save_figure,
)
from policies.report.styles import looks
from policies.report.tables import time_unit
from train_fl.commands.console import output_console, print_whole, progress_console
from train_fl.commands.leaderboard_file import read_leaderboard
from train_fl.commands.settings import make_setting

BOARDS = Path(__file__).parent / "leaderboards"
# Savings that the paper states, or in brackets implies, for a policy relative to another one [%].
PAPER = {
    "cifar10": {("LROA", "Uni-D"): "20.8", ("LROA", "Uni-S"): "50.1", ("Uni-D", "Uni-S"): "(37.0)"},
    "femnist": {("LROA", "Uni-D"): "15.3", ("LROA", "Uni-S"): "49.9", ("Uni-D", "Uni-S"): "(40.9)"},
}
# Energy over the budget up to which the worst device is good enough.
MOST_ENERGY = 1.05


def played(
    board: Path, out: Path, workers: int, bounded: bool
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Play what the folder lacks of a board.

    Returns a row of means for each policy in each setting, and the rounds behind it.
    """
    read = read_leaderboard(board)
    settings = [make_setting(one.name, one.options, one.policies, ranked=True) for one in read]
    settings = [replace(setting, bounded=bounded) for setting in settings]
    results = compare_settings(settings, out, progress_console(), workers=workers)
    rows = []
    rounds_of = []
    for one, result in zip(read, results, strict=True):
        scenario = one.options.make_scenario()
        for policy, runs in by_policy(result.summary):
            rounds = result.rounds[result.rounds["policy"] == policy]
            row = {
                "scenario": one.options.system.scenario,
                "policy": policy,
                "mu": scenario.mu,
                "nu": scenario.nu,
                "K": scenario.cohort_size,
            }
            row |= runs.drop(columns="seed").mean(numeric_only=True)
            row["days"] = row["total_time"] / 86_400
            row["budget"] = scenario.energy_budget_j.mean()
            row["energy"] = row["energy_ratio"] * row["budget"]
            row["queue"] = late(rounds)["mean_queue"].mean()
            if bounded:
                least = late(result.bounds)["bound"].mean()
                row["above"] = 100 * (late(rounds)["priced_objective"].mean() / least - 1)
            rows.append(row)
            rounds_of.append(rounds)
    return pd.DataFrame(rows), rounds_of


def late(table: pd.DataFrame) -> pd.DataFrame:
    """The second half of the rounds, when the queues have filled."""
    return table[table["round"] > table["round"].max() / 2]


def savings(points: pd.DataFrame) -> pd.DataFrame:
    """The time that policies save at mu = 1 [%], and the mu at which it is the paper's."""
    rows = []
    for name, own in points.groupby("scenario", sort=False):
        time = own.pivot(index="mu", columns="policy", values="total_time")
        time = time.bfill()  # Uni-S does not depend on mu
        for saver, other in [*PAPER["cifar10"], ("LROA", "DivFL")]:
            if other in time:
                saved = 100 * (1 - time[saver] / time[other])
                stated = PAPER.get(name, {}).get((saver, other), "")
                row = {"scenario": name, "policy": saver, "against": other, "paper": stated}
                rows.append(row | {"ours": saved[1], "matching": matching_mu(saved, stated)})
    return pd.DataFrame(rows)


def matching_mu(saved: pd.Series, stated: str) -> str:
    """The mu at which a saving is the stated one, by interpolation; savings by mu [%]."""
    if not stated or "(" in stated:
        return ""
    # Savings fall as mu rises.
    if not saved.iloc[-1] <= float(stated) <= saved.iloc[0]:
        return "–"
    return f"{np.exp(np.interp(-float(stated), -saved, np.log(saved.index))):.2f}"


def fastest(points: pd.DataFrame) -> pd.DataFrame:
    """The fastest good enough point for each K and policy, or else the nearest to it."""
    chosen = []
    for _, grid in points.groupby(["scenario", "K", "policy"], sort=False):
        energy = grid["worst_energy_ratio"]
        good = grid["total_time"][energy <= MOST_ENERGY]
        chosen.append(energy.idxmin() if good.empty else good.idxmin())
    points = points.loc[chosen]
    good = points["worst_energy_ratio"] <= MOST_ENERGY
    return points.assign(mark=good.map({True: "", False: "*"}))


def draw_time(axes, rounds: pd.DataFrame) -> None:
    """Simulated time over rounds."""
    unit, length = time_unit(rounds["elapsed_time"].max())
    scaled = rounds.assign(elapsed_time=rounds["elapsed_time"] / length)
    draw_column(axes, scaled, "elapsed_time")
    axes.set(ylabel=f"time [{unit}]", title="Simulated time")
    axes.set_ylim(bottom=0.0)


def draw_energy_so_far(axes, rounds: pd.DataFrame) -> None:
    """Expected energy over the budget, averaged so far."""
    draw_column(axes, averaged(rounds, "energy_ratio"), "energy_ratio")
    draw_limit(axes, 1.0, "budget")
    axes.set(ylabel="expected energy / budget", title="Expected energy")


def draw_objective(axes, rounds: pd.DataFrame) -> None:
    """The objective, averaged so far."""
    draw_column(axes, averaged(rounds, "penalty"), "penalty")
    axes.set(ylabel="time-average objective [s]", title="Objective")


def draw_by_nu(axes, points: pd.DataFrame, column: str, ylabel: str) -> None:
    """A mean over nu; the axis of the queue is logarithmic as well."""
    axes.plot(points["nu"], points[column], color=looks(["LROA"])["LROA"].color, marker="o")
    axes.set(xscale="log", xlabel="ν", ylabel=ylabel, title="LROA")
    if column == "queue":
        axes.set_yscale("log")
    elif column == "above":
        draw_bound(axes, 0.0)
    else:
        draw_limit(axes, 1.0, "budget")


class Figure(NamedTuple):
    """A table and the panels of each system."""

    title: str  # of the table
    columns: dict[str, str]  # of the table: formats by head
    comment: str  # below it
    label: str = "{policy}"  # of a curve, as a format
    panels: tuple[Callable[..., None], ...] = (draw_time, draw_energy)


FIGURES = {
    "baselines": Figure(
        "Time saved, %",
        {
            "policy": "{policy}",
            "against": "{against}",
            "paper": "{paper}",
            "ours, μ = 1": "{ours:.1f}",
            "the paper's at μ =": "{matching}",
        },
        "(Uni-D against Uni-S: implied by the paper's two numbers.) The paper does not print "
        "lambda0. A smaller lambda saves more time at a larger sampling error.",
    ),
    "lambda": Figure(
        "LROA under different lambda",
        {
            "mu": "μ = {mu:g}",
            "total time, d": "{days:.4g}",
            "sampling error": "{sampling_error:.4f}",
        },
        "Paper: the total time grows with lambda, and so does the accuracy; a small lambda "
        "makes training volatile, because the sampling error is larger.",
        label="μ = {mu:g}",
    ),
    "v": Figure(
        "LROA under different V",
        {
            "nu": "ν = {nu:.3g}",
            "energy, J": "{energy:.4g}",
            "budget, J": "{budget:.4g}",
            "objective, s": "{mean_objective:.6g}",
        },
        "Paper: with a larger V the energy approaches the budget (15 J and 5 J) more slowly, and "
        "the objective is smaller. The objective is the sum over devices.",
        label="ν = {nu:.3g}",
        panels=(draw_energy_so_far, draw_objective),
    ),
    "k": Figure(
        "Fastest point of the grid with a good enough energy of the worst device",
        {
            "policy": "{policy}",
            "K": "{K}",
            "mu": "{mu:g}",
            "nu": "{nu:.3g}",
            "total time, d": "{days:.4g}",
            "energy of the worst device": "{worst_energy_ratio:.4g}{mark}",
        },
        "* No point is good enough: this is the nearest. Paper: LROA beats Uni-D for every K; a "
        "larger K takes longer and is more accurate. The noise power in B/K is the same for all K.",
        label="{policy}, K = {K}",
    ),
    "bound": Figure(
        "LROA and the lower bound",
        {
            "nu": "{nu:.3g}",
            "above bound, %": "{above:.3f}",
            "mean queue, J": "{queue:.4g}",
            "worst energy / budget": "{worst_energy_ratio:.4f}",
        },
        "Distance and queue are means over the second half of the rounds. The objective is priced, "
        "so that the bound holds for every V. The theory bounds the distance by C/V, and the "
        "queues grow with V.",
        panels=tuple(
            partial(draw_by_nu, column=column, ylabel=ylabel)
            for column, ylabel in (
                ("above", "objective above the bound [%]"),
                ("queue", "mean queue [J]"),
                ("worst_energy_ratio", "worst device's energy / budget"),
            )
        ),
    ),
}


def main(figure: str, board: Path | None, out: Path, workers: int = os.cpu_count() or 1) -> None:
    """Play a board, write the files, and print the table."""
    spec = FIGURES[figure]
    bounded = figure == "bound"
    board = board or BOARDS / f"paper_{figure}.toml"
    # The table marks points beyond the budgets.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        points, rounds_of = played(board, out, workers, bounded)
    points.to_csv(out / f"{figure}.csv", index=False)
    table = points
    if figure == "baselines":
        table = savings(points)
        points = points[points["mu"] == 1]
    elif figure == "k":
        points = table = fastest(points)
    grid = []
    for name, own in points.groupby("scenario", sort=False):
        labels = formatted(own, spec.label)
        data = own
        if not bounded:
            data = pd.concat([rounds_of[at].assign(policy=label) for at, label in labels.items()])
        panels = spec.panels
        if "test_accuracy" in data:
            panels = (draw_accuracy_over_time, draw_accuracy_over_rounds)
        grid.append([partial(draw_titled, draw=draw, data=data, name=name) for draw in panels])
    paths = [out / f"{figure}.{kind}" for kind in ("png", "pdf")]
    save_figure(grid, paths, rows_apart=len(grid) > 1)
    printed = Table(title=spec.title, box=box.SIMPLE_HEAD)
    columns = {"scenario": "{scenario}"} | spec.columns
    for index, head in enumerate(columns):
        printed.add_column(head, justify="left" if index < 2 else "right")
    for row in zip(*(formatted(table, each) for each in columns.values()), strict=True):
        printed.add_row(*row)
    print_whole(printed, [spec.comment, f"Figures and data: {out}"], output_console())


def formatted(points: pd.DataFrame, template: str) -> pd.Series:
    """A text for each point, with its means in a template."""
    texts = [template.format(**point) for point in points.to_dict("records")]
    return pd.Series(map(superscripts, texts), points.index)


def draw_bound(axes, level: float, label: str = "lower bound") -> None:
    """A line at a lower bound and a shade below it; call it last, as it reads the axis limits."""
    scale = axes.yaxis.get_transform()
    top = axes.get_ylim()[1]
    low, high = scale.transform([level, top])
    below = float(scale.inverted().transform(low - 0.08 * (high - low)))
    bottom = min(axes.get_ylim()[0], below)
    axes.axhspan(bottom, level, color="0.85", zorder=0.5)
    axes.axhline(level, color="black", linewidth=0.8, zorder=1, label=label)
    axes.set_ylim(bottom, top)


def superscripts(text: str) -> str:
    """A text with powers of ten as superscripts: ``"1e+03"`` becomes ``"10³"``."""

    def written(found: re.Match[str]) -> str:
        power = str(int(found[2])).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{power}" if found[1] == "1" else f"{found[1]}·10{power}"

    return re.sub(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]\d+)", written, text)


def draw_titled(axes, draw: Callable[..., None], data: pd.DataFrame, name: str) -> None:
    """Draw a panel, with the name of the system in its title."""
    draw(axes, data)
    axes.set_title(f"{name}: {axes.get_title()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("board", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"))
    main(**vars(parser.parse_args()))

"""How far Opportunistic is ahead of LROA, by LROA's weight mu, the cohort size and the devices.

python examples/lead.py --seeds 10 --out runs/lead

It plays the CIFAR-10 system without training, and writes a table and a figure, in which markers of
policies that are not ranked are hollow. Where K or N changes, a device has the same data and the
same energy for a participation, and the noise has the same density.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.comparison import compare_settings
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting
from policies.report.figures import save_figure
from policies.report.styles import looks

NAMES = ("lroa", "opportunistic", "quickest")
PAPER = Scenario.cifar10()


def of_size(num_devices: int, cohort_size: int) -> dict[str, float]:
    """The fields of a system with other numbers of devices."""
    share = (cohort_size / num_devices) / (PAPER.cohort_size / PAPER.num_devices)
    return {
        "num_devices": num_devices,
        "num_samples": float(PAPER.num_samples.mean()),
        "cohort_size": cohort_size,
        "noise_power_w": PAPER.noise_power_w * PAPER.cohort_size / cohort_size,
        "energy_budget_j": float(PAPER.energy_budget_j.mean()) * share,
    }


# Labels of the axes, with the scenarios' fields by their values.
AXES = {
    "mu": ("LROA's μ", {mu: {"mu": mu} for mu in (0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10)}),
    "K": ("devices in a round, K", {k: of_size(120, k) for k in (1, 2, 3, 5, 8, 10)}),
    "N": ("devices, N", {n: of_size(n, 2) for n in (20, 50, 100, 200, 500, 1000)}),
}


def played(rounds: int, seeds: range, workers: int) -> pd.DataFrame:
    """Return means over seeds: a row for each axis, value and policy."""
    settings = []
    places = []
    for axis, (_, points) in AXES.items():
        for value, fields in points.items():
            scenario = Scenario.cifar10(num_rounds=rounds, **fields)
            policies = [make_policy(name, scenario) for name in NAMES]
            runs = tuple(Run(policy.name, policy, scenario) for policy in policies)
            settings.append(Setting(f"{axis} = {value}", runs, seeds, bounded=False))
            places.append({"axis": axis, "value": value})
    results = compare_settings(settings, None, Console(), workers=workers)
    tables = []
    for place, result in zip(places, results, strict=True):
        runs = result.summary.groupby("policy", sort=False)
        table = runs[["total_time", "sampling_error", "spent_ratio"]].mean()
        table["status"] = runs["status"].first()
        others = table["total_time"]
        table["over_opportunistic"] = others / others["Opportunistic"]
        tables.append(table.reset_index().assign(**place))
    return pd.concat(tables, ignore_index=True)


def draw(axes, table: pd.DataFrame, axis: str, column: str, ylabel: str) -> None:
    """Draw a column of each policy along an axis, hollow where it is not ok."""
    rows = table[table["axis"] == axis]
    for name, look in looks(list(rows["policy"].unique())).items():
        own = rows[rows["policy"] == name]
        values = own[column]
        ok = own["status"] == "ok"
        axes.plot(own["value"], values, color=look.color, linestyle=look.linestyle, label=name)
        axes.plot(own["value"], values.where(ok), "o", color=look.color)
        axes.plot(own["value"], values.mask(ok), "o", color=look.color, markerfacecolor="white")
    label, points = AXES[axis]
    axes.set(xscale="log", xlabel=label, ylabel=ylabel, ylim=(0, None))
    shown = [value for value in points if f"{value:g}".strip("0.") in "125"]
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.set_xticks([], minor=True)


def main(
    seeds: int = 10,
    rounds: int = 1000,
    out: Path = Path("runs/lead"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Play all settings and write the files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of large systems without binding budgets
        table = played(rounds, range(seeds), workers)
    print(table.round(3).to_string(index=False))
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "lead.csv", index=False)
    ratio = "time over Opportunistic's"
    ratios = {
        axis: partial(draw, table=table, axis=axis, column="over_opportunistic", ylabel=ratio)
        for axis in AXES
    }
    error = "sampling error (uniform: 1)"
    errors = partial(draw, table=table, axis="mu", column="sampling_error", ylabel=error)
    panels = [[ratios["mu"], errors], [ratios["K"], ratios["N"]]]
    save_figure(panels, [out / "lead.png"], panel_size=(3.5, 2.2))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

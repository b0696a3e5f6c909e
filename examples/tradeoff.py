"""Opportunistic: round time against its constraints over V, and an ablation.

python examples/tradeoff.py --seeds 10 --out runs/tradeoff

It prints the ablation's table, and writes its numbers and its figure.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pandas as pd
import tyro
from reproduce_paper import draw_bound
from rich.console import Console

from fl_edge_env import Allocation, Scenario
from policies import Opportunistic, UniD
from policies.benchmark.comparison import compare_settings
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting
from policies.report.figures import draw_limit, save_figure
from policies.report.styles import looks


class ResourcesOfUniD(Opportunistic):
    """Opportunistic's cohorts with the f and p of Uni-D."""

    def decide(self, observation):
        """Choose the cohort, and take f and p from Uni-D; see `Policy.decide`."""
        own = super().decide(observation)
        other = UniD(self.scenario).decide(observation)
        return Allocation(other.f, other.p, cohort=own.cohort, weights=own.weights)


VARIANTS = {
    "as it is": Opportunistic,
    "cold start": partial(Opportunistic, start="cold"),
    "cold start, steps × 5": partial(Opportunistic, start="cold", step_scale=5.0),
    "steps × 5": partial(Opportunistic, step_scale=5.0),
    "no price moves": partial(Opportunistic, step_scale=0.0),
    "resources of Uni-D": ResourcesOfUniD,
}
# Each start with weights V of time against the queues, in multiples of the default.
LINES = {"settled": "-", "cold": "--"}
POINTS = {
    f"{start}, {V:g}": (start, V) for start in LINES for V in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
}
MEASURES = ["spent_ratio", "worst_spent_ratio", "least_participation", "outcome_gap"]
# The panels: their titles, labels and columns.
PANELS = [
    ("time", "mean time of a round [s]", "round_time"),
    ("queues", "mean energy queue [J]", "queue"),
    ("energy, worst device", "energy / budget", "worst_spent_ratio"),
    ("participation, worst device", "participation / target", "least_participation"),
]


def played(scenario: Scenario, seeds: range, workers: int) -> tuple[pd.DataFrame, float]:
    """Return means over seeds, a row for each variant and point, and the mean bound [s]."""
    makers = {
        label: partial(Opportunistic, start=s, step_scale=1 / V) for label, (s, V) in POINTS.items()
    }
    variants = (makers | VARIANTS).items()
    runs = tuple(Run(label, make(scenario), scenario) for label, make in variants)
    setting = Setting("cifar10", runs, seeds)
    (results,) = compare_settings([setting], None, Console(), workers=workers)
    rounds = results.rounds
    bounds = results.bounds
    table = results.summary.groupby("policy", sort=False)[MEASURES].mean()
    late = rounds[rounds["round"] > scenario.num_rounds / 2]
    table.insert(0, "round_time", rounds.groupby("policy")["round_time"].mean())
    table.insert(1, "queue", late.groupby("policy")["mean_queue"].mean())
    return table, float(bounds.groupby("seed")["outcome_bound"].mean().mean())


def draw(axes, points: pd.DataFrame, panel: tuple[str, str, str], least: float) -> None:
    """Draw a panel against V with a line for each start."""
    title, ylabel, column = panel
    color = looks(["Opportunistic"])["Opportunistic"].color
    for start, rows in points.groupby("start", sort=False):
        (line,) = axes.plot(rows["V"], rows[column], label=f"{start} start")
        line.set(color=color, linestyle=LINES[start])
    axes.set(xscale="log", xlabel="V over its default", ylabel=ylabel, title=title)
    axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    if column == "round_time":
        draw_bound(axes, least, "cannot be beaten within the constraints")
    elif column != "queue":
        draw_limit(axes, 1.0, "target or budget")


def main(
    seeds: int = 10,
    rounds: int = 1000,
    out: Path = Path("runs/tradeoff"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Run all variants and points, print the table, and write the files."""
    table, least = played(Scenario.cifar10(num_rounds=rounds), range(seeds), workers)
    points = pd.DataFrame(list(POINTS.values()), table.index[: len(POINTS)], ["start", "V"])
    points = points.join(table)
    variants = table.loc[list(VARIANTS)].rename_axis("variant").reset_index()
    print(variants.round(4).to_string(index=False))
    out.mkdir(parents=True, exist_ok=True)
    data = pd.concat([points, variants], ignore_index=True)
    data.assign(bound=least, scenario="cifar10").to_csv(out / "tradeoff.csv", index=False)
    panels = [partial(draw, points=points, panel=panel, least=least) for panel in PANELS]
    save_figure([panels[:2], panels[2:]], [out / "tradeoff.png"], panel_size=(3.5, 2.0))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

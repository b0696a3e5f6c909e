"""What Opportunistic pays for its constraints: time, queues and participation against V."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

import pandas as pd
from matplotlib.axes import Axes
from rich.console import Console

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.commands.experiment import Experiment, Setting, new_table
from policies.benchmark.commands.training import MakeTraining
from policies.benchmark.evaluation import summarise
from policies.opportunistic import Opportunistic, Start
from policies.uniform import UniD


class _ResourcesOfUniD(Opportunistic):
    """Opportunistic's cohorts with the f and p that Uni-D would give."""

    name = "Opportunistic, Uni-D's resources"

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Choose the cohort, and leave f and p to Uni-D; see `Policy.decide`."""
        own = super().decide(observation)
        other = UniD(self.scenario).decide(observation)
        return Allocation(other.f, other.p, cohort=own.cohort, weights=own.weights)


VARIANTS: dict[str, Callable[[Scenario], Policy]] = {
    "as it is": Opportunistic,
    "cold start": partial(Opportunistic, start="cold"),
    "cold start, steps × 5": partial(Opportunistic, start="cold", step_scale=5.0),
    "steps × 5": partial(Opportunistic, step_scale=5.0),
    "no price of participation moves": partial(Opportunistic, participation=False),
    "no price moves": partial(Opportunistic, step_scale=0.0),
    "resources of Uni-D": _ResourcesOfUniD,
}


@dataclass(frozen=True)
class Tradeoff(Experiment):
    """Opportunistic: time, queues and participation against V, and what its parts do."""

    scenarios: tuple[str, ...] = ("cifar10",)
    """Systems, a row of panels for each."""
    V: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Weights of time against the queues, in multiples of Opportunistic's own."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Draw time, queue and participation against V, and take the parts away one by one."""
        grid, data = [], {}
        parts = new_table(
            "Opportunistic without its parts",
            *("system", "variant", "mean round, s", "spent, %", "worst device, %"),
            *("least participation, %", "above the bound, %"),
        )
        for name in self.scenarios:
            scenario = self.scenario(name)
            points = [(start, V) for start in get_args(Start) for V in self.V]
            settings = [
                Setting(
                    f"{start}, {V:g}",
                    partial(Opportunistic, start=start, step_scale=1.0 / V),
                    scenario,
                )
                for start, V in points
            ]
            settings += [Setting(label, make, scenario) for label, make in VARIANTS.items()]
            runs = self.collect(name, settings, console, make_training, priced=True)
            bounds = self.bounds(name, scenario, console, make_training)
            rows = {label: _summary(run, bounds) for label, run in runs.items()}
            for label in VARIANTS:
                row = rows[label]
                shown = (f"{row['round_time']:.4g}", *(f"{100 * row[c]:.1f}" for c in _SHARES))
                parts.add_row(name, label, *shown)
            frame = pd.DataFrame(
                [{"start": start, "V": V} | rows[f"{start}, {V:g}"] for start, V in points]
            )
            least = bounds.groupby("seed")["outcome_bound"].mean().mean()
            variants = pd.DataFrame([{"variant": label} | rows[label] for label in VARIANTS])
            data[name] = pd.concat([frame, variants], ignore_index=True).assign(bound=least)
            grid.append(
                [
                    partial(_draw_time, frame=frame, least=least, title=name),
                    partial(_draw_queue, frame=frame, title=name),
                    partial(_draw_shares, frame=frame, title=name),
                ]
            )
        self.save("tradeoff", grid, data)
        console.print(parts)
        console.print(
            "The distance prices energy beyond the budget and missing participation, so that a "
            "variant that looks fast and keeps to neither stands far above the bound."
        )


_SHARES = ("spent_ratio", "worst_spent_ratio", "least_participation", "outcome_gap")


def _summary(rounds: pd.DataFrame, bounds: pd.DataFrame) -> dict[str, float]:
    """Means over seeds of what a table or a panel tells."""
    table = summarise(rounds, bounds=bounds)
    late = rounds[rounds["round"] > rounds["round"].max() / 2]
    return {
        "round_time": float(rounds["round_time"].mean()),
        "queue": float(late["mean_queue"].mean()),
    } | {column: float(table[column].mean()) for column in _SHARES}


_STYLES = {"settled": ("#0072B2", "-"), "cold": ("#D55E00", "--")}


def _draw(axes: Axes, frame: pd.DataFrame, column: str, what: str = "", marker: str = "o") -> None:
    """A line for each start against V."""
    for start, rows in frame.groupby("start", sort=False):
        color, line = _STYLES[str(start)]
        label = f"{what}, {start} start" if what else f"{start} start"
        axes.plot(rows["V"], rows[column], line, marker=marker, color=color, label=label)
    axes.set(xscale="log", xlabel="V, in multiples of its own")


def _draw_time(axes: Axes, frame: pd.DataFrame, least: float, title: str) -> None:
    _draw(axes, frame, "round_time")
    axes.axhline(least, color="black", linewidth=1, zorder=1, label="bound within the constraints")
    axes.set(ylabel="mean time of a round [s]", title=f"{title}: time")
    axes.legend(fontsize="small", framealpha=0.6)


def _draw_queue(axes: Axes, frame: pd.DataFrame, title: str) -> None:
    _draw(axes, frame, "queue")
    axes.set(ylabel="mean energy queue [J]", title=f"{title}: queues")
    axes.legend(fontsize="small", framealpha=0.6)


def _draw_shares(axes: Axes, frame: pd.DataFrame, title: str) -> None:
    _draw(axes, frame, "least_participation", "least participation")
    _draw(axes, frame, "worst_spent_ratio", "worst device's energy", marker="s")
    axes.axhline(1.0, color="black", linewidth=1, zorder=1)
    axes.set(ylabel="share of the target or the budget", title=f"{title}: constraints")
    axes.legend(fontsize="x-small", framealpha=0.6)

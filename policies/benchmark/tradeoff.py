"""A figure on Opportunistic: time against its constraints, and what its parts do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, get_args

import pandas as pd

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.evaluate import summarise
from policies.benchmark.experiment import Results
from policies.benchmark.figures import draw_bound, draw_limit
from policies.benchmark.paper import Curve, Drawn, Figure, Options, late_rounds
from policies.benchmark.styles import looks
from policies.opportunistic import Opportunistic, Start
from policies.uniform import UniD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from policies.benchmark.figures import Panel


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
_SHARES = {
    "spent_ratio": "spent, %",
    "worst_spent_ratio": "worst device, %",
    "least_participation": "least participation, %",
    "outcome_gap": "above the bound, %",
}
# The panels: what they show, and their columns, each with its name and marker.
_TRADEOFF = {
    "time": ("mean time of a round [s]", {"round_time": ("", "o")}),
    "queues": ("mean energy queue [J]", {"queue": ("", "o")}),
    "constraints": (
        "over target or budget",
        {
            "least_participation": ("least participation, ", "o"),
            "worst_spent_ratio": ("worst device's energy, ", "s"),
        },
    ),
}
# Weights of time against the queues, in multiples of Opportunistic's own.
_WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_LINES = {"settled": "-", "cold": "--"}


def tradeoff(options: Options, name: str) -> Figure:
    """Opportunistic: time, queues and participation against V, and what its parts do."""
    points = [(start, V) for start in get_args(Start) for V in _WEIGHTS]
    makers: dict[str, Callable[[Scenario], Policy]] = {
        f"{start}, {V:g}": partial(Opportunistic, start=start, step_scale=1.0 / V)
        for start, V in points
    }
    scenario = options.system(name)
    curves = [Curve(label, make, scenario) for label, make in (makers | VARIANTS).items()]

    def draw(results: Results) -> Drawn:
        bounds = results.bounds
        means = {label: _means(run, bounds) for label, run in results.runs().items()}
        rows = [
            {"system": name, "variant": label, "mean round, s": f"{row['round_time']:.4g}"}
            | {column: f"{100 * row[share]:.1f}" for share, column in _SHARES.items()}
            for label, row in means.items()
            if label in VARIANTS
        ]
        frame = pd.DataFrame(
            [{"start": start, "V": V} | means[f"{start}, {V:g}"] for start, V in points]
        )
        least = bounds.groupby("seed")["outcome_bound"].mean().mean()
        variants = pd.DataFrame([{"variant": label} | means[label] for label in VARIANTS])
        data = pd.concat([frame, variants], ignore_index=True).assign(bound=least)
        drawn: list[Panel] = [
            partial(_draw, frame=frame, what=what, system=name, least=least) for what in _TRADEOFF
        ]
        return Drawn(drawn, data, rows)

    comment = (
        "The distance prices energy beyond the budget and missing participation, so that a "
        "variant that looks fast and keeps to neither stands far above the bound."
    )
    title = "Opportunistic without its parts"
    return Figure(title, comment, curves, draw, bounded=True)


def _means(rounds: pd.DataFrame, bounds: pd.DataFrame) -> dict[str, float]:
    """Means over seeds of what a table or a panel tells."""
    table = summarise(rounds, bounds=bounds)
    return {
        "round_time": float(rounds["round_time"].mean()),
        "queue": float(late_rounds(rounds)["mean_queue"].mean()),
    } | {column: float(table[column].mean()) for column in _SHARES}


def _draw(axes: Axes, frame: pd.DataFrame, what: str, system: str, least: float) -> None:
    """A panel against V with a line for each start and column."""
    ylabel, columns = _TRADEOFF[what]
    color = looks(["Opportunistic"])["Opportunistic"].color
    for column, (name, marker) in columns.items():
        for start, rows in frame.groupby("start", sort=False):
            (line,) = axes.plot(rows["V"], rows[column], label=f"{name}{start} start")
            line.set(color=color, linestyle=_LINES[str(start)], marker=marker)
    axes.set(xscale="log", xlabel="V over its default")
    axes.set(ylabel=ylabel, title=f"{system}: {what}")
    if what == "time":
        draw_bound(axes, least, "cannot be beaten within the constraints")
    if what == "constraints":
        draw_limit(axes, 1.0, "target and budget")

"""The figures of the paper's Section VII, and one on the lower bound.

A figure is a function of the options and a system, which `fl-edge reproduce` calls for each system.
It lists the policies that run there, and turns their `Comparison` into panels and rows of a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import tyro
from scipy.special import stdtrit

from fl_edge_env import Scenario
from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import superscripts
from policies.benchmark.status import OK
from policies.benchmark.summary import by_policy
from policies.report.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_average,
    draw_bound,
    draw_energy,
    draw_limit,
    draw_time,
)
from policies.report.styles import looks
from train_fl.commands.options import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from policies.report.figures import Panel

# Time that LROA saves relative to other policies, as the paper states it [%].
PAPER_SAVINGS = {
    "cifar10": {"Uni-D": 20.8, "Uni-S": 50.1},
    "femnist": {"Uni-D": 15.3, "Uni-S": 49.9},
}
# The values of mu among which the one with these savings is searched; 1 is the default.
MU_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
PAPER_MU = {"femnist": (0.3, 0.5, 5.0, 10.0)}
# Least final accuracy for each K [%].
PAPER_ACCURACY = {"cifar10": {2: 64.0, 4: 76.0, 6: 77.0}, "femnist": {2: 80.0, 4: 81.0, 6: 82.0}}
# A point of the grid of mu and nu.
Point: TypeAlias = tuple[float, float]
# Without training: the most energy of the worst device, relative to its budget.
_MOST_ENERGY = 1.05
_POLICIES = {"LROA": "lroa", "Uni-D": "uni-d", "Uni-S": "uni-s", "DivFL": "divfl"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """A figure, and its options."""

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIGURE")]
    """baselines: LROA, Uni-D, Uni-S, with training also DivFL
    (Figures 1, 2);
    lambda-sweep: LROA for different lambda (Figure 3);
    v-sweep: energy and objective for different V (Figure 4);
    k-sweep: LROA and Uni-D for different K, each at its best
    mu and nu (Figures 5, 6);
    bound: LROA's distance from the lower bound."""
    scenarios: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = (
        "cifar10",
        "femnist",
    )
    """Scenarios, each a row of panels. With --train also the
    data sets."""
    train: bool = False
    """Train real models. Only the digits need no download."""
    seeds: Annotated[int | None, shown("INT", "5 with training, 30 without")] = None
    """Number of seeds."""
    rounds: Annotated[int | None, shown("INT", "the scenario's")] = None
    """Number of rounds."""
    mu: Annotated[
        tuple[float, ...] | None, shown("FLOAT ...", "the paper's, or 0.1 1 10 for k-sweep")
    ] = None
    """Scale factors of lambda, for lambda-sweep and k-sweep."""
    nu: Annotated[tuple[float, ...] | None, shown("FLOAT ...", "powers of ten")] = None
    """Scale factors of V, for v-sweep, k-sweep and bound."""

    def system(self, name: str, **fields: Any) -> Scenario:
        """A preset with the requested number of rounds and other fields."""
        rounds = {} if self.rounds is None else {"num_rounds": self.rounds}
        return Scenario.preset(name, **rounds | fields)


class Curve(NamedTuple):
    """A policy, by its name, on a scenario, under a label."""

    label: str
    policy: str
    scenario: Scenario


class Drawn(NamedTuple):
    """Results of a system: panels of the figure, their data, and rows of the table."""

    panels: list[Panel]
    data: pd.DataFrame
    rows: list[dict[str, str]]  # by column
    finding: str = ""  # printed below the table


class Figure(NamedTuple):
    """The part of a figure on one system: its curves, and a function that draws their results."""

    title: str  # of its table
    comment: str  # below its table
    curves: list[Curve]
    draw: Callable[[Comparison], Drawn]
    bounded: bool = False  # whether its curves are measured against the bounds


def baselines(options: Options, name: str) -> Figure:
    """LROA, Uni-D and Uni-S; with training also DivFL, without also LROA and Uni-D at other mu."""
    labels = [label for label in _POLICIES if options.train or label != "DivFL"]
    curves = [Curve(label, _POLICIES[label], options.system(name)) for label in labels]
    if not options.train and name in PAPER_SAVINGS:
        curves += [
            Curve(f"{label} {mu:g}", _POLICIES[label], options.system(name, mu=mu))
            for mu in MU_GRID[:-1]
            for label in ("LROA", "Uni-D")
        ]

    def draw(results: Comparison) -> Drawn:
        time = {label: total_time(runs) for label, runs in by_policy(results.summary)}
        stated = paper_savings(name)
        where = matching_mu(name, time)
        rows = []
        for saver, other in (*stated, *[("LROA", "DivFL")] * options.train):
            row = {
                "scenario": name,
                "policy": saver,
                "against": other,
                "paper": stated.get((saver, other), ""),
                "ours, μ = 1": f"{100 * (1 - time[saver] / time[other]):.1f}",
            }
            if not options.train:
                row["the paper's at μ ="] = where.get(other, "") if saver == "LROA" else ""
            rows.append(row)
        rounds = results.rounds[results.rounds["policy"].isin(labels)]
        drawn = panels(rounds, name, trained=options.train)
        finding = order_found(name, "fastest", time, ("LROA", "Uni-D", "Uni-S"))
        return Drawn(drawn, curve_table(rounds), rows, finding)

    comment = (
        "(Uni-D against Uni-S: implied by the paper's two numbers.) The paper does not print "
        "lambda0. A smaller lambda saves more time at a larger sampling error."
    )
    return Figure("Time saved, %", comment, curves, draw)


def order_found(name: str, what: str, values: Mapping[str, float], stated: Sequence[str]) -> str:
    """The order of some values on a system, least first, and whether the paper has the same."""
    order = sorted(stated, key=lambda label: values[label])
    papers = "as in the paper" if order == [*stated] else f"in the paper {', '.join(stated)}"
    found = f"{name}, {what} first: {', '.join(order)}{f'; {papers}' * (name in PAPER_SAVINGS)}."
    return superscripts(found)


def matching_mu(name: str, time: Mapping[str, float]) -> dict[str, str]:
    """The mu at which LROA saves what the paper states, by interpolation of total times [s]."""
    found = {}
    for other, stated in PAPER_SAVINGS.get(name, {}).items():
        ours, theirs = (
            np.array([time.get(f"{label} {mu:g}", time[label]) for mu in MU_GRID])
            for label in ("LROA", other)  # Uni-S knows no mu
        )
        saved = 100 * (1 - ours / theirs)
        # It falls as mu rises.
        inside = saved[-1] <= stated <= saved[0]
        mu = np.exp(np.interp(-stated, -saved, np.log(MU_GRID)))
        found[other] = f"{mu:.2f}" if inside else "–"
    return found


def paper_savings(name: str) -> dict[tuple[str, str], str]:
    """Savings that the paper states, or in brackets implies, for pairs of policies."""
    stated = PAPER_SAVINGS.get(name)
    if stated is None:
        return dict.fromkeys((("LROA", "Uni-D"), ("LROA", "Uni-S"), ("Uni-D", "Uni-S")), "")
    implied = 100 * (1 - (100 - stated["Uni-S"]) / (100 - stated["Uni-D"]))
    savings = {("LROA", other): f"{value}" for other, value in stated.items()}
    return savings | {("Uni-D", "Uni-S"): f"({implied:.1f})"}


def lambda_sweep(options: Options, name: str) -> Figure:
    """LROA under different lambda."""
    values = options.mu or PAPER_MU.get(name, (1.0, 10.0, 50.0, 100.0))
    curves = [Curve(f"μ = {mu:g}", "lroa", options.system(name, mu=mu)) for mu in values]

    def draw(results: Comparison) -> Drawn:
        rows = [
            {
                "scenario": name,
                "mu": label,
                "total time, d": f"{total_time(runs) / 86_400:.4g}",
                "sampling error": f"{runs['sampling_error'].mean():.4f}",
            }
            for label, runs in by_policy(results.summary)
        ]
        drawn = panels(results.rounds, f"LROA on {name}", trained=options.train)
        return Drawn(drawn, curve_table(results.rounds), rows)

    comment = (
        "Paper: the total time grows with lambda, and so does the accuracy; a small lambda "
        "makes training volatile, because the sampling error is larger."
    )
    return Figure("LROA under different lambda", comment, curves, draw)


def v_sweep(options: Options, name: str) -> Figure:
    """Energy and objective of LROA under different V."""
    values = options.nu or (1e3, 1e4, 1e5, 1e6)
    budget = options.system(name).energy_budget_j.mean()
    curves = [Curve(f"ν = {nu:.3g}", "lroa", options.system(name, nu=nu)) for nu in values]

    def draw(results: Comparison) -> Drawn:
        runs_of = dict(by_policy(results.summary))
        rows = [
            {
                "scenario": name,
                "nu": superscripts(label),
                "energy, J": f"{runs['energy_ratio'].mean() * budget:.4g}",
                "budget, J": f"{budget:.4g}",
                "objective, s": f"{runs['mean_objective'].mean():.6g}",
            }
            for label, runs in runs_of.items()
        ]
        drawn = _titled((_draw_expected_energy, _draw_penalty), results.rounds, f"LROA on {name}")
        objective = {label: runs["mean_objective"].mean() for label, runs in runs_of.items()}
        stated = [label for _, label in sorted(zip(values, objective, strict=True), reverse=True)]
        finding = order_found(name, "smallest objective", objective, stated)
        return Drawn(drawn, curve_table(results.rounds), rows, finding)

    comment = (
        "Paper: with a larger V the energy approaches the budget (15 J and 5 J) more slowly, and "
        "the objective is smaller. The objective is the sum over devices."
    )
    return Figure("LROA under different V", comment, curves, draw)


def _draw_expected_energy(axes: Axes, rounds: pd.DataFrame) -> None:
    draw_average(axes, rounds, "energy_ratio")
    draw_limit(axes, 1.0, "budget")
    axes.set(ylabel="expected energy / budget", title="Expected energy")


def _draw_penalty(axes: Axes, rounds: pd.DataFrame) -> None:
    draw_average(axes, rounds, "penalty")
    axes.set(ylabel="time-average objective [s]", title="Objective")


def k_sweep(options: Options, name: str) -> Figure:
    """LROA and Uni-D for different K, each at the fastest mu and nu that is good enough."""
    every = list(itertools.product(PAPER_ACCURACY["cifar10"], ("LROA", "Uni-D")))
    grid = list(itertools.product(options.mu or (0.1, 1.0, 10.0), options.nu or (1e4, 1e5, 1e6)))
    curves = {
        (size, policy, mu, nu): Curve(
            f"{policy}, K = {size}, μ = {mu:g}, ν = {nu:.3g}",
            _POLICIES[policy],
            options.system(name, cohort_size=size, mu=mu, nu=nu),
        )
        for size, policy in every
        for mu, nu in grid
    }
    quality_of = "final accuracy" if options.train else "energy of the worst device"

    def draw(results: Comparison) -> Drawn:
        summaries = dict(by_policy(results.summary))
        rounds_of = dict(by_policy(results.rounds))
        chosen = []
        rows = []
        for size, policy in every:
            runs = {(mu, nu): summaries[curves[size, policy, mu, nu].label] for mu, nu in grid}
            least = PAPER_ACCURACY.get(name, {}).get(size, 0.0) if options.train else None
            (mu, nu), quality, good = select(runs, least)
            best = curves[size, policy, mu, nu].label
            rows.append(
                {
                    "scenario": name,
                    "policy": policy,
                    "K": str(size),
                    "mu": f"{mu:g}",
                    "nu": superscripts(f"{nu:.3g}"),
                    "total time, d": f"{total_time(summaries[best]) / 86_400:.4g}",
                    quality_of: f"{quality:.4g}{'' if good else '*'}",
                }
            )
            status = OK if good else "not good enough"
            chosen.append(rounds_of[best].assign(status=status, short=f"{policy}, K = {size}"))
        rounds = pd.concat(chosen, ignore_index=True)
        shown = rounds.assign(policy=rounds["short"])
        return Drawn(panels(shown, name, trained=options.train), curve_table(rounds), rows)

    comment = (
        "* No point is good enough: this is the nearest. Paper: LROA beats Uni-D for every K; a "
        "larger K takes longer and is more accurate. The noise power in B/K is the same for all K."
    )
    title = f"Fastest point of the grid with a good enough {quality_of}"
    return Figure(title, comment, [*curves.values()], draw)


def select(
    summaries: Mapping[Point, pd.DataFrame], least_accuracy: float | None = None
) -> tuple[Point, float, bool]:
    """Find the fastest point that is good enough, or else the one nearest to it, and its quality.

    The quality is the final accuracy [%] if a `least_accuracy` is given. Otherwise it is the worst
    device's energy over its budget, at most `_MOST_ENERGY`.
    """
    means = {point: runs.mean(numeric_only=True) for point, runs in summaries.items()}
    if least_accuracy is None:
        quality = {point: mean["worst_energy_ratio"] for point, mean in means.items()}
        lack = {point: value - _MOST_ENERGY for point, value in quality.items()}
    else:
        quality = {point: 100 * mean["final_accuracy"] for point, mean in means.items()}
        lack = {point: least_accuracy - value for point, value in quality.items()}
    good = [point for point, value in lack.items() if value <= 0]
    if good:
        best = min(good, key=lambda point: means[point]["total_time"])
    else:
        best = min(lack, key=lambda point: lack[point])
    return best, quality[best], bool(good)


def bound(options: Options, name: str) -> Figure:
    """LROA's objective above the lower bound, queues and energy for different V."""
    values = options.nu or (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
    # nu does not change the bounds.
    curves = [Curve(f"{nu:.3g}", "lroa", options.system(name, nu=nu)) for nu in values]

    def draw(results: Comparison) -> Drawn:
        data = []
        rows = []
        least = late_rounds(results.bounds)["bound"].mean()
        for nu, (_, rounds) in zip(values, by_policy(results.rounds), strict=True):
            late = late_rounds(rounds)
            gap = 100 * (late["priced_objective"].mean() / least - 1)
            queue = late["mean_queue"].mean()
            energy = rounds.groupby("seed")["worst_energy_ratio"].last().mean()
            data.append({"nu": nu, "gap": gap, "queue": queue, "energy": energy})
            rows.append(
                {
                    "scenario": name,
                    "nu": superscripts(f"{nu:.3g}"),
                    "above bound, %": f"{gap:.3f}",
                    "mean queue, J": f"{queue:.4g}",
                    "worst energy / budget": f"{energy:.4f}",
                }
            )
        frame = pd.DataFrame(data)
        drawn: list[Panel] = [
            partial(_draw_against_nu, frame=frame, column=column, title=f"LROA on {name}")
            for column in _LABELS
        ]
        return Drawn(drawn, frame.assign(bound=least), rows)

    comment = (
        "Distance and queue are means over the second half of the rounds. The objective is "
        "priced, so that the bound holds for every V. The theory bounds the distance by C/V, and "
        "the queues grow with V."
    )
    return Figure("LROA and the lower bound", comment, curves, draw, bounded=True)


_LABELS = {
    "gap": "objective above the bound [%]",
    "queue": "mean queue [J]",
    "energy": "worst device's energy / budget",
}


def _draw_against_nu(axes: Axes, frame: pd.DataFrame, column: str, title: str) -> None:
    """A quantity over nu; the axis of the queue is logarithmic as well."""
    axes.plot(frame["nu"], frame[column], color=looks(["LROA"])["LROA"].color, marker="o")
    axes.set(xscale="log", xlabel="ν", ylabel=_LABELS[column], title=title)
    if column == "queue":
        axes.set_yscale("log")
    elif column == "gap":
        draw_bound(axes, 0.0)
    else:
        draw_limit(axes, 1.0, "budget")


def panels(rounds: pd.DataFrame, name: str, *, trained: bool) -> list[Panel]:
    """The paper's two panels of accuracy, or time and energy if nothing is trained."""
    if trained:
        return _titled((draw_accuracy_over_time, draw_accuracy_over_rounds), rounds, name)
    return _titled((draw_time, draw_energy), rounds, name)


def _titled(
    draws: Sequence[Callable[[Axes, pd.DataFrame], None]], rounds: pd.DataFrame, name: str
) -> list[Panel]:
    """Panels with the scenario in their titles."""

    def titled(axes: Axes, draw: Callable[[Axes, pd.DataFrame], None]) -> None:
        draw(axes, rounds)
        axes.set_title(f"{name}: {axes.get_title()}")

    return [partial(titled, draw=draw) for draw in draws]


def curve_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """The data of the curves: for each policy and round the mean over seeds of each quantity.

    Columns `*_half_width` have half the width of Student's 95 % interval, NaN for a single seed.
    """
    names = [
        "elapsed_time",
        "energy_ratio",
        "spent_ratio",
        "penalty",
        "sampling_error",
        "train_loss",
        "test_loss",
        "test_accuracy",
    ]
    groups = rounds.groupby(["policy", "round"], sort=False)[[n for n in names if n in rounds]]
    count = groups.count()
    quantile = count.map(lambda n: stdtrit(max(n - 1, 1), 0.975))
    half = groups.std().div(np.sqrt(count)).mul(quantile)
    return groups.mean().join(half.add_suffix("_half_width")).reset_index()


def late_rounds(table: pd.DataFrame) -> pd.DataFrame:
    """The second half of the rounds, when the queues have filled."""
    late: pd.DataFrame = table[table["round"] > table["round"].max() / 2]
    return late


def total_time(runs: pd.DataFrame) -> float:
    """Mean over seeds of the time of all rounds [s]."""
    return float(runs["total_time"].mean())

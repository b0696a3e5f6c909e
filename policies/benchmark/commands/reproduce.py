"""Reproducing the figures of the paper's Section VII, and one on each bound."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from rich.console import Console

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import writable_folder
from policies.benchmark.commands.experiment import (
    Experiment,
    Setting,
    new_table,
    panels,
    titled,
    total_time,
)
from policies.benchmark.commands.folder_lock import only_one
from policies.benchmark.commands.tradeoff import Tradeoff
from policies.benchmark.commands.training import MakeTraining
from policies.benchmark.evaluation import summarise
from policies.benchmark.figures import draw_expected_energy, draw_penalty
from policies.benchmark.tables import curve_table

# What the paper states: time that LROA saves against Uni-D and Uni-S [%].
PAPER_SAVINGS = {"cifar10": (20.8, 50.1), "femnist": (15.3, 49.9)}
# Where the mu that gives these is looked for.
MU_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
PAPER_MU = {"femnist": (0.3, 0.5, 5.0, 10.0)}
# Least final accuracy for each K [%].
PAPER_ACCURACY = {
    "cifar10": {2: 64.0, 4: 76.0, 6: 77.0},
    "femnist": {2: 80.0, 4: 81.0, 6: 82.0},
}
SYSTEM_SIDE_RULE = (
    " Without accuracies the rule selects by energy instead; for larger K uniform sampling draws "
    "each device so often that no frequency meets the budget."
)


@dataclass(frozen=True)
class Baselines(Experiment):
    """LROA against Uni-D, Uni-S and DivFL (the paper's Figures 1 and 2)."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Draw accuracy over time and rounds, or time and energy without training."""
        grid, data = [], {}
        columns = ["scenario", "policy", "against", "paper", "ours, μ = 1"]
        columns += [] if self.train else ["the paper's at μ ="]
        table = new_table("Time saved, %", *columns)
        for name in self.scenarios:
            scenario = self.scenario(name)
            labels = {"LROA": "lroa", "Uni-D": "uni-d", "Uni-S": "uni-s", "DivFL": "divfl"}
            settings = [Setting(label, policy, scenario) for label, policy in labels.items()]
            runs = self.collect(name, settings, console, make_training)
            rounds = pd.concat(runs.values(), ignore_index=True)
            grid.append(panels(rounds, name, trained=self.train))
            data[name] = curve_table(rounds)
            time = {label: total_time(run) for label, run in runs.items()}
            where = {} if self.train else self.matching_mu(name, console, make_training, time)
            for (saver, other), stated in paper_savings(name).items():
                saved = 100 * (1 - time[saver] / time[other])
                extra = [] if self.train else [where.get((saver, other), "")]
                table.add_row(name, saver, other, stated, f"{saved:.1f}", *extra)
        self.save("baselines", grid, data)
        console.print(table)
        console.print(
            "(Uni-D against Uni-S: what the paper's two numbers imply.) The order is the paper's, "
            "and the gain from resources, Uni-D against Uni-S, is close to it. The gain from "
            "sampling, LROA against Uni-D, is smaller here. It depends on lambda: the paper "
            "describes lambda0 without printing it, and a smaller lambda saves more time at a "
            "larger sampling error (see lambda-sweep)."
        )

    def matching_mu(
        self, name: str, console: Console, make_training: MakeTraining, time: dict[str, float]
    ) -> dict[tuple[str, str], str]:
        """The mu at which LROA saves what the paper states, by interpolation over a grid of mu.

        Parameters
        ----------
        name : str
            Of the system.
        console, make_training
            As for `run`.
        time : dict
            Total time of each policy at mu = 1 [s]; that of Uni-S does not depend on mu.
        """
        if name not in PAPER_SAVINGS:
            return {}
        policies = {"LROA": "lroa", "Uni-D": "uni-d"}
        settings = [
            Setting(f"{label} {mu:g}", policy, self.scenario(name, mu=mu))
            for mu in MU_GRID
            for label, policy in policies.items()
        ]
        runs = self.collect(name, settings, console, make_training, ", other mu")
        ours = [total_time(runs[f"LROA {mu:g}"]) for mu in MU_GRID]
        others = {
            "Uni-D": [total_time(runs[f"Uni-D {mu:g}"]) for mu in MU_GRID],
            "Uni-S": [time["Uni-S"]] * len(MU_GRID),
        }
        found = {}
        for (other, theirs), stated in zip(others.items(), PAPER_SAVINGS[name], strict=True):
            saved = 100 * (1 - np.array(ours) / np.array(theirs))
            # It falls as mu rises.
            inside = saved[-1] <= stated <= saved[0]
            mu = np.exp(np.interp(-stated, -saved, np.log(MU_GRID)))
            found["LROA", other] = f"{mu:.2f}" if inside else "–"
        return found


def paper_savings(name: str) -> dict[tuple[str, str], str]:
    """What the paper states or implies for each pair of policies, empty where it says nothing."""
    stated = {("LROA", "Uni-D"): "", ("LROA", "Uni-S"): "", ("Uni-D", "Uni-S"): ""}
    if name in PAPER_SAVINGS:
        against_d, against_s = PAPER_SAVINGS[name]
        implied = 100 * (1 - (100 - against_s) / (100 - against_d))
        values = (f"{against_d}", f"{against_s}", f"({implied:.1f})")
        stated = dict(zip(stated, values, strict=True))
    return stated | {("LROA", "DivFL"): ""}


@dataclass(frozen=True)
class LambdaSweep(Experiment):
    """LROA under different lambda (the paper's Figure 3)."""

    mu: tuple[float, ...] | None = None
    """Scale factors of lambda; the paper's by default."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Draw accuracy over time, or time and sampling error without training."""
        grid, data = [], {}
        table = new_table(
            "LROA under different lambda", "scenario", "mu", "total time, d", "sampling error"
        )
        for name in self.scenarios:
            values = self.mu or PAPER_MU.get(name, (1.0, 10.0, 50.0, 100.0))
            settings = [Setting(f"μ = {mu:g}", "lroa", self.scenario(name, mu=mu)) for mu in values]
            runs = self.collect(name, settings, console, make_training)
            rounds = pd.concat(runs.values(), ignore_index=True)
            grid.append(panels(rounds, f"LROA on {name}", trained=self.train))
            data[name] = curve_table(rounds)
            for label, run in runs.items():
                error = run["sampling_error"].mean()
                table.add_row(name, label, f"{total_time(run) / 86_400:.4g}", f"{error:.4f}")
        self.save("lambda", grid, data)
        console.print(table)
        console.print(
            "Paper: the total time grows with lambda, and so does the accuracy; a small lambda "
            "makes the training volatile. The sampling error is what drives the latter."
        )


@dataclass(frozen=True)
class VSweep(Experiment):
    """Energy and objective under different V (the paper's Figure 4)."""

    nu: tuple[float, ...] = (1e3, 1e4, 1e5, 1e6)
    """Scale factors of V."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Draw time-average energy and objective over rounds."""
        grid, data = [], {}
        table = new_table(
            "LROA under different V", "scenario", "nu", "energy, J", "budget, J", "objective, s"
        )
        for name in self.scenarios:
            settings = [
                Setting(f"ν = {nu:.3g}", "lroa", self.scenario(name, nu=nu)) for nu in self.nu
            ]
            runs = self.collect(name, settings, console, make_training)
            rounds = pd.concat(runs.values(), ignore_index=True)
            grid.append(
                [
                    titled(partial(draw_expected_energy, rounds=rounds), f"LROA on {name}"),
                    titled(partial(draw_penalty, rounds=rounds), f"LROA on {name}"),
                ]
            )
            data[name] = curve_table(rounds)
            budget = self.scenario(name).energy_budget_j.mean()
            for label, run in runs.items():
                energy = run["energy_ratio"].mean() * budget
                objective = run["penalty"].mean()
                table.add_row(name, label, f"{energy:.4g}", f"{budget:.4g}", f"{objective:.6g}")
        self.save("v", grid, data)
        console.print(table)
        console.print(
            "Paper: a larger V approaches the budget (15 J and 5 J) more slowly and has the "
            "smaller objective. Ours agrees; for devices with unequal data the mean stays below "
            "the budget, because the smallest cannot spend theirs."
        )


@dataclass(frozen=True)
class KSweep(Experiment):
    """LROA and Uni-D for different K, each at its best mu and nu (the paper's Figures 5 and 6)."""

    cohort_sizes: tuple[int, ...] = (2, 4, 6)
    """Numbers of draws K."""
    mu: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Scale factors of lambda to try."""
    nu: tuple[float, ...] = (1e4, 1e5, 1e6)
    """Scale factors of V to try."""
    accuracy: tuple[float, ...] | None = None
    """With training: final accuracy [%] that a run must reach, for each K; default: the paper's."""
    energy: float = 1.05
    """Without training: the most energy that the worst device may take, over its budget."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Select, for each policy and K, the fastest point of the grid that is good enough."""
        grid, data = [], {}
        rule = "final accuracy" if self.train else "energy of the worst device"
        table = new_table(
            f"Fastest point of the grid whose {rule} is good enough",
            *("scenario", "policy", "K", "mu", "nu", "total time, d", rule),
        )
        for name in self.scenarios:
            chosen = []
            limits = PAPER_ACCURACY.get(name, {})
            if self.accuracy is not None:
                if len(self.accuracy) != len(self.cohort_sizes):
                    raise ValueError(
                        f"accuracy must be one number for each of the {len(self.cohort_sizes)} "
                        f"cohort_sizes, got {len(self.accuracy)}"
                    )
                limits = dict(zip(self.cohort_sizes, self.accuracy, strict=True))
            for size in self.cohort_sizes:
                for label, policy in (("LROA", "lroa"), ("Uni-D", "uni-d")):
                    points = list(itertools.product(self.mu, self.nu))
                    settings = [
                        Setting(
                            f"{mu:g}, {nu:.3g}",
                            policy,
                            self.scenario(name, cohort_size=size, mu=mu, nu=nu),
                        )
                        for mu, nu in points
                    ]
                    runs = self.collect(
                        name, settings, console, make_training, f", K = {size}, {label}"
                    )
                    best, quality, good = self.select(limits.get(size, 0.0), runs)
                    mu, nu = points[list(runs).index(best)]
                    days = total_time(runs[best]) / 86_400
                    numbers = (f"{mu:g}", f"{nu:.3g}", f"{days:.4g}", f"{quality:.4g}")
                    mark = "" if good else "*"
                    table.add_row(name, label, str(size), *numbers[:3], numbers[3] + mark)
                    curve = f"{label}, K = {size}, μ = {mu:g}, ν = {nu:.3g}"
                    chosen.append(runs[best].assign(policy=curve, feasible=float(good)))
            rounds = pd.concat(chosen, ignore_index=True)
            grid.append(panels(rounds, name, trained=self.train))
            data[name] = curve_table(rounds)
        self.save("k", grid, data)
        console.print(table)
        console.print(
            "* No point of the grid is good enough: this one comes nearest. Paper: LROA beats "
            "Uni-D for every K, and a larger K takes more time and reaches a higher accuracy."
            + ("" if self.train else SYSTEM_SIDE_RULE)
        )

    def select(
        self, least_accuracy: float, runs: dict[str, pd.DataFrame]
    ) -> tuple[str, float, bool]:
        """Find the fastest run that is good enough, or else the nearest to it, and its quality."""
        summaries = {label: summarise(run).mean(numeric_only=True) for label, run in runs.items()}
        if self.train:
            quality = {label: 100 * s["final_accuracy"] for label, s in summaries.items()}
            lack = {label: least_accuracy - value for label, value in quality.items()}
        else:
            quality = {label: s["worst_energy_ratio"] for label, s in summaries.items()}
            lack = {label: value - self.energy for label, value in quality.items()}
        good = [label for label, value in lack.items() if value <= 0]
        if good:
            best = min(good, key=lambda label: summaries[label]["total_time"])
        else:
            best = min(lack, key=lambda label: lack[label])
        return best, quality[best], bool(good)


@dataclass(frozen=True)
class Bound(Experiment):
    """How near LROA comes to the lower bound: objective, queues and energy against V."""

    nu: tuple[float, ...] = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
    """Scale factors of V."""

    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Draw objective above the bound, mean queue and excess energy against nu."""
        grid, data = [], {}
        table = new_table(
            "LROA and the lower bound",
            *("scenario", "nu", "above bound, %", "mean queue, J", "worst energy / budget"),
        )
        for name in self.scenarios:
            settings = [Setting(f"{nu:.3g}", "lroa", self.scenario(name, nu=nu)) for nu in self.nu]
            runs = self.collect(name, settings, console, make_training, priced=True)
            bounds = self.bounds(name, self.scenario(name), console, make_training)
            least = bounds[bounds["round"] > bounds["round"].max() / 2]["bound"].mean()
            rows = []
            for nu, run in zip(self.nu, runs.values(), strict=True):
                # The second half: what is left when the queues have filled.
                late = run[run["round"] > run["round"].max() / 2]
                rows.append(
                    {
                        "nu": nu,
                        "gap": 100 * (late["priced_objective"].mean() / least - 1),
                        "queue": late["mean_queue"].mean(),
                        "energy": run.groupby("seed")["worst_energy_ratio"].last().mean(),
                    }
                )
                last = rows[-1]
                numbers = (f"{last['gap']:.3f}", f"{last['queue']:.4g}", f"{last['energy']:.4f}")
                table.add_row(name, f"{nu:.3g}", *numbers)
            frame = pd.DataFrame(rows)
            data[name] = frame.assign(bound=least)
            grid.append(
                [
                    partial(draw_against_nu, frame=frame, column="gap", title=f"LROA on {name}"),
                    partial(draw_against_nu, frame=frame, column="queue", title=f"LROA on {name}"),
                    partial(draw_against_nu, frame=frame, column="energy", title=f"LROA on {name}"),
                ]
            )
        self.save("bound", grid, data)
        console.print(table)
        console.print(
            "Distance and queue are means over the second half of the rounds. The objective is "
            "priced: energy beyond the budget counts at its price, so that the bound holds for "
            "every V. The theory bounds the distance by C/V and lets the queues grow with V; with "
            "a finite number of rounds a large V leaves the budget exceeded."
        )


LABELS = {
    "gap": "priced objective above the bound [%]",
    "queue": "mean queue [J]",
    "energy": "worst device's energy / budget",
}


def draw_against_nu(axes: Axes, frame: pd.DataFrame, column: str, title: str) -> None:
    """A quantity against nu, the queue on two logarithmic axes."""
    axes.plot(frame["nu"], frame[column], "o-", color="#0072B2")
    axes.set(xscale="log", xlabel="ν", ylabel=LABELS[column], title=title)
    if column == "queue":
        axes.set(yscale="log")
    else:
        level, label = (0.0, "cannot be beaten") if column == "gap" else (1.0, "budget")
        axes.axhline(level, color="black", linewidth=1, zorder=1, label=label)
        axes.legend(fontsize="small", framealpha=0.6)


Options: TypeAlias = Baselines | LambdaSweep | VSweep | KSweep | Bound | Tradeoff


def reproduce(experiment: Experiment, console: Console, make_training: MakeTraining) -> None:
    """Run an experiment, draw its figure and print its table.

    Parameters
    ----------
    experiment : Experiment
        What to run, on which systems, and how.
    console : rich.console.Console
        Where to print.
    make_training : callable
        Prepares training where the experiment asks for it.

    Raises
    ------
    ValueError
        If an option is wrong, or another command is at work in the folder.
    ModuleNotFoundError
        If a package that the options need is not installed.
    JobsFailedError
        If a run has failed.
    """
    if experiment.seeds is not None:
        integer_at_least(1, "seeds", experiment.seeds)
    for field in dataclasses.fields(experiment):
        if getattr(experiment, field.name) == ():
            raise ValueError(f"{field.name} must be one or more, got none")
    with only_one(writable_folder(experiment.out)):
        experiment.run(console, make_training)
    console.print(f"Figures and data: {experiment.out}", soft_wrap=True)

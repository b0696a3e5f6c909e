"""The experiments of the paper's Section VII, one on the lower bound and one on Opportunistic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeAlias, get_args

import numpy as np
import pandas as pd

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.commands.reproduce import Curve, Drawn, Experiment
from policies.benchmark.evaluation import summarise
from policies.benchmark.experiment import Results
from policies.benchmark.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_bound,
    draw_energy,
    draw_expected_energy,
    draw_limit,
    draw_penalty,
    draw_time,
)
from policies.benchmark.status import OK
from policies.benchmark.styles import looks
from policies.benchmark.tables import curve_table
from policies.opportunistic import Opportunistic, Start
from policies.uniform import UniD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from policies.benchmark.figures import Panel

# What the paper states: time that LROA saves against Uni-D and Uni-S [%].
PAPER_SAVINGS = {"cifar10": (20.8, 50.1), "femnist": (15.3, 49.9)}
# Where the mu that gives these is looked for; 1 is the scenario's own.
MU_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
PAPER_MU = {"femnist": (0.3, 0.5, 5.0, 10.0)}
# Least final accuracy for each K [%].
PAPER_ACCURACY = {"cifar10": {2: 64.0, 4: 76.0, 6: 77.0}, "femnist": {2: 80.0, 4: 81.0, 6: 82.0}}
K_COMMENT = (
    "* No point of the grid is good enough: this one comes nearest. Paper: LROA beats "
    "Uni-D for every K, and a larger K takes more time and reaches a higher accuracy."
)
SYSTEM_SIDE_RULE = (
    " Without accuracies the rule selects by energy instead; for larger K uniform sampling draws "
    "each device so often that no frequency meets the budget."
)
_AT_MU = "the paper's at μ ="
_POLICIES = {"LROA": "lroa", "Uni-D": "uni-d", "Uni-S": "uni-s", "DivFL": "divfl"}


@dataclass(frozen=True)
class Baselines(Experiment):
    """LROA against Uni-D, Uni-S and DivFL (the paper's Figures 1 and 2)."""

    stem: ClassVar[str] = "baselines"
    title: ClassVar[str] = "Time saved, %"
    comment: ClassVar[str] = (
        "(Uni-D against Uni-S: what the paper's two numbers imply.) The order is the paper's, "
        "and the gain from resources, Uni-D against Uni-S, is close to it. The gain from "
        "sampling, LROA against Uni-D, is smaller here. It depends on lambda: the paper "
        "describes lambda0 without printing it, and a smaller lambda saves more time at a "
        "larger sampling error (see lambda-sweep)."
    )

    def curves(self, name: str) -> list[Curve]:
        """The four policies, and without training LROA and Uni-D at other mu."""
        curves = [Curve(label, policy, self.scenario(name)) for label, policy in _POLICIES.items()]
        if not self.train and name in PAPER_SAVINGS:
            curves += [
                Curve(f"{label} {mu:g}", _POLICIES[label], self.scenario(name, mu=mu))
                for mu in MU_GRID[:-1]
                for label in ("LROA", "Uni-D")
            ]
        return curves

    def draw(self, results: Results) -> Drawn:
        """Accuracy over time and rounds, or time and energy without training."""
        name = results.setting.name
        time = {label: total_time(run) for label, run in results.runs().items()}
        where = {} if self.train else matching_mu(name, time)
        rows = []
        for (saver, other), stated in paper_savings(name).items():
            saved = 100 * (1 - time[saver] / time[other])
            row = {"scenario": name, "policy": saver, "against": other, "paper": stated}
            row["ours, μ = 1"] = f"{saved:.1f}"
            rows.append(row if self.train else row | {_AT_MU: where.get((saver, other), "")})
        rounds = results.rounds[results.rounds["policy"].isin(_POLICIES)]
        return Drawn(panels(rounds, name, trained=self.train), curve_table(rounds), rows)


def matching_mu(name: str, time: Mapping[str, float]) -> dict[tuple[str, str], str]:
    """The mu at which LROA saves what the paper states, by interpolation of total times [s]."""
    found = {}
    for other, stated in zip(("Uni-D", "Uni-S"), PAPER_SAVINGS.get(name, ()), strict=False):
        times = [
            [time.get(f"{label} {mu:g}", time[label]) for mu in MU_GRID]  # Uni-S knows no mu
            for label in ("LROA", other)
        ]
        saved = 100 * (1 - np.array(times[0]) / np.array(times[1]))
        # It falls as mu rises.
        inside = saved[-1] <= stated <= saved[0]
        mu = np.exp(np.interp(-stated, -saved, np.log(MU_GRID)))
        found["LROA", other] = f"{mu:.2f}" if inside else "–"
    return found


def paper_savings(name: str) -> dict[tuple[str, str], str]:
    """Savings that the paper states or implies for each pair of policies, else empty."""
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

    stem: ClassVar[str] = "lambda"
    title: ClassVar[str] = "LROA under different lambda"
    comment: ClassVar[str] = (
        "Paper: the total time grows with lambda, and so does the accuracy; a small lambda "
        "makes the training volatile. The sampling error is what drives the latter."
    )

    mu: tuple[float, ...] | None = None
    """Scale factors of lambda; the paper's by default."""

    def curves(self, name: str) -> list[Curve]:
        """A curve for each mu."""
        values = self.mu or PAPER_MU.get(name, (1.0, 10.0, 50.0, 100.0))
        return [Curve(f"μ = {mu:g}", "lroa", self.scenario(name, mu=mu)) for mu in values]

    def draw(self, results: Results) -> Drawn:
        """Accuracy over time and rounds, or time and energy without training."""
        name = results.setting.name
        rows = [
            {
                "scenario": name,
                "mu": label,
                "total time, d": f"{total_time(run) / 86_400:.4g}",
                "sampling error": f"{run['sampling_error'].mean():.4f}",
            }
            for label, run in results.runs().items()
        ]
        drawn = panels(results.rounds, f"LROA on {name}", trained=self.train)
        return Drawn(drawn, curve_table(results.rounds), rows)


@dataclass(frozen=True)
class VSweep(Experiment):
    """Energy and objective under different V (the paper's Figure 4)."""

    stem: ClassVar[str] = "v"
    title: ClassVar[str] = "LROA under different V"
    comment: ClassVar[str] = (
        "Paper: a larger V approaches the budget (15 J and 5 J) more slowly and has the "
        "smaller objective. Ours agrees; for devices with unequal data the mean stays below "
        "the budget, because the smallest cannot spend theirs."
    )

    nu: tuple[float, ...] = (1e3, 1e4, 1e5, 1e6)
    """Scale factors of V."""

    def curves(self, name: str) -> list[Curve]:
        """A curve for each nu."""
        return [Curve(f"ν = {nu:.3g}", "lroa", self.scenario(name, nu=nu)) for nu in self.nu]

    def draw(self, results: Results) -> Drawn:
        """Time-average energy and objective over rounds."""
        name = results.setting.name
        budget = self.scenario(name).energy_budget_j.mean()
        rows = [
            {
                "scenario": name,
                "nu": label,
                "energy, J": f"{run['energy_ratio'].mean() * budget:.4g}",
                "budget, J": f"{budget:.4g}",
                "objective, s": f"{run['penalty'].mean():.6g}",
            }
            for label, run in results.runs().items()
        ]
        drawn: list[Panel] = [
            partial(_titled, draw=draw, rounds=results.rounds, name=f"LROA on {name}")
            for draw in (draw_expected_energy, draw_penalty)
        ]
        return Drawn(drawn, curve_table(results.rounds), rows)


@dataclass(frozen=True)
class KSweep(Experiment):
    """LROA and Uni-D for different K, each at its best mu and nu (the paper's Figures 5 and 6)."""

    stem: ClassVar[str] = "k"

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

    @property
    def title(self) -> str:  # type: ignore[override]
        """See `Experiment.title`."""
        return f"Fastest point of the grid whose {self._rule} is good enough"

    @property
    def comment(self) -> str:  # type: ignore[override]
        """See `Experiment.comment`."""
        return K_COMMENT + ("" if self.train else SYSTEM_SIDE_RULE)

    @property
    def _rule(self) -> str:
        return "final accuracy" if self.train else "energy of the worst device"

    def curves(self, name: str) -> list[Curve]:
        """Every point of the grid for each K and policy."""
        if self.accuracy is not None and len(self.accuracy) != len(self.cohort_sizes):
            raise ValueError(
                f"accuracy must be one number for each of the {len(self.cohort_sizes)} "
                f"cohort_sizes, got {len(self.accuracy)}"
            )
        return [
            Curve(
                f"{label}, K = {size}, μ = {mu:g}, ν = {nu:.3g}",
                _POLICIES[label],
                self.scenario(name, cohort_size=size, mu=mu, nu=nu),
            )
            for size in self.cohort_sizes
            for label in ("LROA", "Uni-D")
            for mu, nu in itertools.product(self.mu, self.nu)
        ]

    def draw(self, results: Results) -> Drawn:
        """The curve of the fastest point that is good enough, for each policy and K."""
        name, runs = results.setting.name, results.runs()
        limits = PAPER_ACCURACY.get(name, {})
        if self.accuracy is not None:
            limits = dict(zip(self.cohort_sizes, self.accuracy, strict=True))
        chosen, short, rows = [], {}, []
        for size, label in itertools.product(self.cohort_sizes, ("LROA", "Uni-D")):
            start = f"{label}, K = {size}, "
            grid = {point: run for point, run in runs.items() if point.startswith(start)}
            best, quality, good = self.select(limits.get(size, 0.0), grid)
            mu, nu = (part.split(" = ")[1] for part in best.removeprefix(start).split(", "))
            days = total_time(runs[best]) / 86_400
            row = {"scenario": name, "policy": label, "K": str(size), "mu": mu, "nu": nu}
            row |= {"total time, d": f"{days:.4g}", self._rule: f"{quality:.4g}"}
            rows.append(row if good else row | {self._rule: f"{quality:.4g}*"})
            short[best] = start.removesuffix(", ")
            chosen.append(runs[best].assign(status=OK if good else "not good enough"))
        rounds = pd.concat(chosen, ignore_index=True)
        shown = rounds.assign(policy=rounds["policy"].map(short))
        return Drawn(panels(shown, name, trained=self.train), curve_table(rounds), rows)

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
    """Distance of LROA from the lower bound: objective, queues and energy against V."""

    stem: ClassVar[str] = "bound"
    title: ClassVar[str] = "LROA and the lower bound"
    comment: ClassVar[str] = (
        "Distance and queue are means over the second half of the rounds. The objective is "
        "priced: energy beyond the budget counts at its price, so that the bound holds for "
        "every V. The theory bounds the distance by C/V and lets the queues grow with V; with "
        "a finite number of rounds a large V leaves the budget exceeded."
    )
    bounded: ClassVar[bool] = True

    nu: tuple[float, ...] = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
    """Scale factors of V."""

    def curves(self, name: str) -> list[Curve]:
        """A curve for each nu, which does not change the bounds."""
        return [Curve(f"{nu:.3g}", "lroa", self.scenario(name, nu=nu)) for nu in self.nu]

    def draw(self, results: Results) -> Drawn:
        """Objective above the bound, mean queue and excess energy against nu."""
        name = results.setting.name
        bounds, data, rows = results.bounds, [], []
        least = bounds[bounds["round"] > bounds["round"].max() / 2]["bound"].mean()
        for nu, run in zip(self.nu, results.runs().values(), strict=True):
            # The second half: what is left when the queues have filled.
            late = run[run["round"] > run["round"].max() / 2]
            gap = 100 * (late["priced_objective"].mean() / least - 1)
            queue = late["mean_queue"].mean()
            energy = run.groupby("seed")["worst_energy_ratio"].last().mean()
            data.append({"nu": nu, "gap": gap, "queue": queue, "energy": energy})
            row = {"scenario": name, "nu": f"{nu:.3g}", "above bound, %": f"{gap:.3f}"}
            row |= {"mean queue, J": f"{queue:.4g}", "worst energy / budget": f"{energy:.4f}"}
            rows.append(row)
        frame = pd.DataFrame(data)
        drawn: list[Panel] = [
            partial(_draw_against_nu, frame=frame, column=column, title=f"LROA on {name}")
            for column in _LABELS
        ]
        return Drawn(drawn, frame.assign(bound=least), rows)


_LABELS = {
    "gap": "objective above the bound [%]",
    "queue": "mean queue [J]",
    "energy": "worst device's energy / budget",
}


def _draw_against_nu(axes: Axes, frame: pd.DataFrame, column: str, title: str) -> None:
    """A quantity against nu, the queue on two logarithmic axes."""
    axes.plot(frame["nu"], frame[column], color=looks(["LROA"])["LROA"].color, marker="o")
    axes.set(xscale="log", xlabel="ν", ylabel=_LABELS[column], title=title)
    if column == "queue":
        axes.set_yscale("log")
    elif column == "gap":
        draw_bound(axes, 0.0)
    else:
        draw_limit(axes, 1.0, "budget")


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
_LINES = {"settled": "-", "cold": "--"}


@dataclass(frozen=True)
class Tradeoff(Experiment):
    """Opportunistic: time, queues and participation against V, and what its parts do."""

    stem: ClassVar[str] = "tradeoff"
    title: ClassVar[str] = "Opportunistic without its parts"
    comment: ClassVar[str] = (
        "The distance prices energy beyond the budget and missing participation, so that a "
        "variant that looks fast and keeps to neither stands far above the bound."
    )
    bounded: ClassVar[bool] = True

    scenarios: tuple[str, ...] = ("cifar10",)
    """Systems, a row of panels for each."""
    V: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Weights of time against the queues, in multiples of Opportunistic's own."""

    def _points(self) -> list[tuple[Start, float]]:
        return [(start, V) for start in get_args(Start) for V in self.V]

    def curves(self, name: str) -> list[Curve]:
        """A curve for each start and V, and one for each variant."""
        scenario = self.scenario(name)
        makers: dict[str, Callable[[Scenario], Policy]] = {
            f"{start}, {V:g}": partial(Opportunistic, start=start, step_scale=1.0 / V)
            for start, V in self._points()
        }
        return [Curve(label, make, scenario) for label, make in (makers | VARIANTS).items()]

    def draw(self, results: Results) -> Drawn:
        """Time, queue and participation against V; in the table the parts, away one by one."""
        name, bounds = results.setting.name, results.bounds
        means = {label: _means(run, bounds) for label, run in results.runs().items()}
        rows = [
            {"system": name, "variant": label, "mean round, s": f"{row['round_time']:.4g}"}
            | {column: f"{100 * row[share]:.1f}" for share, column in _SHARES.items()}
            for label, row in means.items()
            if label in VARIANTS
        ]
        frame = pd.DataFrame(
            [{"start": start, "V": V} | means[f"{start}, {V:g}"] for start, V in self._points()]
        )
        least = bounds.groupby("seed")["outcome_bound"].mean().mean()
        variants = pd.DataFrame([{"variant": label} | means[label] for label in VARIANTS])
        data = pd.concat([frame, variants], ignore_index=True).assign(bound=least)
        drawn: list[Panel] = [
            partial(_draw, frame=frame, what=what, system=name, least=least) for what in _TRADEOFF
        ]
        return Drawn(drawn, data, rows)


def _means(rounds: pd.DataFrame, bounds: pd.DataFrame) -> dict[str, float]:
    """Means over seeds of what a table or a panel tells."""
    table = summarise(rounds, bounds=bounds)
    late = rounds[rounds["round"] > rounds["round"].max() / 2]
    return {
        "round_time": float(rounds["round_time"].mean()),
        "queue": float(late["mean_queue"].mean()),
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


def panels(rounds: pd.DataFrame, name: str, *, trained: bool) -> list[Panel]:
    """The paper's pair of panels; without training time and energy stand for the accuracy."""
    pair = (draw_time, draw_energy)
    if trained:
        pair = (draw_accuracy_over_time, draw_accuracy_over_rounds)
    return [partial(_titled, draw=draw, rounds=rounds, name=name) for draw in pair]


def _titled(
    axes: Axes, draw: Callable[[Axes, pd.DataFrame], None], rounds: pd.DataFrame, name: str
) -> None:
    """A panel with the scenario in its title."""
    draw(axes, rounds)
    axes.set_title(f"{name}: {axes.get_title()}")


def total_time(rounds: pd.DataFrame) -> float:
    """Mean over seeds of the time of all rounds [s]."""
    return float(rounds.groupby("seed")["elapsed_time"].last().mean())


Options: TypeAlias = Baselines | LambdaSweep | VSweep | KSweep | Bound | Tradeoff

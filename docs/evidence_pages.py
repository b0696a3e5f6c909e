"""The pages' tables, from the stored files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_edge_env import Scenario
from fl_edge_env.features import Scaling
from fl_edge_env.scenario.presets import PRESETS
from fl_edge_env.tasks import TASKS
from policies.benchmark.intervals import mean_interval
from policies.report.ranking import mean_rank

ROOT = Path(__file__).parents[1]
PAGES = (
    *("README.md", "docs/results.md", "docs/environment.md", "docs/speed.md"),
    *("docs/train_an_agent.md", "docs/ranking.md"),
)


def standings(name: str) -> pd.DataFrame:
    """The rows of a stored leaderboard, by setting and scheduler."""
    table = pd.read_csv(ROOT / f"docs/leaderboards/{name}.csv")
    return table.set_index(["setting", "scheduler"])


def stored_text(name: str) -> str:
    """The stored output of a command."""
    return (ROOT / f"docs/evidence/{name}.txt").read_text(encoding="utf-8").strip("\n")


def task_rows(task: str) -> dict[str, list[str]]:
    """The cells of a frozen task's stored table, by policy: name, scores, difference, status."""
    lines = stored_text(f"task-{task}").split("\n")[1:]
    rows = [re.split(r"\s{2,}", line) for line in lines]
    return {row[0]: row for row in rows if len(row) > 1}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with its numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(" | ".join(line) for line in lines)


def paper_table() -> str:
    """LROA's savings: the paper's, ours, and the lambda at which they are equal [s]."""
    pattern = r"(cifar10|femnist) +LROA +(Uni-[DS])" + r" +([\d.]+)" * 3
    rows = []
    for name, other, paper, ours, mu in re.findall(pattern, stored_text("paper-baselines")):
        lambda_ = float(mu) * Scenario.preset(name).lambda_
        rows.append([f"{name}, against {other}", paper, ours, f"{lambda_:.0f}"])
    return markdown(["time saved by LROA", "paper, %", "ours, %", "matching λ, s"], rows)


def suite_table(*names: str) -> str:
    """In how many settings of suite-1 schedulers are ok, their mean ranks, and times.

    Times are compared in the settings in which a scheduler and Opportunistic are ok.
    """
    stored = standings("suite-1")
    # Of settings with training, the time to the target.
    times = stored["priced_time_to_target"].fillna(stored["priced_time"])
    times = times.where(stored["status"] == "ok").unstack("setting")
    ratios = times / times.loc["Opportunistic"]
    ok = times.count(axis="columns")
    rank = stored["rank"].groupby("scheduler").agg(mean_rank, policies=len(times))
    rows = []
    for name in sorted(names or times.index, key=lambda each: rank[each]):
        ratio = ratios.loc[name].dropna()
        mean = f"{np.exp(np.log(ratio).mean()):.2f}"
        span = f"{ratio.min():.2f}–{ratio.max():.2f}" if name != "Opportunistic" else "–"
        rows.append([name, f"{ok[name]}", f"{rank[name]:.1f}", mean, span])
    head = ["scheduler", f"ok, of {times.shape[1]}", "mean rank"]
    return markdown([*head, "priced time ÷ Opportunistic's, where ok", "range"], rows)


# Fields of presets, in the units of the heads; several numbers give a range.
_FIELDS: dict[str, Callable[[Scenario], Any]] = {
    "K": lambda system: system.cohort_size,
    "local epochs": lambda system: system.local_epochs,
    "p [W]": lambda system: [system.p_min, system.p_max],
    "noise in B/K [W]": lambda system: system.noise_power_w,
    "N": lambda system: system.num_devices,
    "rounds": lambda system: system.num_rounds,
    "B [MHz]": lambda system: system.bandwidth_hz / 1e6,
    "upload [Mbit]": lambda system: system.upload_bits / 1e6,
    "samples": lambda system: system.num_samples,
    "Gcycles/sample": lambda system: system.cycles_per_sample / 1e9,
    "f [GHz]": lambda system: [system.f_min / 1e9, system.f_max / 1e9],
    "budget [J]": lambda system: system.energy_budget_j,
    "mean gain": lambda system: system.mean_gain,
}


def _span(values: Any) -> str:
    """The least and the largest number with three digits, or the only one."""
    ends = [f"{float(f'{end:.3g}'):g}" for end in (np.min(values), np.max(values))]
    return "–".join(dict.fromkeys(ends))


def cell_table() -> str:
    """Status, priced time and rank of schedulers in the system board's cell."""
    stored = standings("system").loc["cell"]
    rows = []
    for name in ("Opportunistic", "LROA", "Quickest", "Uni-S"):
        one = stored.loc[name]
        shares = [f"{100 * one[each]:.0f} %" for each in ("lack", "excess", "spent_ratio")]
        rank = f"{one['rank']:.0f}" if one["status"] == "ok" else f"– ({one['status']})"
        rows.append([name, *shares, f"{one['priced_time'] / 86_400:.1f}", rank])
    head = ["scheduler", "lack", "excess", "energy of all", "priced time, d", "rank"]
    return markdown(head, rows)


def presets_table() -> str:
    """What all presets share, and a table of the fields in which they differ."""
    systems = [Scenario.preset(name) for name in PRESETS]
    columns = {head: [_span(of(each)) for each in systems] for head, of in _FIELDS.items()}
    shared = []
    rows: dict[tuple[str, ...], list[str]] = {}
    for head in list(columns):
        if len(set(columns[head])) == 1:
            name, _, unit = head.removesuffix("]").partition(" [")
            shared.append(f"{name} = {columns.pop(head)[0]} {unit}".rstrip())
    for preset, *cells in zip(PRESETS, *columns.values(), strict=True):
        rows.setdefault(tuple(cells), []).append(f"`{preset}`")
    table = markdown(["preset", *columns], [[", ".join(rows[row]), *row] for row in rows])
    return f"In all presets, {', '.join(shared)}.\n\n{table}"


def scale_table() -> str:
    """Times of a step and of decisions, and memory, by N."""
    lines = [line.strip("| ").split(" | ") for line in stored_text("scale").split("\n")]
    table = pd.DataFrame(lines[2:], columns=lines[0])
    rows = table["N"].isin(["100", "10,000", "1,000,000"]) & (table["B"] == "1")
    names = ["N", "step [ms]", "LROA [ms]", "Opportunistic [ms]", "memory [MB]"]
    return markdown(names, table.loc[rows, names].to_numpy().tolist())


_TASKS = {
    "Paper": "the paper's reward",
    "Longest": "a round's actual time",
    "Blind": "few gains are seen",
}


def scores_table() -> str:
    """Scores of a learner, LROA and Opportunistic on the frozen tasks."""
    rows = []
    for task, label in _TASKS.items():
        learner = "PPO with memory" if task == "Blind" else "PPO of SB3, shared network"
        scores = [_score(task.lower(), name) for name in (learner, "LROA", "Opportunistic")]
        rows.append([f"`FLEdge{task}-v0`: {label}", *scores])
    return markdown(["task", "PPO", "LROA", "Opportunistic"], rows)


def _score(task: str, name: str) -> str:
    """The stored score on held-out seeds, with its interval."""
    score = task_rows(task).get(name, ["–"] * 2)[1]
    return re.sub(r"(\S+) \[(\S+), (\S+)\]", r"\1<br>(\2–\3)", score)


def flower_output() -> str:
    """The first and last lines that README's Flower example prints."""
    lines = stored_text("flower").split("\n")
    rounds = [line for line in lines if re.match(r" *\d", line)]
    return "\n".join(["```text", *lines[:3], "…", rounds[-1], "```"])


# Agents that learn on digits: settings, environment, and Stable-Baselines3's steps in a round.
LEARNERS = {
    "rule": ("PPO's defaults", "`FLEdgeRule-v0`", 1),
    "sac": ("SAC's defaults", "`FLEdgeRule-v0`", 1),
    "flat": ("PPO's defaults", "`FLEdgeFlat-v0`", 1),
    "rows": ("PPO, tuned", "`BatchVecEnv`", 40),
}


def learning() -> pd.DataFrame:
    """Times and gap on digits by agent, training seed and rounds of training."""
    stored = pd.read_csv(ROOT / "docs/evidence/learning.csv")
    rows = []
    for name, runs in stored.groupby("policy", sort=False):
        found = re.fullmatch(r"(\w+)-(\d)(?:_(\d+)_steps)?", str(name))
        if found:
            whole = 16_384 if found[1] == "sac" else 53_248
            rounds = int(found[3]) // LEARNERS[found[1]][2] if found[3] else whole
            means = runs[["total_time", "gap"]].mean()
            priced = mean_interval(runs["priced_time"])
            rows.append((found[1], int(found[2]), rounds, *means, *priced))
    names = ["agent", "seed", "rounds", "time", "gap", "priced", "low", "high"]
    table = pd.DataFrame(rows, columns=names)
    order = ["agent", "seed", "rounds"]
    return table.drop_duplicates(order).sort_values(order)


def stored_means(name: str, columns: Sequence[str] = ("total_time", "gap")) -> pd.DataFrame:
    """Means of a stored comparison over its seeds, by policy."""
    table = pd.read_csv(ROOT / f"docs/evidence/{name}.csv")
    return table.groupby("policy", sort=False)[list(columns)].mean()


def learning_table() -> str:
    """What agents reach on digits after equal numbers of rounds."""
    table = learning()
    seconds = dict(re.findall(r"^(\w+-\d): (\d+) s", stored_text("learning"), re.MULTILINE))
    ends = 16_384, 53_248
    rows = []
    for agent, (algorithm, environment, steps) in LEARNERS.items():
        own = table[table["agent"] == agent]
        spent = float(seconds[f"{agent}-0"]) / own["rounds"].max() * ends[0]
        cells = [_reached(own[own["rounds"] == end]) for end in ends]
        rows.append([f"{algorithm}, {environment}", str(steps), f"{spent:.0f}", *cells])
    known = stored_means("learning").assign(time=lambda each: each["total_time"])
    rows += [[name, *"–––", _reached(known.loc[[name]])] for name in ("LROA", "Uni-D")]
    heads = [f"time [s] (gap) after {end:,} rounds" for end in ends]
    head = ["agent", "steps a round", f"processor [s], {ends[0]:,} rounds"]
    return markdown([*head, *heads], rows)


def _reached(runs: pd.DataFrame) -> str:
    """Total time and gap, from the least to the most of several training seeds."""
    if runs.empty:
        return "–"
    gaps = dict.fromkeys(f"{end:.3f}" for end in (runs["gap"].min(), runs["gap"].max()))
    return f"{_span(runs['time'])} ({'–'.join(gaps)})"


_RETURNS = {
    "digits": ("FLEdgeFlat-v0", Scenario.digits()),
    "cmdp": ("FLEdgeCMDP-v0", Scenario.digits(objective="outcome")),
    "paper": ("FLEdgePaper-v0", TASKS["FLEdgePaper-v0"].scenario),
    "longest": ("FLEdgeLongest-v0", TASKS["FLEdgeLongest-v0"].scenario),
    "blind": ("FLEdgeBlind-v0", TASKS["FLEdgeBlind-v0"].scenario),
}

_NAMES = {"ZeroAction": "zero action", "RandomAction": "random actions"}
_NAMES |= dict.fromkeys(("rule-digits", "rule-paper"), "our agents, one rule")
_NAMES |= dict.fromkeys(("digits", "cmdp", "paper", "longest"), "our agents, shared network")


def returns_table() -> str:
    """Mean return of an episode by policy and environment, with a star if not ok."""
    columns: dict[str, dict[str, str]] = {}
    for name, (environment, scenario) in _RETURNS.items():
        stored = pd.read_csv(ROOT / f"docs/evidence/returns-{name}.csv")
        scaling = Scaling(scenario)
        for policy, runs in stored.groupby("policy", sort=False):
            star = "" if (runs["status"] == "ok").all() else "*"
            known = scenario.objective == "outcome" or runs["sampling_error"].notna().all()
            plain = scenario.num_rounds * runs["mean_reward"].mean()
            scaled = (plain + scenario.num_rounds * scaling.offset) / scaling.unit
            shown = {f"`{environment}`": scaled}
            if name == "digits":
                shown = {"`FLEdge-v0` [J²]": plain, "`FLEdgeFlat-v0`, `FLEdgeRule-v0`": scaled}
            for column, value in shown.items():
                text = f"{value:,.0f}{star}".replace("-", "−") if known else "–"
                columns.setdefault(column, {})[_NAMES.get(str(policy), str(policy))] = text
    table = pd.DataFrame(columns).fillna("–")
    return markdown(["policy", *table.columns], table.reset_index().to_numpy().tolist())


_HEADLINE = (
    *("Opportunistic", "LROA", "Uni-D", "Quickest"),
    *("Best channel, static", "Round robin, dynamic"),
)


def first_table() -> str:
    """The table that README's first command prints."""
    lines = stored_text("first").split("\n")[1:-4]
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


TABLES: dict[str, Callable[[], str]] = {
    "first": first_table,
    "headline": partial(suite_table, *_HEADLINE),
    "scores": scores_table,
    "flower": flower_output,
    "suite": suite_table,
    "cell": cell_table,
    "paper": paper_table,
    "presets": presets_table,
    "scale": scale_table,
    "learning": learning_table,
    "returns": returns_table,
}

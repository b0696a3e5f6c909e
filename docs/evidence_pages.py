"""The pages' tables and figures, from the stored files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from fl_edge_env import Scenario
from fl_edge_env.features import Scaling
from fl_edge_env.scenario.presets import PRESETS
from fl_edge_env.tasks import TASKS
from policies.benchmark.records import DeviceAccounts
from policies.benchmark.status import Lottery, most_in_a_run
from policies.report.figures import wrapped
from policies.report.ranking import mean_rank
from policies.report.styles import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
PAGES = (
    *("README.md", "docs/results.md", "docs/environment.md", "docs/speed.md"),
    "docs/train_an_agent.md",
)
_UNITS = {
    "total_time": (86_400.0, "total time [days]"),
    "outcome_gap": (0.01, "distance above the outcome bound [%]"),
    "worst_tenth_accuracy": (0.01, "accuracy, worst tenth of devices [%]"),
}
_BITS = (2, 4, 8, 32)
_RATIOS = (0.7, 1, 1.5, 2, 3, 5, 7)


def standings(name: str) -> pd.DataFrame:
    """The rows of a stored leaderboard, by setting and scheduler."""
    table = pd.read_csv(ROOT / f"docs/leaderboards/{name}.csv")
    return table.set_index(["setting", "scheduler"])


def stored_text(name: str) -> str:
    """The stored output of a command."""
    return (ROOT / f"docs/evidence/{name}.txt").read_text(encoding="utf-8").strip("\n")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with its numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(" | ".join(line) for line in lines)


def savings() -> list[list[str]]:
    """LROA's savings: the paper's, ours, and the lambda at which they are equal [s]."""
    pattern = r"(cifar10|femnist) +LROA +(Uni-[DS])" + r" +([\d.]+)" * 3
    rows = []
    for name, other, paper, ours, mu in re.findall(pattern, stored_text("paper-baselines")):
        lambda_ = float(mu) * Scenario.preset(name).lambda_
        rows.append([f"{name}, against {other}", paper, ours, f"{lambda_:.0f}"])
    return rows


def paper_table() -> str:
    """LROA's savings as a table."""
    return markdown(["time saved by LROA", "paper, %", "ours, %", "matching λ, s"], savings())


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
        mean = f"{np.exp(np.log(ratio).mean()):.2f} ({len(ratio)})"
        span = f"{ratio.min():.2f} to {ratio.max():.2f}" if name != "Opportunistic" else "–"
        rows.append([name, f"{ok[name]}", f"{rank[name]:.1f}", mean, span])
    head = ["scheduler", f"ok, of {times.shape[1]}", "mean rank"]
    return markdown([*head, "time over Opportunistic's (settings)", "least to most"], rows)


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


def measured_table() -> str:
    """Priced times over Opportunistic's on measured links and simulated channels."""
    stored = pd.read_csv(ROOT / "docs/evidence/measured-links.csv").drop(columns="Opportunistic")
    return markdown(list(stored.columns), stored.to_numpy().tolist())


# Agents that learn on digits: settings, environment, and Stable-Baselines3's steps in a round.
_LEARNERS = {
    "rule": ("PPO's defaults", "`FLEdgeRule-v0`", 1),
    "sac": ("SAC's defaults", "`FLEdgeRule-v0`", 1),
    "flat": ("PPO's defaults", "`FLEdgeFlat-v0`", 1),
    "rows": ("PPO, tuned", "`BatchVecEnv`", 40),
}


def learning() -> pd.DataFrame:
    """Total time and gap on digits by agent, training seed and rounds of training."""
    means = stored_means("learning")
    rows = []
    for name, (time, gap) in means.iterrows():
        found = re.fullmatch(r"(\w+)-(\d)(?:_(\d+)_steps)?", str(name))
        if found:
            whole = 16_384 if found[1] == "sac" else 53_248
            rounds = int(found[3]) // _LEARNERS[found[1]][2] if found[3] else whole
            rows.append((found[1], int(found[2]), rounds, time, gap))
    table = pd.DataFrame(rows, columns=["agent", "seed", "rounds", "time", "gap"])
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
    for agent, (algorithm, environment, steps) in _LEARNERS.items():
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


_HEADLINE = ("Opportunistic", "LROA", "Uni-D", "Quickest", "Best channel, static")
TABLES: dict[str, Callable[[], str]] = {
    "headline": partial(suite_table, *_HEADLINE),
    "suite": suite_table,
    "measured": measured_table,
    "paper": paper_table,
    "presets": presets_table,
    "scale": scale_table,
    "learning": learning_table,
    "returns": returns_table,
}


def _draw_system(axes: Axes) -> None:
    """A round: two of the devices train and upload, and the server decides how."""

    def box(x: float, y: float, text: str, *, face: str = "white", height: float = 0.8) -> None:
        axes.add_patch(Rectangle((x, y), 2.6, height, facecolor=face, edgecolor="black"))
        axes.text(x + 1.3, y + height / 2, text, ha="center", va="center")

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "linewidth": 1.2})

    names = "device 1", "device 2", "device 3", "device N"
    heights = 3.6, 2.5, 1.4, 0.0
    cohort = 0, 2
    for place, (name, y) in enumerate(zip(names, heights, strict=True)):
        chosen = place in cohort
        box(0, y, f"{name}: trains at $f$" if chosen else name, face="0.8" if chosen else "white")
    axes.text(1.3, 1.1, "…", ha="center", va="center")
    axes.add_patch(Rectangle((5.1, 0.9), 1.3, 3.5, facecolor="0.93", edgecolor="0.5"))
    axes.text(5.75, 0.65, "shared band", ha="center", va="center")
    box(8.4, 1.5, "server\n\nadds the updates\nto the model", height=2.3)
    for place in cohort:
        y = heights[place] + 0.4
        arrow((2.7, y), (5.0, y))
        axes.text(3.85, y + 0.15, "upload, power $p$", ha="center", va="bottom")
        arrow((6.5, y), (8.3, 2.8 if place == 0 else 2.2))
        arrow((-0.4, y), (0, y))
    axes.plot([9.7, 9.7, -0.4, -0.4], [3.9, 4.95, 4.95, 1.8], color="black", linewidth=1.2)
    decided = "a policy decides: K of N devices (drawn with probabilities $q$), $f$ and $p$"
    axes.text(5.1, 5.1, decided, ha="center", va="bottom")
    axes.text(5.1, 4.85, "the server sends the model", ha="center", va="top")
    axes.text(8.4, 0.5, "the round ends with\nthe last upload", va="center")
    axes.set(xlim=(-0.5, 11.1), ylim=(-0.1, 5.6))
    axes.axis("off")


def _draw_bits(system: str, column: str, axes: Axes) -> None:
    """A time over Opportunistic's with 32 bits against the bits, with a line for each policy."""
    stored = standings("uploads")
    unit = stored.loc[(f"{system}, 32 bits", "Opportunistic"), column]
    for name, look in looks(list(stored.index.unique("scheduler"))).items():
        keys = [(f"{system}, {bits} bits", name) for bits in _BITS]
        if keys[0] in stored.index:
            times = stored.loc[keys, column] / unit
            ok = stored.loc[keys, "status"] == "ok"
            axes.plot(_BITS, times, color=look.color, linestyle=look.linestyle, label=name)
            axes.plot(_BITS, times.where(ok), "o", color=look.color)
            axes.plot(_BITS, times.mask(ok), "o", color=look.color, markerfacecolor="white")
    _dot(axes, [], [], "grey", "not ok", label="not ok")
    axes.axhline(1.0, color="0.75", linewidth=2.5, zorder=0.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(_BITS, [str(bits) for bits in _BITS])
    axes.set_yticks(_RATIOS, [str(ratio) for ratio in _RATIOS])
    axes.minorticks_off()
    goal = "time to 90 %" if column == "time_to_target" else "total time"
    axes.set(title=f"{system}: {goal}", xlabel="bits for each parameter", ylim=(0.6, 8))
    axes.set_ylabel("over Opportunistic's, 32 bits")


def _draw_cohort_sizes(axes: Axes) -> None:
    """The time to 90 % on digits against K, with a line for each policy."""
    stored = standings("cohort_size")
    sizes = (1, 2, 4, 8)
    for name, look in looks(list(stored.index.unique("scheduler"))).items():
        rows = stored.loc[[(f"K = {size}", name) for size in sizes]]
        times = rows["time_to_target"]
        ok = rows["status"] == "ok"
        axes.plot(sizes, times, color=look.color, linestyle=look.linestyle, label=name)
        axes.plot(sizes, times.where(ok), "o", color=look.color)
        axes.plot(sizes, times.mask(ok), "o", color=look.color, markerfacecolor="white")
    _dot(axes, [], [], "grey", "not ok", label="not ok")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_yticks([50, 100, 200, 500, 1000], ["50", "100", "200", "500", "1000"])
    axes.minorticks_off()
    axes.set(xlabel="devices in a round, K", ylabel="time to 90 % [s]")


def _draw_rows(stored: pd.DataFrame, system: str, column: str, axes: Axes) -> None:
    """Means with intervals: a row for each setting of a system, with a dot for each policy."""
    (unit, label) = _UNITS[column]
    settings = [each for each in stored.index.unique("setting") if each.startswith(system)]
    known = stored[column].dropna().index  # no bound holds for unequal bandwidths
    names = [
        name
        for name in sorted(known.unique("scheduler"))
        if all((setting, name) in known for setting in settings)
    ]
    for place, (name, look) in enumerate(looks(names).items()):
        for row, setting in enumerate(settings):
            one = stored.loc[(setting, name)]
            y = row + 0.18 * (place - 1)
            x = [one[f"{column}{end}"] / unit for end in ("", "_low", "_high")]
            _dot(axes, x, y, look.color, one["status"], "os^D"[place], "" if row else name)
    _dot(axes, [], [], "grey", "not ok", label="not ok")
    _label_rows(axes, [each.removeprefix(system) for each in settings])
    axes.set(title=system.strip(", "), xlabel=label)
    axes.set_xscale("log" if column == "outcome_gap" else "linear")
    axes.xaxis.set_major_formatter("{x:g}")
    if column == "total_time":
        axes.set_xlim(0, None)


def _draw_savings(axes: Axes) -> None:
    """LROA's savings in the paper and here, and the lambda at which they are equal."""
    rows = savings()
    for row, (_, paper, ours, lambda_) in enumerate(rows):
        first = not row
        axes.plot(float(ours), row, "D", color="#0072B2", label="ours" if first else "")
        axes.plot(float(paper), row, "o", color="black", label="the paper's" if first else "")
        axes.text(73, row, f"equal with λ = {lambda_} s", ha="right", va="center", size="small")
    _label_rows(axes, [label for label, *_ in rows])
    axes.set(xlabel="time saved by LROA [%]", xlim=(0, 74))


def _draw_scores(task: str, limits: tuple[float, float], axes: Axes) -> None:
    """Scores on a frozen task's held-out seeds, less LROA's, of agents and rules that are ok."""
    split = [re.split(r"\s{2,}", line) for line in stored_text(f"task-{task}").split("\n")[1:]]
    lines = [line for line in split if len(line) > 1]  # not the one on seeds
    for row, (_, _, _, less, status) in enumerate(lines):
        x = [float(part) for part in re.findall(r"-?[\d.]+", less)]
        at: dict[str, Any] = {"va": "center", "size": "x-small"}
        at["transform"] = axes.get_yaxis_transform()
        if status != "ok":
            axes.text(0.97, row, re.split(",| with", status)[0], ha="right", **at)
        elif x[0] < limits[0]:
            axes.text(0.03, row, f"← −{-x[0]:.2f}", **at)
        else:
            _dot(axes, x, row, "black", status)
    axes.axvline(0, color="0.75", linewidth=2.5, zorder=0.5)
    _label_rows(axes, [name for name, *_ in lines])
    axes.set(title=f"FLEdge{task.capitalize()}-v0", xlabel="score − LROA's", xlim=limits)
    axes.set_xticks([limits[0], 0, limits[1]])
    axes.xaxis.set_major_formatter("{x:g}")


def _draw_learning(axes: Axes) -> None:
    """Total time on digits against rounds of training: a line for each agent and seed."""
    known = stored_means("learning")["total_time"]
    start = float(known["ZeroAction"])
    labels = "PPO, one rule", "SAC, one rule", "PPO, flat", "PPO, rows"
    shown = dict(zip(_LEARNERS, labels, strict=True))
    colors = dict(zip(_LEARNERS, ("#0072B2", "#009E73", "#D55E00", "#CC79A7"), strict=True))
    for (agent, seed), line in learning().groupby(["agent", "seed"]):
        x = [0, *line["rounds"]]
        label = "" if seed else shown[agent]
        axes.plot(x, [start, *line["time"]], color=colors[agent], label=label)
    for name, style, va in (("LROA", "-", "top"), ("Uni-D", "--", "bottom")):
        axes.axhline(float(known[name]), color="0.6", linestyle=style)
        axes.text(53_248, float(known[name]), name, ha="right", va=va)
    axes.set(xlabel="rounds of training", ylabel="total time [s]", ylim=(500, None))


def _draw_status(place: int, axes: Axes) -> None:
    """Lack against excess of the schedulers in a system, and the limits of both in a run."""
    stored = standings("system").dropna(subset="lack")
    system = stored.index.unique("setting")[place]
    for status, lack, excess in stored.loc[system, ["status", "lack", "excess"]].itertuples(False):
        _dot(axes, [100 * lack], 100 * excess, "black", status)
    fair = np.full((1, 1), 1000 / 60)
    even = DeviceAccounts(fair, fair, fair, fair, np.full((1, 1), 1000.0), fair[0], 0 * fair[0])
    most_lack, most_excess = most_in_a_run(Lottery.like(even))
    axes.axvline(100 * most_lack, color="0.6", linestyle="--")
    axes.axhline(100 * most_excess, color="0.6", linestyle="--")
    axes.set(
        xlim=(-5, 105), ylim=(-5, 105), xlabel="lack, %", ylabel="excess, %" if not place else ""
    )
    axes.set_title("\n".join(wrapped(system, 22)))


def _dot(
    axes: Axes, x: list[float], y: Any, color: str, status: str, marker: str = "o", label: str = ""
) -> None:
    """A mean and the ends of its interval, hollow if not ok."""
    face = color if status == "ok" else "white"
    axes.plot(x[1:], [y] * len(x[1:]), color=color)
    axes.plot(x[:1], [y] * len(x[:1]), marker, color=color, mfc=face, label=label or None)


def _label_rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


# Rows of panels of each figure, and the size of a panel in inches.
_SYSTEMS = [partial(_draw_bits, name, "total_time") for name in ("CIFAR-10", "cell", "phones")]
_UPLOADS = [*_SYSTEMS, partial(_draw_bits, "digits", "time_to_target")]
_PHONES = partial(_draw_rows, standings("work"), "phones, ", "total_time")
_LABELS = partial(
    _draw_rows, standings("work"), "digits, labels by speed, ", "worst_tenth_accuracy"
)
_DELAYED = standings("system").loc[["CIFAR-10, correlated channel, delayed state"]]
_DISTANCES = partial(
    _draw_rows, pd.concat([standings("opportunistic"), _DELAYED]), "", "outcome_gap"
)
_RANKING = [partial(_draw_status, place) for place in range(4)]
_LIMITS = {"paper": (-0.03, 0.01), "longest": (-0.4, 0.2), "blind": (-0.2, 0.6)}
_SCORES = [partial(_draw_scores, *task) for task in _LIMITS.items()]
FIGURES: dict[str, tuple[list[list[Any]], tuple[float, float]]] = {
    "examples/figures/system.png": ([[_draw_system]], (7.0, 2.8)),
    "examples/figures/uploads.png": ([_UPLOADS[:2], _UPLOADS[2:]], (3.5, 2.3)),
    "examples/figures/work.png": ([[_PHONES, _LABELS]], (3.5, 1.7)),
    "examples/figures/distances.png": ([[_DISTANCES]], (7.0, 2.4)),
    "examples/figures/cohort-size.png": ([[_draw_cohort_sizes]], (5.0, 2.6)),
    "examples/figures/ranking.png": ([_RANKING], (1.8, 2.2)),
    "examples/figures/agents.png": ([_SCORES], (2.4, 2.2)),
    "examples/figures/paper-savings.png": ([[_draw_savings]], (7.0, 1.8)),
    "examples/figures/learning.png": ([[_draw_learning]], (4.5, 2.4)),
}

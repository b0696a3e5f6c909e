"""The pages' figures, from the stored files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from evidence_pages import LEARNERS, ROOT, learning, standings, stored_means, task_rows
from matplotlib.patches import Rectangle
from scipy.optimize import isotonic_regression

from policies.benchmark.records import DeviceAccounts
from policies.benchmark.status import SLACK, Lottery, most_in_a_run
from policies.report.figures import wrapped
from policies.report.styles import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BITS = (2, 4, 8, 32)
_MARKERS = {
    "Opportunistic": "s",
    "LROA": "o",
    "Uni-D": "D",
    "Uni-S": "v",
    "Quickest": "^",
    "Best channel, static": "P",
}
_WORK = {  # divisions of work: names, marks and colors
    "equal work": ("equal work", "o", "black"),
    "work by speed": ("work by speed", "s", "#0072B2"),
    "work by speed, normalised": ("work by speed, FedNova (digits)", "D", "#D55E00"),
}
# Policies of the frozen tasks with their names in the figure.
_SCORED = {
    "PPO of SB3, shared network": "SB3's PPO, shared network",
    "PPO, one file": "PPO in one file, shared network",
    "PPO of SB3": "SB3's PPO, flat network",
    "PPO of SB3, one rule": "SB3's PPO, one rule",
    "PPO with memory": "PPO with memory",
    "LROA": "LROA",
    "LROA, tuned": "LROA, tuned",
    "Opportunistic": "Opportunistic",
    "Opportunistic, tuned": "Opportunistic, tuned",
    "Static": "best static policy",
    "Uni-D": "Uni-D",
    "Uni-D, tuned": "Uni-D, tuned",
}
# The accounts of one run of 1000 rounds with two of 120 equal devices.
_FAIR = np.full((1, 1), 1000 / 60)
_EVEN = DeviceAccounts(_FAIR, _FAIR, _FAIR, _FAIR, np.full((1, 1), 1000.0), _FAIR[0], 0 * _FAIR[0])


def _draw_system(axes: Axes) -> None:
    """A round: two of the devices train and upload, as a policy decides."""

    def box(x: float, y: float, text: str, *, face: str = "white", height: float = 0.8) -> None:
        axes.add_patch(Rectangle((x, y), 2.6, height, facecolor=face, edgecolor="black"))
        axes.text(x + 1.3, y + height / 2, text, ha="center", va="center")

    def arrow(start: tuple[float, float], end: tuple[float, float], style: str = "-") -> None:
        look = {"arrowstyle": "->", "linewidth": 1.2, "linestyle": style}
        axes.annotate("", end, start, arrowprops=look)

    names = "device 1", "device 2", "device 3", "device N"
    heights = 3.6, 2.5, 1.4, 0.0
    cohort = 0, 2
    for place, (name, y) in enumerate(zip(names, heights, strict=True)):
        chosen = place in cohort
        text = f"{name} trains\nat CPU frequency $f$" if chosen else name
        box(0, y, text, face="0.8" if chosen else "white")
    axes.text(1.3, 1.1, "…", ha="center", va="center")
    axes.add_patch(Rectangle((5.1, 1.2), 1.3, 3.2, facecolor="white", edgecolor="black"))
    axes.text(5.75, 2.8, "shared\nband", ha="center", va="center")
    box(8.4, 1.7, "server\n\nadds the updates\nto the model", height=2.1)
    for place in cohort:
        y = heights[place] + 0.4
        arrow((2.6, y), (5.1, y))
        axes.text(3.85, y + 0.15, "upload at power $p$", ha="center", va="bottom")
        arrow((6.4, y), (8.4, 2.9 if place == 0 else 2.4))
        arrow((-0.4, y), (0, y))
    axes.plot([9.7, 9.7, -0.4, -0.4], [3.8, 4.95, 4.95, 1.8], color="black", linewidth=1.2)
    axes.text(4.6, 5.02, "the server sends the model", ha="center", va="bottom")
    outline = {"fill": False, "linestyle": "--", "edgecolor": "0.5"}
    axes.add_patch(Rectangle((-0.15, -0.15), 2.9, 4.7, **outline))
    box(8.4, -0.1, "policy", height=1.2)
    arrow((8.4, 0.75), (2.75, 0.75), "--")
    axes.text(5.5, 0.82, "decides: $K$ of $N$ devices (grey), $f$, $p$", ha="center", va="bottom")
    arrow((2.75, 0.2), (8.4, 0.2), "--")
    axes.text(5.5, 0.13, "sees: gains, overspending", ha="center", va="top")
    axes.text(
        5.3, -1.1, "A round ends with the last upload; energy rises with $f$ and $p$.", ha="center"
    )
    axes.set(xlim=(-0.5, 11.1), ylim=(-1.2, 5.5))
    axes.axis("off")


_ENDS = "", "_low", "_high"


def _interval(row: pd.Series, column: str, unit: float = 1.0) -> list[float]:
    """A stored mean and the ends of its interval."""
    return [row[f"{column}{end}"] / unit for end in _ENDS]


def _dot(
    axes: Axes, interval: list[float], y: float, color: str, ok: bool, marker: str = "o"
) -> None:
    """A mean and its interval in a row, hollow if not ok."""
    mean, *ends = interval
    axes.plot(ends, [y] * len(ends), color=color)
    face = color if ok else "white"
    axes.plot(mean, y, marker, color=color, mfc=face, markersize=4.5, zorder=3, clip_on=False)


def _line(
    axes: Axes, name: str, rows: pd.DataFrame, column: str, unit: float = 1.0
) -> tuple[float, float]:
    """A scheduler's means over the rows' index, with stored intervals, hollow if not ok.

    Returns the place of the last mean.
    """
    look = looks([name])[name]
    mean = rows[column] / unit
    axes.plot(rows.index, mean, color=look.color, linestyle=look.linestyle)
    if f"{column}_low" in rows:
        low, high = (rows[f"{column}_{end}"] / unit for end in ("low", "high"))
        axes.vlines(rows.index, low, high, color=look.color)
    for x, y, status in zip(rows.index, mean, rows["status"], strict=True):
        face = look.color if status == "ok" else "white"
        above = 3 if status == "ok" else 3.5  # hollow marks hide little
        axes.plot(x, y, _MARKERS[name], color=look.color, mfc=face, markersize=4.5, zorder=above)
    return float(rows.index[-1]), float(mean.iloc[-1])


def _name_ends(axes: Axes, ends: dict[str, tuple[float, float]], gap: float = 0.105) -> None:
    """Name lines at their ends (x, y), with names right of the axes, at least `gap` of it apart."""
    names = sorted(ends, key=lambda name: ends[name][1])
    to_axes: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    right = axes.get_xlim()[1]
    places = [(min(ends[name][0], right), ends[name][1]) for name in names]
    starts = axes.transAxes.inverted().transform(axes.transData.transform(places))
    steps = gap * np.arange(len(names))
    levels = isotonic_regression(starts[:, 1] - steps).x + steps
    for name, (across, height), level in zip(names, starts, levels, strict=True):
        axes.plot([across, 1.025], [height, level], color="0.5", linewidth=0.6, **to_axes)
        axes.text(1.03, level, name, va="center", **to_axes)


def _say_hollow(axes: Axes) -> None:
    """Explain hollow marks in the legend."""
    axes.plot([], [], "o", color="grey", mfc="white", label="hollow: not ok")


def _band_rows(axes: Axes, rows: int) -> None:
    """Shade every second row."""
    for row in range(1, rows, 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.95", zorder=0)


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _log_x(axes: Axes, ticks: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _beside(values: Sequence[float], place: float) -> Any:
    """Values of a logarithmic axis, shifted sideways so that no line hides another's marks."""
    return np.multiply(values, 1.04 ** (place - 2))


def _draw_bits(system: str, column: str, axes: Axes) -> None:
    """Priced times relative to Opportunistic's with 32 bits against the bits."""
    stored = standings("uploads")
    unit = stored.loc[(f"{system}, 32 bits", "Opportunistic"), column]
    names = ("Opportunistic", "LROA", "Uni-D", "Uni-S", "Quickest")
    played = [name for name in names if (f"{system}, 32 bits", name) in stored.index]
    ends = {}
    for place, name in enumerate(played):
        rows = stored.loc[[(f"{system}, {bits} bits", name) for bits in _BITS]]
        rows = rows.set_axis(_beside(_BITS, 1.5 * place - 1))
        ends[name] = _line(axes, name, rows, column, unit)
    _say_hollow(axes)
    axes.axhline(1.0, color="0.75", linewidth=2.5, zorder=0.5)
    _log_x(axes, _BITS)
    axes.set_yscale("log")
    ratios = (1, 1.2, 1.4, 1.6) if system == "phones" else (0.7, 1, 1.5, 2, 3, 5, 7)
    axes.set_yticks(ratios, [str(ratio) for ratio in ratios])
    axes.minorticks_off()
    title = "digits, to 90 %" if column == "priced_time_to_target" else system
    axes.set(title=title, xlabel="bits for each parameter (log axis)", xlim=(1.5, 44))
    axes.set(
        ylabel="priced time ÷\nOpportunistic's with\n32 bits (log axis)",
        ylim=(0.85, 2) if system == "phones" else (0.65, 8),
    )
    _name_ends(axes, ends)


def _draw_work(system: str, column: str, unit: float, label: str, axes: Axes) -> None:
    """Means with intervals: a row for each scheduler, with a mark for each division of work."""
    stored = standings("work")
    names = list(stored.index.unique("scheduler"))
    _band_rows(axes, len(names))
    for place, (work, (text, marker, color)) in enumerate(_WORK.items()):
        for row, name in enumerate(names):
            if (f"{system}, {work}", name) in stored.index:
                one = stored.loc[(f"{system}, {work}", name)]
                y = row + 0.25 * (place - 1)
                _dot(axes, _interval(one, column, unit), y, color, one["status"] == "ok", marker)
        axes.plot([], [], marker, color=color, label=text)
    _say_hollow(axes)
    _label_rows(axes, names if system == "phones" else [""] * len(names))
    axes.grid(visible=False)
    axes.margins(x=0.1)
    if column == "worst_tenth_accuracy":
        axes.set(title="digits", xlabel=f"{label},\nworst tenth of devices [%]")
    else:
        axes.set(title=system.split(",")[0], xlabel=label, xlim=(0, None))


def _draw_distances(axes: Axes) -> None:
    """Distances above the outcome bound: a row for each system, with a mark for each scheduler."""
    delayed = standings("system").loc[["CIFAR-10, correlated channel, delayed state"]]
    stored = pd.concat([standings("opportunistic"), delayed])
    systems = list(stored.index.unique("setting"))
    _band_rows(axes, len(systems))
    for row, system in enumerate(systems):
        for place, name in enumerate(("Opportunistic", "Quickest", "LROA", "Uni-D")):
            one = stored.loc[(system, name)]
            y = row + 0.22 * (place - 1.5)
            color = looks([name])[name].color
            interval = _interval(one, "outcome_gap", 0.01)
            _dot(axes, interval, y, color, one["status"] == "ok", _MARKERS[name])
            if not row:
                beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(name, (interval[0], y), **beside)
    _say_hollow(axes)
    _label_rows(axes, ["\n".join(wrapped(each, 24)) for each in systems])
    _log_x(axes, (0.5, 1, 2, 5, 10, 20, 50, 100, 200))
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="priced time above the outcome bound [%] (log axis)", xlim=(0.35, 400))


# Settings with their boards; on links with simulated fading, a file has the ratios.
_CHANNELS = {
    "CIFAR-10 system": ("uploads", "CIFAR-10, 32 bits"),
    "CIFAR-10 system, 2 bits a parameter": ("uploads", "CIFAR-10, 2 bits"),
    "cell: near and far devices": ("uploads", "cell, 32 bits"),
    "phones: slow and fast devices": ("uploads", "phones, 32 bits"),
    "measured uplinks, 358 Mbit": ("measured", "358 Mbit"),
    "358 Mbit, gains a round late": ("measured", "358 Mbit, delayed state"),
    "measured uplinks, 10 Mbit": ("measured", "10 Mbit"),
    "10 Mbit, gains a round late": ("measured", "10 Mbit, delayed state"),
    "exponential fading, 358 Mbit": ("", "358 Mbit, exponential, same means"),
    "exponential fading, 10 Mbit": ("", "10 Mbit, exponential, same means"),
}


def _draw_channels(axes: Axes) -> None:
    """Priced times relative to Opportunistic's: a row for each setting, a mark for each policy."""
    simulated = pd.read_csv(ROOT / "docs/evidence/measured-links.csv").set_index("system")
    _band_rows(axes, len(_CHANNELS))
    for row, (board, setting) in enumerate(_CHANNELS.values()):
        for place, name in enumerate(("Quickest", "LROA", "Uni-D")):
            if board:
                rows = standings(board).loc[setting]
                ok = rows.loc[name, "status"] == "ok"
                unit = rows.loc["Opportunistic", "priced_time"]
                interval = _interval(rows.loc[name], "priced_time", unit)
            else:
                mean, half = map(float, re.findall(r"[\d.]+", simulated.loc[setting, name]))
                ok = not simulated.loc[setting, name].startswith("(")
                interval = [mean, mean - half, mean + half]
            y = row + 0.25 * (place - 1)
            color = looks([name])[name].color
            _dot(axes, interval, y, color, ok, _MARKERS[name])
            if not row:
                left = name == "LROA"  # Uni-D is to its right
                at = {"xytext": (-6, 0), "ha": "right"} if left else {"xytext": (6, 0)}
                look = {"textcoords": "offset points", "va": "center"}
                axes.annotate(name, (interval[0], y), **at, **look)
    axes.axvline(1.0, color="black", linewidth=1.2, zorder=0.5)
    axes.text(1.0, -0.65, "Opportunistic", ha="center")
    _say_hollow(axes)
    _label_rows(axes, list(_CHANNELS))
    _log_x(axes, (1, 1.5, 2, 3, 4, 6))
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="priced time ÷ Opportunistic's (log axis)", xlim=(0.95, 7.5))


def _draw_scores(task: str, axes: Axes) -> None:
    """Scores on a frozen task's held-out seeds; why a policy that is not ok has none."""
    found = task_rows(task)
    axes.axvline(1, color="0.75", linewidth=2.5, zorder=0.5)
    across: dict[str, Any] = {"va": "center", "transform": axes.get_yaxis_transform()}
    across["bbox"] = {"facecolor": "white", "linewidth": 0, "pad": 1}
    for row, name in enumerate(_SCORED):
        _, score, _, _, status = found.get(name, ["", "", "", "", ""])
        if status == "ok":
            interval = [float(part) for part in re.findall(r"-?[\d.]+", score)]
            look = ("#0072B2", True, "s") if "PPO" in name else ("black", True, "o")
            _dot(axes, interval, row, *look)
            axes.text(1.04, row, f"{interval[0]:.3f}".replace("-", "−"), **across)
        else:
            seeds = re.search(r"\d of \d", status)
            text = f"not ok: {seeds[0]}" if seeds else "not ok" if status else "not played"
            axes.text(0.04, row, text, **across)
    axes.plot([], [], "s", color="#0072B2", label="agent")
    axes.plot([], [], "o", color="black", label="scheduler")
    axes.plot([], [], color="0.75", linewidth=2.5, label="bound")
    _label_rows(axes, list(_SCORED.values()) if task == "paper" else [""] * len(_SCORED))
    axes.set(title=f"FLEdge{task.capitalize()}-v0", xlabel="score", xlim=(-0.2, 1.05))
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _draw_status(column: str, label: str, limit: float, axes: Axes) -> None:
    """A measure of status in the cell: a row for each scheduler, and the most that is ok."""
    stored = standings("system").loc["cell"].dropna(subset=column)
    for row, (_, one) in enumerate(stored.iterrows()):
        interval = _interval(one, column, 0.01)
        look = ("#D55E00", False, "D") if interval[0] > limit else ("black", one["status"] == "ok")
        _dot(axes, interval, row, *look)
    _say_hollow(axes)
    axes.plot([], [], "D", color="#D55E00", mfc="white", label="beyond the limit")
    axes.axvline(limit, color="0.5", linestyle="--")
    number = 3 if column == "spent_ratio" else 1
    axes.text(limit, -0.9, f"limit {number}: {limit:.0f} %", ha="center")
    _label_rows(axes, list(stored.index) if column == "lack" else [""] * len(stored))
    axes.margins(x=0.15)
    axes.set(xlabel=label, xlim=(0, None))


def _draw_lead(axis: str, label: str, ticks: Sequence[float], column: str, axes: Axes) -> None:
    """LROA and Quickest relative to Opportunistic, or LROA's sampling error, along an axis."""
    stored = pd.read_csv(ROOT / "docs/evidence/lead.csv")
    stored = stored[stored["axis"] == axis].set_index("value")
    _log_x(axes, ticks)
    if column == "sampling_error":
        rows = stored[stored["policy"] == "LROA"]
        ends = {"LROA": _line(axes, "LROA", rows, column), "Uni-D": (np.inf, 1.0)}
        axes.set(ylabel="sampling error ÷ Uni-D's")
    else:
        ends = {
            name: _line(axes, name, stored[stored["policy"] == name], column)
            for name in ("LROA", "Quickest")
        }
        ends["Opportunistic"] = np.inf, 0.95  # its name is below Quickest's, where they coincide
        axes.set(ylabel="priced time ÷\nOpportunistic's")
    axes.axhline(1.0, color="0.75", linewidth=1.5, zorder=0.5)
    _say_hollow(axes)
    axes.set(xlabel=f"{label} (log axis)", ylim=(0.8, 3.3))
    _name_ends(axes, ends)


def _draw_tradeoff(column: str, ylabel: str, limit: str, axes: Axes) -> None:
    """A measure of Opportunistic against V, with the bound, the budget or the target."""
    stored = pd.read_csv(ROOT / "docs/evidence/tradeoff.csv")
    rows = stored[stored["start"] == "settled"].set_index("V")
    for end in _ENDS:
        rows[f"priced{end}"] = rows["bound"] * (1 + rows[f"outcome_gap{end}"])
    _log_x(axes, (0.03, 0.1, 0.3, 1, 3, 10))
    _line(axes, "Opportunistic", rows, column)
    if (rows["status"] != "ok").any():
        _say_hollow(axes)
    if limit:
        level = rows["bound"].iloc[0] if column == "priced" else 1.0
        axes.axhline(level, color="0.75", linewidth=2.5, zorder=0.5)
        axes.margins(y=0.1)
        _name_ends(axes, {limit: (np.inf, level)})
    axes.set(xlabel="V ÷ its default (log axis)", ylabel=ylabel)


def _draw_cohort_sizes(axes: Axes) -> None:
    """The priced time to 90 % on digits against K, with a line for each policy."""
    stored = standings("cohort_size")
    sizes = (1, 2, 4)
    ends = {}
    for place, name in enumerate(stored.index.unique("scheduler")):
        rows = stored.loc[[(f"K = {size}", name) for size in sizes]]
        rows = rows.set_axis(_beside(sizes, place))
        ends[name] = _line(axes, name, rows, "priced_time_to_target")
    _say_hollow(axes)
    axes.plot([], [], "|", color="grey", markersize=10, label="95 % interval")
    _log_x(axes, sizes)
    axes.set_yscale("log")
    axes.set_yticks([50, 100, 200], ["50", "100", "200"])
    axes.minorticks_off()
    axes.set(xlabel="devices in a round, K (log axis)", ylabel="priced time to 90 % [s] (log axis)")
    _name_ends(axes, ends)


def _draw_images(column: str, unit: float, label: str, axes: Axes) -> None:
    """A mark for each of two seeds on CIFAR-10's images: a row for each policy."""
    stored = pd.read_csv(ROOT / "docs/evidence/cifar10.csv")
    names = ["Opportunistic", "LROA", "Uni-D", "Uni-S", "DivFL"]
    for row, name in enumerate(names):
        runs = stored[stored["policy"] == name]
        for (_, run), marker, shift in zip(runs.iterrows(), "os", (-0.15, 0.15), strict=True):
            ok = run["status"] == "ok"
            _dot(axes, [run[column] / unit], row + shift, looks([name])[name].color, ok, marker)
        if runs[column].isna().any():
            axes.text(59, row - 0.15, "seed 0: not reached", ha="right", va="center")
    for seed, marker in enumerate("os"):
        axes.plot([], [], marker, color="grey", label=f"seed {seed}")
    _say_hollow(axes)
    _label_rows(axes, names if column == "time_to_target" else [""] * len(names))
    axes.set(xlabel=label, xlim=(0, 60) if column == "time_to_target" else (40, 70))


def _draw_learning(axes: Axes) -> None:
    """Priced time on digits against rounds of training: a line for each agent and seed."""
    known = stored_means("learning", ["priced_time"])["priced_time"]
    labels = "PPO, one rule (3 seeds)", "SAC, one rule", "PPO, flat", "PPO, tuned"
    colors = "#0072B2", "#009E73", "#D55E00", "#CC79A7"
    looks_of = dict(zip(LEARNERS, zip(labels, colors, "o^sD", strict=True), strict=True))
    ends = {name: (np.inf, float(known[name])) for name in ("LROA", "Uni-D")}
    for (_, level), style in zip(ends.values(), (":", "--"), strict=True):
        axes.axhline(level, color="black", linewidth=1, linestyle=style, zorder=3)
    for (agent, seed), line in learning().groupby(["agent", "seed"]):
        label, color, marker = looks_of[agent]
        axes.vlines(line["rounds"], line["low"], line["high"], color=color)
        time = [known["ZeroAction"], *line["priced"]]
        axes.plot([0, *line["rounds"]], time, color=color, marker=marker)
        end = line["rounds"].iloc[-1], time[-1]
        beside = {"xytext": (4, -12), "textcoords": "offset points"}
        if agent == "sac":
            axes.annotate(f"SAC, to {end[0]:,}", end, **beside)
        elif agent == "rows":
            axes.annotate(label, (line["rounds"].iloc[0], time[1]), **beside)
        elif not seed:
            ends[label] = end
    axes.set(xlabel="rounds of training", ylabel="priced time [s]", ylim=(550, None))
    _name_ends(axes, ends, gap=0.085)


# Rows of panels of each figure, and the size of a panel in inches.
_UPLOADS = [partial(_draw_bits, name, "priced_time") for name in ("CIFAR-10", "cell", "phones")]
_UPLOADS.append(partial(_draw_bits, "digits", "priced_time_to_target"))
_DIGITS = "digits, labels by speed"
_WORKS = [
    partial(_draw_work, "phones", "priced_time", 86_400.0, "priced time [d]"),
    partial(_draw_work, _DIGITS, "priced_time_to_target", 1.0, "priced time to 90 % [s]"),
    partial(_draw_work, _DIGITS, "worst_tenth_accuracy", 0.01, "final accuracy"),
]
_IMAGES = [
    partial(_draw_images, "time_to_target", 86_400.0, "time to 50 % test accuracy [d]"),
    partial(_draw_images, "final_accuracy", 0.01, "test accuracy after 1000 rounds [%]"),
]
_MOST_LACK, _MOST_EXCESS = most_in_a_run(Lottery.like(_EVEN))
_RULES = [
    partial(_draw_status, "lack", "lack in a run [%]", 100 * _MOST_LACK),
    partial(_draw_status, "excess", "excess in a run [%]", 100 * _MOST_EXCESS),
    partial(_draw_status, "spent_ratio", "energy of all ÷ budgets [%]", 100 * (1 + SLACK)),
]
_OF_MU = "mu", "LROA's weight μ", (0.1, 0.2, 0.5, 1, 2, 5, 10)
_OF_K = "K", "devices in a round, K", (1, 2, 5, 10)
_OF_N = "N", "devices, N", (20, 50, 100, 200, 500, 1000)
_RATIO = "over_opportunistic"
_LEADS = [
    [partial(_draw_lead, *_OF_MU, _RATIO), partial(_draw_lead, *_OF_MU, "sampling_error")],
    [partial(_draw_lead, *_OF_K, _RATIO), partial(_draw_lead, *_OF_N, _RATIO)],
]
_TRADEOFFS = [
    [
        partial(_draw_tradeoff, "priced", "priced time of a round [s]", "outcome bound"),
        partial(_draw_tradeoff, "queue", "mean energy queue [J]", ""),
    ],
    [
        partial(_draw_tradeoff, "worst_spent_ratio", "energy ÷ budget,\nworst device", "budget"),
        partial(
            _draw_tradeoff, "least_participation", "participation ÷ target,\nworst device", "target"
        ),
    ],
]
FIGURES: dict[str, tuple[list[list[Any]], tuple[float, float]]] = {
    "examples/figures/system.png": ([[_draw_system]], (6.2, 3.2)),
    "examples/figures/uploads.png": ([_UPLOADS[:2], _UPLOADS[2:]], (3.1, 1.9)),
    "examples/figures/work.png": ([_WORKS], (2.1, 2.0)),
    "examples/figures/distances.png": ([[_draw_distances]], (6.2, 3.3)),
    "examples/figures/channels.png": ([[_draw_channels]], (6.2, 3.6)),
    "examples/figures/ranking.png": ([_RULES], (2.1, 3.0)),
    "examples/figures/agents.png": (
        [[partial(_draw_scores, task) for task in ("paper", "longest", "blind")]],
        (2.2, 2.5),
    ),
    "examples/figures/lead.png": (_LEADS, (3.1, 1.9)),
    "examples/figures/opportunistic-tradeoff.png": (_TRADEOFFS, (3.1, 1.8)),
    "examples/figures/cohort-size.png": ([[_draw_cohort_sizes]], (5.0, 2.6)),
    "examples/figures/learning.png": ([[_draw_learning]], (5.5, 2.6)),
    "examples/figures/cifar10.png": ([_IMAGES], (3.1, 1.5)),
}

"""The pages' tables and figures, from the stored files.

A block is on a page between ``<!-- evidence: NAME -->`` and ``<!-- end -->``: the table of `TABLES`
with this name, or else the output of a command, stored as docs/evidence/NAME.txt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from policies.benchmark.figures import save_figure
from policies.benchmark.intervals import Interval, rounded
from policies.benchmark.styles import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md")
_UNITS = {"d": 86_400.0, "min": 60.0, "s": 1.0, "%": 0.01}
_BITS = (2, 4, 8, 32)


def standings(name: str) -> pd.DataFrame:
    """The rows of a stored leaderboard by setting and scheduler.

    The columns `time`, `time_low` and `time_high` are the time to the target if models are
    trained, and the total time otherwise.
    """
    table = pd.read_csv(ROOT / f"docs/leaderboards/{name}.csv")
    trained = table.groupby("setting")["time_to_target"].transform("count") > 0
    for end in ("", "_low", "_high"):
        table[f"time{end}"] = table[f"time_to_target{end}"].where(
            trained, table[f"total_time{end}"]
        )
    return table.set_index(["setting", "scheduler"])


def shown(row: pd.Series, column: str, unit: str, most_decimals: int = 3) -> str:
    """A mean of a leaderboard with half of its interval, in a unit."""
    mean, low, high = (row[f"{column}{end}"] / _UNITS[unit] for end in ("", "_low", "_high"))
    half = (high - low) / 2 * (1 - 1e-6)  # files have eight digits
    return rounded(Interval(mean, mean - half, mean + half), most_decimals)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with its numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def printed(name: str) -> str:
    """The output of a command, without progress bars, run time and paths of results."""
    text = (ROOT / f"docs/evidence/{name}.txt").read_text(encoding="utf-8")
    text = re.sub(r"real time of a round: (.* s, ?\n)*.* s\n", "", text)
    lines = [line.rstrip() for line in text.splitlines() if "━" not in line]
    left = r"\n(Results|Figures|Written)\b[^\n]*: [^\n]+\s*$"
    return re.sub(r"\n{3,}", "\n\n", re.sub(left, "\n", "\n".join(lines))).strip("\n")


def measured() -> str:
    """Times and distances from the outcome bound in five systems."""
    rows, stored = [], standings("opportunistic")
    names = "LROA", "Opportunistic", "Quickest"
    for setting in dict.fromkeys(stored.index.get_level_values("setting")):
        unit = "min" if "digits" in setting else "d"
        times = [shown(stored.loc[(setting, name)], "total_time", unit) for name in names]
        gaps = [f"{stored.loc[(setting, name), 'outcome_gap']:.3g}" for name in names]
        rows.append([f"{setting}, {unit}", *times, *gaps])
    return table(["", *names, *(f"{name}'s gap" for name in names)], rows)


TABLES: dict[str, Callable[[], str]] = {"measured": measured}


def block(name: str) -> str:
    """The text of a block by its name."""
    return TABLES[name]() if name in TABLES else f"```text\n{printed(name)}\n```"


def draw_uploads(path: Path) -> None:
    """Time against the bits of an upload: a panel for each system and a line for each policy."""
    stored = standings("uploads")
    systems = ("CIFAR-10", "cell", "phones", "digits")
    panels = [partial(_draw_bits, stored=stored, system=system) for system in systems]
    save_figure([panels[:2], panels[2:]], [path], panel_size=(3.5, 2.3))


def _draw_bits(axes: Axes, stored: pd.DataFrame, system: str) -> None:
    unit, column = ("min", "time_to_target") if system == "digits" else ("d", "total_time")
    names = list(dict.fromkeys(stored.index.get_level_values("scheduler")))
    for name, look in looks(names).items():
        keys = [(f"{system}, {bits} bits", name) for bits in _BITS]
        if keys[0] not in stored.index:
            continue
        rows = stored.loc[keys]
        times, ok = rows[column].to_numpy() / _UNITS[unit], (rows["status"] == "ok").to_numpy()
        axes.plot(_BITS, times, color=look.color, linestyle=look.linestyle, label=name)
        for kept, face in ((ok, look.color), (~ok, "white")):
            dots = [(bits, each) for bits, each, one in zip(_BITS, times, kept, strict=True) if one]
            axes.plot(
                *zip(*dots, strict=True) if dots else ([], []),
                "o",
                color=look.color,
                markerfacecolor=face,
            )
    axes.plot([], [], "o", color="grey", markerfacecolor="white", label="not ok")
    axes.set_xscale("log", base=2)
    axes.set_xticks(_BITS, [str(bits) for bits in _BITS])
    what = "time to 90 %" if system == "digits" else "total time"
    axes.set(title=system, xlabel="bits for each parameter", ylabel=f"{what} [{unit}]")
    axes.set_ylim(bottom=0.0)


FIGURES: dict[str, Callable[[Path], None]] = {"examples/figures/uploads.png": draw_uploads}

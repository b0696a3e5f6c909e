"""Stored results: leaderboards, comparisons and printed text, as pages tell them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from policies.benchmark.intervals import Interval, mean_interval, rounded

ROOT = Path(__file__).parents[1]
MARK = "\0"  # around each number of a sentence

UNITS = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0, "%": 0.01, "": 1.0}


def n(value: float | str, spec: str = "") -> str:
    """A number of the files, marked in a sentence."""
    return f"{MARK}{value:{spec}}{MARK}"


def span(values: Sequence[float], spec: str = ".0f") -> str:
    """The least and the greatest of some numbers, marked in a sentence."""
    return f"{n(min(values), spec)} to {n(max(values), spec)}"


def interval(mean: float, low: float, high: float, most: int = 3) -> str:
    """A mean and half of its interval, as the tables of a leaderboard round them."""
    half = (high - low) / 2 * (1 - 1e-6)  # files have eight digits
    return rounded(Interval(mean, mean - half, mean + half), most)


class Standings:
    """A stored leaderboard: what it has of a scheduler in a setting.

    The column `time` is that to the target where models are trained, and the total time elsewhere.
    """

    def __init__(self, name: str) -> None:
        table = pd.read_csv(ROOT / f"docs/leaderboards/{name}.csv")
        trained = table.groupby("setting")["time_to_target"].transform("count") > 0
        for end in ("", "_low", "_high"):
            target, total = table[f"time_to_target{end}"], table[f"total_time{end}"]
            table[f"time{end}"] = target.where(trained, total)
        self.rows = table.set_index(["setting", "scheduler"])
        self.settings = list(table["setting"].unique())

    def of(self, setting: str, scheduler: str, column: str, unit: str = "") -> float:
        """A mean, in a unit."""
        return float(self.rows.loc[(setting, scheduler), column]) / UNITS[unit]

    def shown(
        self, setting: str, scheduler: str, column: str, unit: str = "", most: int = 3
    ) -> str:
        """A mean with half of its interval."""
        names = (column, f"{column}_low", f"{column}_high")
        return interval(*(self.of(setting, scheduler, each, unit) for each in names), most)

    def ratio(self, setting: str, scheduler: str, other: str) -> float:
        """The mean time of one scheduler over that of another."""
        return self.of(setting, scheduler, "time") / self.of(setting, other, "time")

    def time(self, setting: str, scheduler: str, unit: str) -> str:
        """The mean time with half of its interval, in brackets where the scheduler is not ok."""
        text = self.shown(setting, scheduler, "time", unit)
        return text if scheduler in self.ok(setting) else f"({text})"

    def times(self, scheduler: str, unit: str) -> list[str]:
        """For each setting the mean time with half of its interval, as numbers of a sentence."""
        return [n(self.shown(setting, scheduler, "time", unit)) for setting in self.settings]

    def ok(self, setting: str) -> list[str]:
        """Those that are ok in a setting, from the best on."""
        rows = self.rows.loc[setting]
        return list(rows[rows["status"] == "ok"].sort_values("rank").index)

    def ran(self, setting: str) -> list[str]:
        """Those that were run in a setting."""
        rows = self.rows.loc[setting]
        return list(rows[rows["seeds"].notna()].index)

    def counted(self, setting: str, scheduler: str, what: str) -> str:
        """The first number that stands where `what` has braces, in the reason of a status."""
        reason = self.rows.loc[(setting, scheduler), "status_reason"]
        found = re.search(re.escape(what).replace(r"\{\}", r"([\d.,]+)"), str(reason))
        return found[1] if found else "0"


class Runs:
    """A stored comparison: what it has of a policy, over its runs."""

    def __init__(self, name: str) -> None:
        self.runs = pd.read_csv(ROOT / f"docs/evidence/{name}.csv").groupby("policy")

    def of(self, policy: str, column: str, unit: str = "") -> float:
        """A mean, in a unit."""
        return float(self.runs.get_group(policy)[column].mean()) / UNITS[unit]

    def shown(self, policy: str, column: str, unit: str = "", most: int = 3) -> str:
        """A mean with half of its interval."""
        values = self.runs.get_group(policy)[column] / UNITS[unit]
        return interval(*mean_interval(values), most)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with its numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def printed(name: str) -> str:
    """What a command printed, but for its bars, how long it took and where its results are."""
    text = (ROOT / f"docs/evidence/{name}.txt").read_text(encoding="utf-8")
    text = re.sub(r"real time of a round: (.* s, ?\n)*.* s\n", "", text)
    lines = [line.rstrip() for line in text.splitlines() if "━" not in line]
    left = r"\n(Results|Figures|Written)\b[^\n]*: [^\n]+\s*$"
    return re.sub(r"\n{3,}", "\n\n", re.sub(left, "\n", "\n".join(lines))).strip("\n")

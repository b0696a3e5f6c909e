"""What is left of a gain when the others get good resources too: the tables of docs/shares.md.

python examples/gains.py

Reads the standings of `examples/leaderboards/shares.toml`. Numbers in brackets are of schedulers
that are not ok: they have spent too much or left devices out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

SELECTORS = ("Random", "Round robin", "Best channel", "Proportional fair")
EQUAL = ", equal parts"


def main() -> None:
    """Print what shares save, and what a choice of devices saves, as tables of Markdown."""
    parser = argparse.ArgumentParser(description="Print the tables of docs/shares.md.")
    parser.add_argument(
        "standings",
        nargs="?",
        default=Path(__file__).parent.parent / "docs/leaderboards/shares.csv",
        help="leaderboard.csv of a results folder; that of the page by default",
    )
    rows = pd.read_csv(parser.parse_args().standings).set_index(["setting", "scheduler"])
    systems = [name for name, _ in rows.index if f"{name}{EQUAL}" in rows.index.levels[0]]
    systems = list(dict.fromkeys(systems))

    def saved(better: tuple[str, str], worse: tuple[str, str]) -> str:
        """By how much one round is shorter than another, in percent."""
        percent = 100.0 * (1.0 - rows.total_time[better] / rows.total_time[worse])
        fine = rows.status[better] == rows.status[worse] == "ok"
        return f"{percent:.1f}" if fine else f"({percent:.1f})"

    def table(title: str, columns: dict[str, Callable[[str], str]]) -> None:
        print(f"\n{title}\n\n| system | {' | '.join(columns)} |")
        print(f"| --- |{' ---: |' * len(columns)}")
        for system in systems:
            print(f"| {system} | {' | '.join(cell(system) for cell in columns.values())} |")

    shares: dict[str, Callable[[str], str]] = {
        f"{selector}, {kind}": lambda system, selector=selector, kind=kind: saved(
            (system, f"{selector}, {kind}-shared"), (system, f"{selector}, {kind}")
        )
        for kind in ("static", "dynamic")
        for selector in SELECTORS
    }
    shares["Opportunistic"] = lambda system: saved(
        (system, "Opportunistic"), (f"{system}{EQUAL}", "Opportunistic")
    )
    table("What shares of the band save of a round, in percent:", shares)
    choice: dict[str, Callable[[str], str]] = {
        f"{name}, {kind}": lambda system, name=name, kind=kind: saved(
            (system, f"{name}, {kind}"), (system, f"Random, {kind}")
        )
        for kind in ("static", "dynamic-shared")
        for name in SELECTORS[1:]
    }
    table("What a choice of devices saves beside a random one, in percent:", choice)


if __name__ == "__main__":
    main()

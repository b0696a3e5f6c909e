"""The ranks of policies in one setting and over several, by priced time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from policies.benchmark.intervals import relative_interval
from policies.benchmark.status import OK
from policies.benchmark.summary import by_policy


def by_seed(summary: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs of each policy, in order of appearance, with their seeds as the index."""
    return {name: group.set_index("seed") for name, group in by_policy(summary)}


def is_ok(runs: pd.DataFrame) -> bool:
    """Whether the policy of these runs meets its constraints."""
    return bool((runs["status"] == OK).all())


def ranking_column(summary: pd.DataFrame) -> str:
    """The column by which `ranked` orders policies of equal status."""
    return "priced_time_to_target" if "priced_time_to_target" in summary else "priced_time"


def ranked(summary: pd.DataFrame) -> list[str]:
    """Policies from the best to the worst: those that are ok first, then by priced time.

    With a target this is the priced time to the target, and policies that reach it in every run
    come first.
    """
    rank = {}
    for name, group in by_policy(summary):
        time = group[ranking_column(summary)]
        missed = int(time.isna().sum())
        time = group["priced_time"] if missed else time
        rank[name] = (not is_ok(group), missed, float(time.mean()))
    return sorted(rank, key=lambda name: rank[name])


def ranks(summary: pd.DataFrame) -> dict[str, tuple[int, int, int]]:
    """The rank of each policy that is ok, and the first and last rank that chance explains.

    Two policies tie if the 95 % interval of their ratio, paired by seed, contains 1. A single seed
    separates all.
    """
    runs = by_seed(summary)
    time = ranking_column(summary)
    names = [name for name in ranked(summary) if is_ok(runs[name])]
    found = {name: [place, 1, len(names)] for place, name in enumerate(names, 1)}
    for name, other in combinations(names, 2):  # the better one first
        tie = relative_interval(runs[other][time], runs[name][time]).low <= 0
        found[other][1] += not tie
        found[name][2] -= not tie
    return {name: (place, first, last) for name, (place, first, last) in found.items()}


def ranked_overall(summaries: Sequence[pd.DataFrame]) -> list[str]:
    """The policies of several settings by the number in which they are ok, then by mean rank.

    The rank is the last in a setting that a policy did not run. A policy that is ahead of another
    in every setting is ahead here.
    """
    orders = [ranked(summary) for summary in summaries]
    names = list(dict.fromkeys(name for order in orders for name in order))
    good = dict.fromkeys(names, 0)
    places = dict.fromkeys(names, 0)
    for summary, order in zip(summaries, orders, strict=True):
        for name, runs in by_policy(summary):
            good[name] += is_ok(runs)
        for name in names:
            places[name] += order.index(name) if name in order else len(names)
    return sorted(names, key=lambda name: (-good[name], places[name]))

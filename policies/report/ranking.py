"""The ranks of policies in one setting and over several, by priced time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
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
        missed = time.isna().sum()
        time = group["priced_time"] if missed else time
        rank[name] = (not is_ok(group), missed, time.mean())
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
    """The policies of several settings by `mean_rank`.

    Policies with equal mean ranks are in the order of the first setting.
    """
    names = list(dict.fromkeys(name for summary in summaries for name in ranked(summary)))
    found = [ranks(summary) for summary in summaries]
    means = {
        name: mean_rank([each[name][0] if name in each else np.nan for each in found], len(names))
        for name in names
    }
    return sorted(names, key=lambda name: means[name])


def mean_rank(ranks: Sequence[float], policies: int) -> float:
    """The mean of a policy's ranks over settings.

    A policy that is not ok or did not run in a setting, where its rank is NaN, has the last: the
    number of policies.
    """
    return float(np.nan_to_num(ranks, nan=policies).mean())

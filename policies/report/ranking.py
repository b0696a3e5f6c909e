"""The ranks of policies in one setting and over several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from policies.benchmark.status import OK
from policies.benchmark.summary import by_policy


def is_ok(runs: pd.DataFrame) -> bool:
    """Whether the policy of these runs meets its constraints."""
    return bool((runs["status"] == OK).all())


def ranking_column(summary: pd.DataFrame) -> str:
    """The column by which `ranked` orders policies of equal status."""
    return "time_to_target" if "time_to_target" in summary else "total_time"


def ranked(summary: pd.DataFrame) -> list[str]:
    """Policies from the best to the worst: those that are ok first, then by time.

    With a target this is the time to the target, and policies that reach it in every run come
    first.
    """
    rank = {}
    for name, group in by_policy(summary):
        time = group[ranking_column(summary)]
        missed = int(time.isna().sum())
        time = group["total_time"] if missed else time
        rank[name] = (not is_ok(group), missed, float(time.mean()))
    return sorted(rank, key=lambda name: rank[name])


def ranked_overall(summaries: Sequence[pd.DataFrame]) -> list[str]:
    """The policies of several settings: first those that are ok wherever they run, by mean rank.

    The others follow by the number of settings in which they are ok, then by mean rank. A policy
    that is ahead of another in every setting is ahead here.
    """
    good = dict[str, list[bool]]()
    ranks = dict[str, list[int]]()
    for summary in summaries:
        runs = dict(by_policy(summary))
        for rank, name in enumerate(ranked(summary)):
            good.setdefault(name, []).append(is_ok(runs[name]))
            ranks.setdefault(name, []).append(rank)

    def place(name: str) -> tuple[bool, int, float]:
        always = all(good[name])
        return not always, 0 if always else -sum(good[name]), float(np.mean(ranks[name]))

    return sorted(ranks, key=place)

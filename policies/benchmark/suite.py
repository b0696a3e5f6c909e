"""What a suite tells of a policy: its ranks beside stored results, and if it knows the seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from policies.benchmark.statistics import mean_interval
from policies.benchmark.status import OK
from policies.benchmark.tables import by_policy, judged_by, ranked
from policies.lroa import LROA

KNOWS_SEEDS = "knows the seeds"
# A policy knows the suite's seeds if it is so much faster on them than on secret ones, relative,
# and if by luck it would be in at most this share of the suites.
_LEAST_LEAD = 0.02
_FALSE_ALARMS = 0.01


def lead_on_known(known: pd.Series, others: pd.Series, num_settings: int) -> str:
    """What tells that a policy knows some seeds, empty if nothing does.

    By the Mann-Whitney test over seeds of whether its times over LROA's are less on the seeds that
    it may know than on others. It counts ranks: no time of a run, however long, hides the others.
    """
    lead = float(others.mean() / known.mean()) - 1.0
    if not lead > _LEAST_LEAD:
        return ""
    luck = mannwhitneyu(others, known, alternative="greater").pvalue
    if not luck <= _FALSE_ALARMS / num_settings:
        return ""
    return f"{100 * lead:.1f} % slower on seeds that it cannot know"


def judged(runs: pd.DataFrame, policy: str, references: pd.DataFrame) -> pd.DataFrame:
    """The runs of a policy on the suite's seeds, with a status that regards the secret ones.

    There it must be ok, too, and not slower.
    """
    whole = []
    for setting, rows in runs.groupby("setting", sort=False):
        secret, own = rows["kind"] == "secret", rows["policy"] == policy
        mine, there = rows[own & ~secret], rows[own & secret].iloc[0]
        beside = references[references["setting"] == setting]
        known = _over_lroa(pd.concat([mine, beside]), "total_time")[policy].dropna()
        others = _over_lroa(rows[secret], "total_time")[policy]
        if reason := lead_on_known(known, others, runs["setting"].nunique()):
            mine = mine.assign(status=KNOWS_SEEDS, status_reason=reason)
        elif (mine["status"] == OK).all() and there["status"] != OK:
            reason = f"on secret seeds {there['status_reason']}"
            mine = mine.assign(status=there["status"], status_reason=reason)
        whole.append(mine)
    return pd.concat(whole, ignore_index=True)


def standings(runs: pd.DataFrame, references: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for each setting and policy, from the best to the worst.

    The runs stand beside those of the references in the same settings under the same seeds. `rank`
    is NaN where the `status` is not ok. `ratio`, from `low` to `high`, is the time over that of
    LROA on the same seeds, with its 95 % interval; the time is that to the target where there is
    one, and NaN where the target is missed in a run.
    """
    if references is not None:
        same = runs[["setting", "seed"]].drop_duplicates()
        runs = pd.concat([runs, references.merge(same)], ignore_index=True)
    rows: list[dict[str, object]] = []
    for setting, group in runs.groupby("setting", sort=False):
        table = group.dropna(axis="columns", how="all")  # those of training where there is none
        ratios = _over_lroa(table, judged_by(table))
        told = table.groupby("policy")[["status", "status_reason"]].first()
        for rank, policy in enumerate(ranked(table), 1):
            status, reason = told.loc[policy]
            row = {"setting": setting, "policy": policy, "status": status, "reason": reason}
            row |= mean_interval(ratios[policy])._asdict()
            rows.append(row | {"rank": rank if status == OK else np.nan})
    return pd.DataFrame(rows).rename(columns={"mean": "ratio"})


def _over_lroa(runs: pd.DataFrame, time: str) -> pd.DataFrame:
    """Times over LROA's, a row for each seed and a column for each policy."""
    times = runs.pivot(index="seed", columns="policy", values=time)
    return times.div(times[LROA.name], axis="index")


def overall(standings: pd.DataFrame) -> pd.DataFrame:
    """A row for each policy, from the best to the worst.

    `ok` is the number of settings in which it is ok and reaches the target, if there is one, and
    `mean` the geometric mean over these of its time over LROA's. More settings come first, and
    then the lesser mean.
    """
    good = standings[(standings["status"] == OK) & standings["ratio"].notna()]
    rows = {
        policy: {"ok": len(group), "mean": float(np.exp(np.log(group["ratio"]).mean()))}
        for policy, group in by_policy(good)
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["ok", "mean"])
    table = table.reindex(standings["policy"].unique()).fillna({"ok": 0}).astype({"ok": int})
    return table.sort_values(["ok", "mean"], ascending=[False, True])

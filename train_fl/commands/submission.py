"""New policies in a suite, ranked among its stored results on seeds that nobody knew."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fl_edge_env.files import as_value_error
from policies.benchmark.comparison import Comparison
from policies.benchmark.intervals import Interval, relative_interval
from policies.benchmark.results_folder import write_text
from policies.benchmark.setting import Setting
from policies.benchmark.status import OK
from policies.report.ranking import by_seed, is_ok, mean_rank, ranking_column
from policies.report.tables import rank_text
from train_fl.commands.leaderboard_file import FileSetting
from train_fl.commands.settings import PolicySpec

# The stored scheduler that also plays the fresh seeds, and so relates them to stored ones.
_REFERENCE = "Opportunistic"
FRESH_SEEDS = 10
_SEED_FILE = "fresh_seed.txt"
_MOST_SEED = 2**62  # too many to try
# Settings of suite-1 without training in which the stored schedulers' mean ranks are nearly in the
# order of their mean ranks in all settings (Spearman's correlation is above 0.9).
QUICK = ("CIFAR-10", "cell", "FEMNIST, 200 devices, correlated channel")


@dataclass(frozen=True)
class Verdict:
    """A newcomer's place in a setting of a suite.

    `ratio` is its priced time over Opportunistic's, minus one, and None if one of them misses the
    target or it was not run. `place` has its rank and the ranks that chance explains, None without
    a ratio or if it is not ok.
    """

    setting: str
    policy: str
    status: str
    reason: str = ""
    ratio: Interval | None = None
    place: tuple[int, int, int] | None = None


def with_newcomers(one: FileSetting, names: Sequence[str]) -> FileSetting:
    """A setting for new policies, and Opportunistic first."""
    return replace(one, policies=tuple(map(PolicySpec, (_REFERENCE.lower(), *names))))


def check_newcomers(settings: Sequence[Setting], stored: pd.DataFrame) -> None:
    """Raise `ValueError` for a stored scheduler's name, or if no newcomer can run."""
    labels = [run.label for setting in settings for run in setting.runs[1:]]
    for label in {*labels} & {*stored["policy"]}:
        raise ValueError(f"{label!r} is a stored scheduler: rename your policy")
    if not labels:
        where = ", ".join(setting.name for setting in settings)
        learners = ", ".join(settings[0].left_out)
        raise ValueError(f"no setting trains models, which {learners} need: {where}")


def fresh_seeds(folder: Path, first: int | None, stored: pd.DataFrame) -> list[int]:
    """Seeds from a given first one, or from one that is drawn once for a folder and kept in it."""
    file = folder / _SEED_FILE
    if first is None and file.exists():
        with as_value_error(f"{str(file)!r} must hold a seed: "):
            first = int(file.read_text(encoding="utf-8"))
    if first is None:
        first = int(stored["seed"].max()) + 1 + secrets.randbelow(_MOST_SEED)
        write_text(file, f"{first}\n")
    seeds = range(first, first + FRESH_SEEDS)
    known = {*seeds} & {*stored["seed"]}
    if known:
        raise ValueError(f"fresh seeds must not be stored ones, got {min(known)}")
    return [*seeds]


def verdicts(
    stored: pd.DataFrame, settings: Sequence[Setting], fresh: Mapping[str, Comparison]
) -> list[Verdict]:
    """Each newcomer's verdict in each setting."""
    found = []
    for setting in settings:
        result = fresh.get(setting.name)
        left_out = setting.left_out if result is None else result.left_out
        found += [Verdict(setting.name, name, why) for name, why in left_out.items()]
        if result is not None and _REFERENCE not in left_out:
            known = stored[stored["setting"] == setting.name].dropna(axis="columns", how="all")
            found += _verdicts(setting.name, by_seed(known), result.summary)
    return found


def _verdicts(
    setting: str, known: Mapping[str, pd.DataFrame], summary: pd.DataFrame
) -> Iterator[Verdict]:
    """The verdicts of a setting, by the stored runs of each scheduler and by all fresh ones."""
    time = ranking_column(summary)
    fresh = by_seed(summary)
    reference = fresh.pop(_REFERENCE)[time]
    stored = known[_REFERENCE][time]
    rivals = [
        relative_interval(group[time], stored)
        for group in known.values()
        if is_ok(group) and _reached(group[time], stored)
    ]
    for name, group in fresh.items():
        status, reason = group.iloc[0][["status", "status_reason"]]
        verdict = Verdict(setting, name, status, reason)
        if not _reached(group[time], reference, stored):
            why = reason or "a run of it or of Opportunistic misses the target"
            yield replace(verdict, reason=why)
            continue
        ratio = relative_interval(group[time], reference)
        place = _place(ratio, rivals) if status == OK else None
        yield replace(verdict, ratio=ratio, place=place)


def _place(ratio: Interval, rivals: Sequence[Interval]) -> tuple[int, int, int]:
    """The rank among rivals, and the first and last rank if intervals that overlap tie."""
    ahead = sum(rival.mean < ratio.mean for rival in rivals)
    first = sum(rival.high < ratio.low for rival in rivals)
    last = len(rivals) - sum(rival.low > ratio.high for rival in rivals)
    return ahead + 1, first + 1, last + 1


def _reached(*times: pd.Series) -> bool:
    """Whether all runs have reached the target, if there is one."""
    return all(time.notna().all() for time in times)


def verdict_lines(found: Sequence[Verdict], stored: pd.DataFrame) -> str:
    """The verdicts as lines: ranks in each setting, their mean, and the reasons of others."""
    last = stored["policy"].nunique() + 1
    lines = []
    for name in dict.fromkeys(each.policy for each in found):
        mine = [each for each in found if each.policy == name]
        lines.append(f"\n{name}, ranks on fresh seeds and priced time against Opportunistic's")
        for each in mine:
            line = each.status if each.place is None else rank_text(*each.place)
            line += "" if each.ratio is None else f", {100 * each.ratio.mean:+.1f} %"
            lines.append(f"- {each.setting}: {line}" + (f" ({each.reason})" if each.reason else ""))
        places = [math.nan if each.place is None else each.place[0] for each in mine]
        lines.append(
            f"\nmean rank {mean_rank(places, last):.3g} in {len(mine)} of "
            f"{stored['setting'].nunique()} settings, with {last} for settings without a rank"
        )
    return "\n".join(lines)

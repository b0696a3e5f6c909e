"""Comparisons: the settings of a command are run, and what came of each is judged once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fl_edge_env.files import writable_folder
from policies.benchmark.records import DeviceAccounts, Record, joined
from policies.benchmark.run import AnyRun
from policies.benchmark.runner import RunsFailedError, play_runs
from policies.benchmark.setting import Setting
from policies.benchmark.status import judge, limits
from policies.benchmark.stored import keep_prices
from policies.benchmark.summary import labelled, summarise, weights_until


@dataclass(frozen=True)
class Comparison:
    """The results of a setting, which all tables, figures and files show.

    Attributes
    ----------
    summary : DataFrame
        A row for each run; see `policies.benchmark.summary.summarise`.
    target : float, optional
        The test accuracy by whose time policies are ranked.
    notes : str
        The limits of the status in a run, and what these runs cannot show, in lines.
    name : str
        The setting's name.
    left_out : mapping of str to str
        Policies without results, with reasons.
    rounds : DataFrame
        A row for each round of each run; `policy` has the labels, `status` what they have.
    bounds : DataFrame
        The bounds of each round and seed, empty if they were not computed.
    """

    summary: pd.DataFrame
    target: float | None = None
    notes: str = ""
    name: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    rounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    bounds: pd.DataFrame = field(default_factory=pd.DataFrame)


def collected(
    setting: Setting,
    records: Sequence[tuple[str, Record]],
    bounds: Sequence[Record],
    left_out: Mapping[str, str],
) -> Comparison:
    """Collect the records of a setting by label, add its bounds, and judge each policy once."""
    rounds = labelled("policy", ((label, record.rounds) for label, record in records))
    by_label: dict[str, list[DeviceAccounts]] = {label: [] for label, _ in records}
    for label, record in records:
        assert record.accounts is not None  # only bounds have none
        by_label[label].append(record.accounts)
    accounts = {label: joined(each) for label, each in by_label.items()}
    weights = weights_until(rounds, setting.target)
    statuses = {label: judge(each, weights[label]) for label, each in accounts.items()}
    tables = [record.rounds for record in bounds] or [pd.DataFrame()]
    path_bounds = pd.concat(tables, ignore_index=True)
    names = {label: status.name for label, status in statuses.items()}
    return Comparison(
        summary=summarise(rounds, accounts, statuses, setting.target, path_bounds),
        target=setting.target,
        notes="\n".join([limits(next(iter(accounts.values()))), *_notes(setting)]),
        name=setting.name,
        left_out=left_out,
        rounds=rounds.assign(status=rounds["policy"].map(names)),
        bounds=path_bounds,
    )


def _notes(setting: Setting) -> list[str]:
    """A note on policies with different uploads, if there are any."""
    first, *rest = setting.runs
    other = [run.label for run in rest if run.scenario.compression != first.scenario.compression]
    if not other:
        return []
    return [f"Uploads differ from {first.label}'s, and times with them: {', '.join(other)}."]


def compare_settings(
    settings: Sequence[Setting],
    folder: Path | None,
    console: Console,
    **options: Any,
) -> Iterator[Comparison]:
    """Run settings, or only the runs that a folder lacks, with a progress bar.

    For the keywords see `policies.benchmark.runner.play_runs`. If runs failed, the comparisons
    leave out their policies, and `RunsFailedError` comes after them.
    """
    with console.status("finding the prices of the bounds", spinner="line"):
        for setting in settings:
            if folder is not None:
                keep_prices(setting.scenario, writable_folder(folder / "prices"))
        runs_by_setting = [setting.seeded_runs() for setting in settings]
    # Short runs last, so that no process waits for a long one at the end.
    runs: list[AnyRun] = [run for policies, _ in runs_by_setting for run in policies]
    runs += [run for _, bounds in runs_by_setting for run in bounds]
    failure = None
    try:
        played = play_runs(runs, folder=folder and folder / "records", console=console, **options)
        records = dict(zip(runs, played, strict=True))
    except RunsFailedError as error:
        failure = error
        records = error.records
    for setting, (policies, bounds) in zip(settings, runs_by_setting, strict=True):
        setting.warn_beyond_seeds()
        failed = {run.label: "failed" for run in policies if run not in records}
        kept = [(run.label, records[run]) for run in policies if run.label not in failed]
        known = [records[run] for run in bounds if run in records]
        if len(known) < len(bounds):
            known = []  # distances need the bounds of all seeds
        if kept:
            yield collected(setting, kept, known, {**setting.left_out, **failed})
    if failure is not None:
        raise failure

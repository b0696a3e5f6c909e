"""Running a policy through the frozen suite, and verifying what somebody else says it did there."""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import as_value_error, read_text
from policies.benchmark.command_line import print_whole
from policies.benchmark.commands.suite_file import CURRENT, Part, Suite, read_suite
from policies.benchmark.commands.training import MakeTraining, Scheduler
from policies.benchmark.experiment import run_settings
from policies.benchmark.jobs import check_seeds, code_hash
from policies.benchmark.options import RunOptions
from policies.benchmark.results_folder import (
    Kind,
    check_trusted,
    claimed,
    default_folder,
    file_hashes,
    made_with,
    reopened,
    write_csv,
    write_text,
)
from policies.benchmark.status import LEAVES_OUT, OK, OVER_BUDGET
from policies.benchmark.suite import KNOWS_SEEDS, judged, overall, standings
from policies.check_policy import check_policy
from policies.own import running_own

SUITE = Kind("suite", ("result.json",))
_REFERENCES = Kind("suite's references", ("references.csv",))
# How far numbers may differ between machines, relative.
_TOLERANCE = 1e-6
# What a result holds, and what it says of the policy.
_FIELDS = {
    "sha256": str,
    "suite": dict,
    "secret_seeds": list,
    "policy": dict,
    "trained": bool,
    "code": str,
    "runs": list,
}
_POLICY_FIELDS = {"name": str, "label": str, "files": dict}
_STATUSES = (OK, OVER_BUDGET, LEAVES_OUT)
# Of secret seeds: nobody can try all of them.
_SEED_BITS = 62
_KEY = ["setting", "policy", "kind", "seed"]


@dataclass(frozen=True)
class Options(RunOptions):
    """Run a policy in all settings of the frozen suite, and rank it beside stored results.

    It also plays seeds that are drawn in secret: who is slower there knows the suite's seeds. If a
    run is interrupted, the same command continues it; finished runs are not repeated.
    """

    policy: Annotated[str | None, tyro.conf.Positional] = None
    """A class of your own as my_file.py:MyPolicy, the folder of a trained agent, or a name."""
    label: str | None = None
    """Its name in the tables; the policy's own by default."""
    train: bool = False
    """Also run the settings in which real models are trained."""
    verify: Path | None = None
    """Check a result.json: its hashes, and by playing a sample of its runs again."""
    replays: int = 3
    """Settings that --verify plays again."""
    references: bool = False
    """Run the suite's own schedulers, whose results are stored beside it."""


def suite(
    options: Options, console: Console, make_training: MakeTraining, file: Path = CURRENT
) -> None:
    """Run a policy through a suite, print its ranks and write its result; or verify a result.

    Raises `ValueError` for a wrong option and a folder that holds something else or in which
    another command is at work, `ModuleNotFoundError` where a package is not installed,
    `JobsFailedError` if a run has failed, and `SystemExit` with status 1 for a result that is not
    what its runs give.
    """
    told = read_suite(file, stored=not options.references)
    integer_at_least(1, "replays", options.replays)
    if options.references and (options.policy is not None or options.verify is not None):
        raise ValueError("--references runs the suite's own schedulers: leave the policy out")
    if options.verify is not None:
        _verify(options, options.verify, told, console, make_training)
        return
    kind = _REFERENCES if options.references else SUITE
    options = reopened(options, kind)
    folder = options.out or default_folder(options, told.name)
    configured: dict[str, Any] = {"suite": {"name": told.name, "sha256": told.sha256}}
    if options.references:
        parts = told.reference_parts(make_training, train=options.train)
        with claimed(folder, kind, options, [configured], [], console) as writes:
            runs = _run(told, parts, (), folder, options, console)
            if writes:
                write_csv(folder / "references.csv", runs.drop(columns="kind"))
        return
    if options.policy is None:
        raise ValueError("name a policy, such as my_file.py:MyPolicy, or a result to --verify")
    secret = _secret_seeds(told, folder)
    scheduler = Scheduler(options.policy, label=options.label)
    parts = told.parts(scheduler, make_training, secret, train=options.train)
    label = parts[0][1].entrants[0].label
    if label in set(told.references["policy"]):
        raise ValueError(f"{label!r} stands in the suite: give your run another name by --label")
    for name, setting in parts[::2]:
        policy = setting.entrants[0].policy
        if not policy.needs_training:
            with running_own(f"{options.policy} in the setting {name!r}"):
                check_policy(policy, scenario=setting.scenario)
    configured["secret_seeds"] = secret
    with claimed(folder, kind, options, [configured], [options.policy], console) as writes:
        runs = _run(told, parts, secret, folder, options, console)
        if writes:
            files = _files(options.policy)
            result = {
                **configured,
                "policy": {"name": options.policy, "label": label, "files": files},
                "trained": options.train,
                **made_with(),
                "runs": runs.astype(object).where(runs.notna(), None).to_dict("records"),
            }
            result["sha256"] = _digest(result)
            write_text(folder / "result.json", json.dumps(result, indent=1, allow_nan=False) + "\n")
    _show(told, runs, label, console)
    what = "Result" if writes else "Read, and nothing written to"
    console.print(f"{what}: {folder / 'result.json'}", soft_wrap=True)


def _secret_seeds(told: Suite, folder: Path | None = None) -> list[int]:
    """New ones, or those that the configuration of a folder has."""
    if folder is not None:
        with suppress(Exception):  # `claimed` tells what is wrong with it
            config = json.loads(read_text(folder / SUITE.config))
            return check_seeds(config["settings"][0]["secret_seeds"])
    return [secrets.randbits(_SEED_BITS) for _ in range(told.secret_seeds)]


def _files(policy: str) -> dict[str, str]:
    """Hashes of the files behind a policy, without their folders."""
    return {Path(file).name: sha256 for file, sha256 in file_hashes([policy]).items()}


def _digest(result: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def _run(
    told: Suite,
    parts: Sequence[Part],
    secret: Sequence[int],
    folder: Path,
    options: Options,
    console: Console,
) -> pd.DataFrame:
    """A row for each run, with the suite's metrics."""
    results = run_settings([setting for _, setting in parts], folder, options, console)
    tables = []
    for (name, _), result in zip(parts, results, strict=True):
        table = result.summary()
        kinds = [told.kind(name, seed, secret) for seed in table["seed"]]
        tables.append(table.assign(setting=name, kind=kinds))
    return pd.concat(tables, ignore_index=True).reindex(columns=[*_KEY, *told.metrics])


def _show(told: Suite, runs: pd.DataFrame, label: str, console: Console) -> None:
    """Print the ranks of a policy beside the stored results."""
    mine = judged(runs, label, told.references)
    ranks = standings(mine, told.references)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{label} in {told.name}")
    for header in ("rank", "time over\nLROA's", "on secret\nseeds"):
        table.add_column(header, justify="right")
    table.add_column("status")
    secret = standings(runs[runs["kind"] == "secret"])
    secret = secret[secret["policy"] == label].set_index("setting")
    for _, row in ranks[ranks["policy"] == label].iterrows():
        name, number = row["setting"], ranks[ranks["setting"] == row["setting"]]["rank"].count()
        rank = "–" if np.isnan(row["rank"]) else f"{row['rank']:g} of {number}"
        told_of = f"{name} (held out)" if name in told.held_out_settings else name
        table.add_row(told_of, rank, _time(row), _time(secret.loc[name]), row["reason"] or OK)
    print_whole(table, console)
    order = overall(ranks)
    means = [
        order["mean"][label],
        overall(standings(mine[mine["kind"] == "held out"], told.references))["mean"][label],
    ]
    place = f"rank {order.index.tolist().index(label) + 1} of {len(order)}"
    if (mine["status"] == KNOWS_SEEDS).any():
        place = "not ranked, as it knows the suite's seeds"
    first, held_out = ("–" if np.isnan(mean) else f"{mean:.3f}" for mean in means)
    console.print(
        f"{told.name} (sha256 {told.sha256[:12]}): ok in {order['ok'][label]} of {len(secret)} "
        f"settings, where it takes {first} of LROA's time (geometric mean; {held_out} where the "
        f"seed or the setting is held out): {place}.",
        highlight=False,
    )


def _time(row: pd.Series) -> str:
    if np.isnan(row["ratio"]):
        return "target missed"
    return f"{row['ratio']:.3f}±{(row['high'] - row['low']) / 2:.3f}"


def _verify(
    options: Options, path: Path, told: Suite, console: Console, make_training: MakeTraining
) -> None:
    """Check a result, and end with status 1 where it is not what its runs give."""
    with as_value_error(f"cannot read the result {str(path)!r}: "):
        result = json.loads(read_text(path))
        if not isinstance(result, dict) or "secret_seeds" not in result:
            raise ValueError("it is not one of fl-edge suite")
        _check_fields(result, _FIELDS)
        _check_fields(result["policy"], _POLICY_FIELDS)
        sha256, secret, policy = result.pop("sha256"), result["secret_seeds"], result["policy"]
        name, label = options.policy or policy["name"], policy["label"]
        if options.policy is None:
            check_trusted(options, path, {"policy": name})
        check_seeds(secret)
        runs = _checked_runs(result["runs"], told)
        scheduler, train, code = Scheduler(name, label=label), result["trained"], result["code"]
    differs = []
    if _digest(result) != sha256:
        differs.append("it has been changed since it was written: its content has another hash")
    if result["suite"] != {"name": told.name, "sha256": told.sha256}:
        differs.append(f"it is of another suite than {told.name} (sha256 {told.sha256[:12]})")
    if policy["files"] != _files(scheduler.name):
        differs.append(f"{name} is not what was run: its file has another name or hash")
    if not differs:
        parts = told.parts(scheduler, make_training, secret, train=train)
        expected = [
            (setting, entrant.label, told.kind(setting, seed, secret), seed)
            for setting, part in parts
            for entrant in part.entrants
            for seed in part.seeds
        ]
        held = runs[_KEY].itertuples(index=False, name=None)
        if sorted(held) != sorted(expected) or len(secret) != told.secret_seeds:
            differs.append("it does not have the runs of the suite, each once")
        elif (
            runs.groupby(["setting", "policy", runs["kind"] == "secret"])["status"].nunique() > 1
        ).any():
            differs.append("runs of a policy in a setting differ in their status")
        else:
            _show(told, runs, label, console)
            differs += _replayed(options, told, runs, parts, label, console)
    for what in differs:
        console.print(f"differs: {what}", style="red", highlight=False, soft_wrap=True)
    if differs:
        if code != code_hash():
            console.print("It was made with another version of the code or of a library.")
        sys.exit(1)
    console.print("verified")


def _check_fields(values: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    for field, kind in fields.items():
        got = values.get(field)
        if not isinstance(got, kind):
            told = repr(got)[:40] if field in values else "nothing"
            raise ValueError(f"{field!r} must be a {kind.__name__}, got {told}")


def _checked_runs(rows: Sequence[Any], told: Suite) -> pd.DataFrame:
    """The runs of a result as a table; `ValueError` where a row is none."""
    words = dict.fromkeys(("setting", "policy", "kind", "status", "status_reason"), str)
    for number, row in enumerate(rows):
        with as_value_error(f"run {number}: "):
            if not isinstance(row, dict) or set(row) != {*_KEY, *told.metrics}:
                columns = ", ".join([*_KEY, *told.metrics])
                raise ValueError(f"it must have {columns}, and nothing else")
            _check_fields(row, words | {"seed": int})
            if row["status"] not in _STATUSES:
                raise ValueError(
                    f"status must be one of {', '.join(_STATUSES)}, got {row['status']!r}"
                )
            for metric in set(told.metrics) - set(words):
                if row[metric] is not None:
                    _check_fields(row, {metric: float})
    metrics = dict.fromkeys(set(told.metrics) - set(words), "float64")
    return pd.DataFrame(rows, columns=[*_KEY, *told.metrics]).astype(metrics)


def _replayed(
    options: Options,
    told: Suite,
    runs: pd.DataFrame,
    parts: Sequence[Part],
    label: str,
    console: Console,
) -> list[str]:
    """Play some settings again, and these on seeds drawn now; gives what differs."""
    chance, drawn = secrets.SystemRandom(), _secret_seeds(told)
    names = [name for name, setting in parts[::2] if setting.target is None]
    if len(names) < len(parts) / 2:
        console.print("Trained runs are not played again: their digits follow the processor.")
    names = chance.sample(names, min(options.replays, len(names)))
    again = [(name, setting) for name, setting in parts if name in names]
    anew = [(name, replace(setting, seeds=drawn)) for name, setting in again[1::2]]
    with TemporaryDirectory() as folder:
        played = _run(told, again + anew, drawn, Path(folder), options, console)
    new = played["seed"].isin(drawn)
    differs = []
    pairs = played[~new].merge(runs, on=["setting", "policy", "seed"], suffixes=("", " told"))
    for run in pairs.to_dict("records"):
        for metric in told.metrics:
            if metric != "status_reason" and not _alike(run[metric], run[f"{metric} told"]):
                where = f"{run['setting']}, {run['policy']}, seed {run['seed']}"
                what = f"{metric} is {run[f'{metric} told']}, but {run[metric]} here"
                differs.append(f"{where}: {what}")
    known = runs[runs["setting"].isin(names) & (runs["kind"] != "secret")]
    now = judged(pd.concat([known, played[new]]), label, told.references)
    was = judged(runs, label, told.references)
    for name in names:
        status, reason = now.loc[now["setting"] == name, ["status", "status_reason"]].iloc[0]
        if status not in (OK, was.loc[was["setting"] == name, "status"].iloc[0]):
            differs.append(f"{name}, with seeds drawn now: {reason}")
    console.print(f"played again: {', '.join(names) or 'nothing'}", highlight=False)
    return differs


def _alike(here: Any, there: Any) -> bool:
    if isinstance(here, str):
        return bool(here == there)
    return bool(np.isclose(here, there, rtol=_TOLERANCE, atol=0.0, equal_nan=True))

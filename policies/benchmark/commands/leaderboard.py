"""Ranking schedulers in the settings of a file: tables, a picture and files."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import writable_folder
from policies.base import Policy
from policies.benchmark.bars import run_with_progress
from policies.benchmark.bound import find_prices
from policies.benchmark.command_line import print_whole
from policies.benchmark.commands.comparison_folder import (
    file_hashes,
    named_files,
    plain,
    system,
    versions,
    write_text,
)
from policies.benchmark.commands.folder_lock import only_one
from policies.benchmark.commands.leaderboard_file import (
    SETTING_KEYS,
    Scheduler,
    Setting,
    read_leaderboard,
)
from policies.benchmark.commands.training import (
    MakeTraining,
    Training,
    dataset_of,
    divfl_note,
    make_entrant,
    network_note,
    reports_note,
    training_of,
)
from policies.benchmark.evaluation import check_target, summarise
from policies.benchmark.feasibility import energy_tolerance
from policies.benchmark.jobs import BoundJob, Job, Work, make_jobs
from policies.benchmark.leaderboard import Board, save_overview, standings
from policies.benchmark.live import check_tensorboard, live_files
from policies.benchmark.runner import Backend, check_runner
from policies.benchmark.tables import comparison_markdown, comparison_table, judged_by, ranked
from policies.registry import POLICIES, SELECTORS

_HOW_TO_READ = (
    "Feasible schedulers come first, the fastest before the others. Numbers are means over seeds "
    "with 95 % intervals. Times are compared with those of the leader seed by seed, as all "
    "schedulers meet the same channels."
)

RESULTS = ("leaderboard.csv", "leaderboard.md", "overview.png", "summary.csv")


@dataclass(frozen=True)
class Options:
    """Rank schedulers in the settings of a file.

    With the same seed all schedulers meet the same channel. If a run is interrupted, the same
    command continues it; finished runs are not repeated.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """TOML file with the settings and the schedulers."""
    out: Path | None = None
    """Folder for the results, runs/leaderboard/<file> by default."""
    data_dir: Path = Path("data")
    """Folder with the files of the data sets."""
    workers: int = os.cpu_count() or 1
    """Number of processes."""
    backend: Backend = "processes"
    """Where the processes run: on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints, from which an interrupted training run continues."""
    tensorboard: bool = False
    """Write event files of runs that train models, for `tensorboard --logdir <out>/tensorboard`."""


@dataclass(frozen=True)
class _Entrants:
    """A setting that is ready to run."""

    setting: Setting
    scenario: Scenario
    training: Training | None
    policies: dict[str, Policy]  # by label
    left_out: dict[str, str]  # labels, and why

    @property
    def seeds(self) -> range:
        return self.setting.options.seed_range()

    @property
    def target(self) -> float | None:
        return None if self.training is None else self.setting.options.target_accuracy


@dataclass(frozen=True)
class _Work:
    """The jobs of a setting: those of each label, and those of the bounds."""

    runs: dict[str, list[Job]]
    bounds: list[BoundJob]


def leaderboard(options: Options, console: Console, make_training: MakeTraining) -> None:
    """Run all schedulers in all settings, print the tables and write the results.

    Parameters
    ----------
    options : Options
        The file, and how to run it.
    console : rich.console.Console
        Where to print.
    make_training : callable
        Prepares training where a setting asks for it.

    Raises
    ------
    ValueError
        If the file or an option is wrong, or another command is at work in the folder.
    ModuleNotFoundError
        If a package that a setting needs is not installed.
    JobsFailedError
        If a run has failed.
    """
    check_runner(options.workers, options.backend, options.checkpoint_every)
    settings = read_leaderboard(options.file, options.data_dir)
    systems = [_system(setting, make_training) for setting in settings]
    entrants = [_entrants(setting, *made) for setting, made in zip(settings, systems, strict=True)]
    trained = any(each.training is not None for each in entrants)
    check_tensorboard(options.tensorboard, trained=trained)
    folder = writable_folder(options.out or Path("runs") / "leaderboard" / options.file.stem)
    with only_one(folder):
        _make_room(folder, config := _config(options, entrants))
        write_text(folder / "config.json", json.dumps(config, indent=2, allow_nan=False) + "\n")
        work = [_work(each) for each in entrants]
        # The short jobs last, so that no process waits for a long one at the end.
        jobs: list[Work] = [job for each in work for jobs in each.runs.values() for job in jobs]
        jobs += [job for each in work for job in each.bounds]
        results = run_with_progress(
            "runs",
            jobs,
            folder=folder / "jobs",
            workers=options.workers,
            backend=options.backend,
            address=options.address,
            checkpoint_every=options.checkpoint_every,
            record=live_files(folder, tensorboard=options.tensorboard),
            console=console,
        )
        rounds = {id(job): result for job, result in zip(jobs, results, strict=True)}
        boards = {
            each.setting.name: _board(each, done, rounds)
            for each, done in zip(entrants, work, strict=True)
        }
        _write(boards, entrants, folder, f"Leaderboard: {options.file.stem}")
    for each in entrants:
        _show(boards[each.setting.name], each, console)
    console.print(f"Results: {folder}", soft_wrap=True)


def _system(setting: Setting, make_training: MakeTraining) -> tuple[Scenario, Training | None]:
    """The system of a setting, with training as it is fitted to the data."""
    options = setting.options
    try:
        options.seed_range()
        options.check_reports()
        check_target(options.target_accuracy)
        scenario = options.make_scenario()
        if not options.train:
            return scenario, None
        training = training_of(options, scenario, make_training)
    except ValueError as error:
        raise ValueError(f"setting {setting.name!r}: {error}") from None
    return training.scenario, training


def _entrants(setting: Setting, scenario: Scenario, training: Training | None) -> _Entrants:
    """Make the policies of a setting, and leave out those that cannot run in it."""
    policies: dict[str, Policy] = {}
    left_out: dict[str, str] = {}
    for scheduler in setting.schedulers:
        try:
            policy = _policy(scheduler, setting, scenario, training)
        except ValueError as error:
            raise ValueError(f"setting {setting.name!r}: {error}") from None
        label = scheduler.label or policy.name
        if label in policies or label in left_out:
            raise ValueError(
                f"setting {setting.name!r}: {label!r} comes twice among the schedulers: give one "
                "a label of its own"
            )
        if training is None and (policy.needs_training or scheduler.pay_reports):
            left_out[label] = "needs training"
        else:
            policies[label] = policy
    if not policies:
        raise ValueError(f"setting {setting.name!r}: all its schedulers need training")
    if training is not None:
        training(next(iter(policies.values())))  # refuses a wrong option here, not in a worker
    return _Entrants(setting, scenario, training, policies, left_out)


def _policy(
    scheduler: Scheduler, setting: Setting, scenario: Scenario, training: Training | None
) -> Policy:
    pays = setting.options.pay_reports if scheduler.pay_reports is None else scheduler.pay_reports
    try:
        return make_entrant(
            scheduler.name, scenario, training, pay_reports=pays, **scheduler.options
        )
    except TypeError as error:
        if (wrong := re.search(r"unexpected keyword argument '(\w+)'", str(error))) is None:
            raise
        name = scheduler.name.partition(":")[0]
        makers = [table[name] for table in (POLICIES, SELECTORS) if name in table]
        known = [option for make in makers for option in inspect.signature(make).parameters]
        nearest = did_you_mean(wrong[1], known)
        raise ValueError(f"{scheduler.name} has no option {wrong[1]!r}{nearest}") from None


def _work(entrants: _Entrants) -> _Work:
    """The jobs of a setting, whose prices are found here."""
    scenario, seeds = entrants.scenario, entrants.seeds
    prices = find_prices(scenario)
    name, training = entrants.setting.name, entrants.training
    runs = {
        label: make_jobs([policy], scenario, seeds, training, prices, title=f"{name}, {label}")
        for label, policy in entrants.policies.items()
    }
    return _Work(runs, [BoundJob(scenario, seed, prices) for seed in seeds])


def _board(entrants: _Entrants, work: _Work, rounds: dict[int, pd.DataFrame]) -> Board:
    """Condense the rounds of a setting."""
    runs = [rounds[id(job)].assign(policy=label) for label in work.runs for job in work.runs[label]]
    bounds = pd.concat([rounds[id(job)] for job in work.bounds], ignore_index=True)
    summary = summarise(pd.concat(runs, ignore_index=True), entrants.target, bounds)
    return Board(summary, entrants.left_out, entrants.target)


def _write(
    boards: dict[str, Board], entrants: Sequence[_Entrants], folder: Path, title: str
) -> None:
    """Write all files but the configuration."""

    def together(tables: dict[str, pd.DataFrame]) -> str:
        labelled = [table.assign(setting=name) for name, table in tables.items()]
        whole = pd.concat(labelled, ignore_index=True)
        whole.insert(0, "setting", whole.pop("setting"))
        return whole.to_csv(index=False)

    summaries = {name: board.summary for name, board in boards.items()}
    write_text(folder / "summary.csv", together(summaries))
    ranks = {name: standings(board) for name, board in boards.items()}
    write_text(folder / "leaderboard.csv", together(ranks))
    sections = [f"# {title}", _HOW_TO_READ]
    for each in entrants:
        board = boards[each.setting.name]
        tolerance = energy_tolerance(each.scenario, each.scenario.num_rounds)
        table = comparison_markdown(
            board.summary, board.target_accuracy, tolerance=tolerance, left_out=board.left_out
        )
        sections += [f"## {each.setting.name}", table, _sentence(each)]
    write_text(folder / "leaderboard.md", "\n\n".join(sections) + "\n")
    save_overview(boards, folder / "overview.png")


def _sentence(entrants: _Entrants) -> str:
    """What a reader must know of a setting beside its name."""
    scenario, seeds, options = entrants.scenario, entrants.seeds, entrants.setting.options
    number = f"Seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"Seed {seeds[0]}"
    told = (
        f"{number}, {scenario.num_rounds} rounds, {scenario.num_devices} devices, "
        f"{scenario.cohort_size} a round"
    )
    if entrants.target is None:
        told += "; no models are trained."
    else:
        network = f" ({note})" if (note := network_note(options)) else ""
        told += (
            f"; trained on {dataset_of(options)}{network}, target {100 * entrants.target:g} % test "
            "accuracy."
        )
    trained = entrants.training is not None
    policies = entrants.policies
    notes = divfl_note(list(policies.values()), trained=trained), reports_note(policies)
    return " ".join(note for note in (told, *notes) if note)


def _show(board: Board, entrants: _Entrants, console: Console) -> None:
    """Print the table of a setting."""
    summary = board.summary
    names = ranked(summary)
    console.print(f"[bold]{entrants.setting.name}[/]", highlight=False)
    # The leader first, as the others are compared with the first.
    summary = summary.set_index("policy").loc[names].reset_index()
    tolerance = energy_tolerance(entrants.scenario, entrants.scenario.num_rounds)
    table = comparison_table(
        summary,
        board.target_accuracy,
        tolerance=tolerance,
        width=console.width,
        time=judged_by(summary),
    )
    print_whole(table, console)
    for name, why in board.left_out.items():
        console.print(f"not run: {name} ({why})", highlight=False)
    console.print(_sentence(entrants) + "\n", highlight=False)


def _config(options: Options, entrants: Sequence[_Entrants]) -> dict[str, Any]:
    """All that is needed to repeat the run."""
    settings = []
    for each in entrants:
        setting = each.setting
        given = {key: getattr(setting.options, key) for key in SETTING_KEYS}
        settings.append(
            {
                "name": setting.name,
                "options": plain(given | {"seeds": len(each.seeds)}),
                "schedulers": [plain(asdict(one)) for one in setting.schedulers],
            }
            | system(each.scenario)
        )
    names = {one.name: None for each in entrants for one in each.setting.schedulers}
    for each in entrants:
        names |= dict.fromkeys(named_files(each.setting.options))
    return {
        "command": ["python", *sys.argv],
        "file": str(options.file),
        "data_dir": str(options.data_dir),
        "settings": settings,
        **versions(),
        "agents": file_hashes(list(names)),
    }


def _make_room(folder: Path, config: dict[str, Any]) -> None:
    """Remove results of other settings, code or data; the new configuration is not theirs."""
    names = ("settings", "code", "agents", "data_dir")
    try:
        old = json.loads((folder / "config.json").read_text())
        same = all(old[name] == config[name] for name in names)
    except Exception:  # there is none, or it is damaged
        return
    if not same:
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)

"""Ranking schedulers in the settings of a file: tables, a figure and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env.checks import natural_number
from policies.benchmark.comparison import Comparison, compare_settings
from policies.benchmark.results_folder import (
    claimed,
    default_folder,
    described,
    plain,
    write_csv,
    write_text,
)
from policies.benchmark.setting import Setting
from policies.benchmark.summary import labelled
from policies.report.latex import comparison_latex
from policies.report.standings import save_overview, standings
from policies.report.tables import (
    comparison_markdown,
    comparison_table,
    escaped,
    not_run,
    overview_markdown,
)
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.leaderboard_file import FileSetting, find_leaderboard, read_leaderboard
from train_fl.commands.options import OutputOptions, RunOptions, shown
from train_fl.commands.settings import dataset_of, make_setting, network_note
from train_fl.commands.submission import (
    FRESH_SEEDS,
    QUICK,
    fresh_seeds,
    newcomers,
    verdict_lines,
    verdicts,
)

_TABLES = ("leaderboard.csv", "leaderboard.md", "summary.csv", "table.tex")
_RESULTS = (*_TABLES, "overview.pdf", "overview.png")
_HOW_TO_READ = (
    "Schedulers that are ok are ranked by priced time, and tie where paired intervals do not "
    "separate them; the others are below with the reason. Numbers are means over seeds with 95 % "
    "intervals. Priced times are compared with the leader's on the same seeds, and so on the same "
    "channels. docs/ranking.md explains the columns and the status."
)
_OVERVIEW = (
    "Priced time, to the target or without training in all. Brackets mark schedulers that are not "
    "ok, and bold the first of the others. The schedulers are in the order of their mean rank; a "
    "setting in which one is not ok or did not run counts as the last rank:"
)


_Play: TypeAlias = Callable[..., AbstractContextManager[dict[str, Comparison]]]


@dataclass(frozen=True)
class Options:
    """Rank schedulers in the settings of a file.

    All schedulers have the same channels under each seed.

    Rerun a command to resume it.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """TOML file with settings and schedulers, or suite-1:
    fixed settings with stored results."""
    policies: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help_behavior_hint="(repeatable)"),
    ] = ()
    """New policies for suite-1, such as my_file.py:MyPolicy.
    They are ranked among its stored results by ten fresh
    seeds. Without names its own schedulers are run again."""
    fresh_seed: Annotated[int | None, shown("INT", "drawn once for the folder")] = None
    """First of the fresh seeds for new policies."""
    quick: bool = False
    """Play three settings of suite-1 instead of all."""
    data_dir: Path = Path("data")
    """Folder of the data sets."""
    run: RunOptions = field(default_factory=RunOptions)
    output: OutputOptions = field(default_factory=OutputOptions)


def leaderboard(options: Options, console: Console) -> None:
    """Run all schedulers in all settings, print the tables and write the results."""
    path, stored = find_leaderboard(options.file)
    read = read_leaderboard(path, options.data_dir)
    play = partial(_played, options.run.execution())
    if options.policies:
        if stored is None:
            raise ValueError(
                f"{str(path)!r} has no stored results to rank {', '.join(options.policies)} among: "
                "add them to its schedulers"
            )
        _rank_newcomers(options, path.stem, read, stored, play, console)
    elif options.fresh_seed is not None or options.quick:
        name = "--quick" if options.quick else "--fresh-seed"
        raise ValueError(
            f"{name} needs suite-1 and new policies, as in: "
            f"fl-edge leaderboard suite-1 my_file.py:MyPolicy {name}"
        )
    else:
        _rank_all(options, path.stem, read, stored, play, console)


def _rank_all(
    options: Options,
    title: str,
    read: Sequence[FileSetting],
    stored: pd.DataFrame | None,
    play: _Play,
    console: Console,
) -> None:
    """Rank the schedulers of a file; a suite's play its stored seeds again."""
    settings = [_setting(one, stored) for one in read]
    with (
        _results_folder(options, title, {}, read, settings) as folder,
        play(settings, folder) as board,
    ):
        _write(options, board, read, settings, folder, f"Leaderboard: {title}")
        _print(board, read, settings, console)
        console.print(f"\nResults: {folder}", soft_wrap=True, highlight=False)


def _rank_newcomers(
    options: Options,
    title: str,
    read: Sequence[FileSetting],
    stored: pd.DataFrame,
    play: _Play,
    console: Console,
) -> None:
    """Rank new policies among a suite's stored results, on fresh seeds."""
    given: dict[str, Any] = {"policies": options.policies}
    if options.quick:
        read = [one for one in read if one.name in QUICK]
        given["quick"] = True
    if options.fresh_seed is not None:
        given["fresh_seed"] = natural_number("--fresh-seed", options.fresh_seed)
    read, left_out = newcomers(read, options.policies, stored)
    number = range(FRESH_SEEDS)  # the seeds are drawn once the folder is known
    settings = [replace(_setting(one), seeds=number, bounded=False) for one in read]
    with _results_folder(options, title, given, read, settings) as folder:
        seeds = fresh_seeds(folder, options.fresh_seed, stored)
        settings = [replace(setting, seeds=seeds) for setting in settings]
        with play(settings, folder) as board:
            ranks = verdict_lines(verdicts(stored, left_out, board), stored)
            _write(options, board, read, settings, folder, f"Leaderboard: {title}\n{ranks}")
            _print(board, read, settings, console)
            console.print(f"{ranks}\n\nResults: {folder}", soft_wrap=True, highlight=False)


@contextmanager
def _results_folder(
    options: Options,
    title: str,
    given: Mapping[str, Any],
    read: Sequence[FileSetting],
    settings: Sequence[Setting],
) -> Iterator[Path]:
    """The folder of the results, locked for the block."""
    if options.data_dir != Path("data"):
        given = {"data_dir": options.data_dir, **given}
    folder = options.run.out or Path("runs/leaderboard") / default_folder(title, given).name
    described = [_described(*pair) for pair in zip(read, settings, strict=True)]
    given = {"file": options.file, **given}
    overwrite = options.run.overwrite
    with claimed(folder, "leaderboard", _RESULTS, given, described, overwrite=overwrite) as results:
        yield results


@contextmanager
def _played(
    execution: Mapping[str, Any], settings: Sequence[Setting], folder: Path
) -> Iterator[dict[str, Comparison]]:
    """The results of the settings by name; the error of failed runs comes after the block."""
    board: dict[str, Comparison] = {}
    try:
        for comparison in compare_settings(settings, folder, progress_console(), **execution):
            board[comparison.name] = comparison
    finally:
        if board:
            yield board


def _setting(read: FileSetting, stored: pd.DataFrame | None = None) -> Setting:
    """The setting of a file, with the seeds of its stored runs if there are any."""
    try:
        setting = make_setting(read.name, read.options, read.policies, ranked=True)
    except ValueError as error:
        raise ValueError(f"setting {read.name!r}: {error}") from None
    if stored is None:
        return setting
    seeds = stored.loc[stored["setting"] == read.name, "seed"].unique()
    return replace(setting, seeds=seeds.tolist() or setting.seeds)


def _described(read: FileSetting, setting: Setting) -> dict[str, object]:
    return {
        "name": read.name,
        "options": plain(read.options.result_options() | {"seeds": len(setting.seeds)}),
        "schedulers": [plain(vars(one)) for one in read.policies],
    } | described(setting.scenario)


def _write(
    options: Options,
    board: Mapping[str, Comparison],
    read: Sequence[FileSetting],
    settings: Sequence[Setting],
    folder: Path,
    title: str,
) -> None:
    """Write the runs, the standings, a page with their tables, and a figure."""
    summaries = {name: comparison.summary for name, comparison in board.items()}
    write_csv(folder / "summary.csv", labelled("setting", summaries.items()))
    rows = labelled("setting", ((name, standings(each)) for name, each in board.items()))
    write_csv(folder / "leaderboard.csv", rows)
    sections = [f"# {title}", _HOW_TO_READ]
    if len(summaries) > 1:
        sections += [_OVERVIEW, overview_markdown(summaries)]
    for one, setting in zip(read, settings, strict=True):
        if one.name in board:
            table = comparison_markdown(board[one.name])
            sections += [f"## {escaped(one.name)}", _sentence(one, setting), table]
    write_text(folder / "leaderboard.md", "\n\n".join(sections) + "\n")
    save_overview(board, folder / "overview.png", options.output.formats)
    if options.output.latex:
        latex = [comparison_latex(*each) for each in board.items()]
        write_text(folder / "table.tex", "\n".join(latex))


def _print(
    board: Mapping[str, Comparison],
    read: Sequence[FileSetting],
    settings: Sequence[Setting],
    console: Console,
) -> None:
    """Print the table of each setting."""
    for one, setting in zip(read, settings, strict=True):
        comparison = board.get(one.name)
        if comparison is None:  # all its schedulers failed
            continue
        console.print(f"\n{one.name}", style="bold", highlight=False)
        sentences = [_sentence(one, setting), *not_run(comparison)]
        console.print(" ".join(sentences), highlight=False)
        print_whole(*comparison_table(comparison, width=console.width, leader=True), console)


def _sentence(read: FileSetting, setting: Setting) -> str:
    """The facts about a setting that its tables do not show."""
    scenario = setting.scenario
    seeds = setting.seeds
    options = read.options
    number = f"Seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"Seed {seeds[0]}"
    if seeds[-1] - seeds[0] >= len(seeds):
        number = f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}"
    sentence = (
        f"{number}, {scenario.num_rounds} rounds, {scenario.num_devices} devices, "
        f"{scenario.cohort_size} a round"
    )
    if setting.target is None:
        sentence += "; no models are trained."
    else:
        note = network_note(options)
        network = f" ({note})" if note else ""
        sentence += (
            f"; trained on {dataset_of(options)}{network}, "
            f"target {100 * setting.target:g} % test accuracy."
        )
    return sentence

"""Ranking schedulers in the settings of a file: tables, a figure and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
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
    check_newcomers,
    fresh_seeds,
    verdict_lines,
    verdicts,
    with_newcomers,
)

_TABLES = ("leaderboard.csv", "leaderboard.md", "summary.csv", "table.tex")
_RESULTS = (*_TABLES, "overview.pdf", "overview.png")
_HOW_TO_READ = (
    "Schedulers that are ok are ranked by priced time, and tie where paired intervals do not "
    "separate them; the others are below with the reason. Numbers are means over seeds with 95 % "
    "intervals. Priced times are compared with the leader's on the same seeds, and so on the same "
    "channels. docs/columns.md explains the columns, and docs/ranking.md the status."
)
_OVERVIEW = (
    "Priced time, to the target or without training in all. Brackets mark schedulers that are not "
    "ok, and bold the first of the others. The schedulers are in the order of their mean rank; a "
    "setting in which one is not ok or did not run counts as the last rank:"
)


# Settings of a file, with what they make.
_Pairs: TypeAlias = list[tuple[FileSetting, Setting]]


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
    options.run.execution()  # wrong options end it before it plays
    if options.policies:
        if stored is None:
            raise ValueError(
                f"{str(path)!r} has no stored results to rank {', '.join(options.policies)} among: "
                "add them to its schedulers"
            )
        _rank_newcomers(options, path.stem, read, stored, console)
    elif options.fresh_seed is not None or options.quick:
        name = "--quick" if options.quick else "--fresh-seed"
        raise ValueError(
            f"{name} needs suite-1 and new policies, as in: "
            f"fl-edge leaderboard suite-1 my_file.py:MyPolicy {name}"
        )
    else:
        pairs = [(one, _setting(one, stored)) for one in read]
        with (
            _results_folder(options, path.stem, {}, pairs) as folder,
            _played(options, pairs, folder) as board,
        ):
            _report(options, board, pairs, folder, path.stem, console)


def _rank_newcomers(
    options: Options,
    title: str,
    read: Sequence[FileSetting],
    stored: pd.DataFrame,
    console: Console,
) -> None:
    """Rank new policies among a suite's stored results, on fresh seeds."""
    given: dict[str, Any] = {"policies": options.policies}
    if options.quick:
        read = [one for one in read if one.name in QUICK]
        given["quick"] = True
    if options.fresh_seed is not None:
        given["fresh_seed"] = natural_number("--fresh-seed", options.fresh_seed)
    number = range(FRESH_SEEDS)  # the seeds are drawn once the folder is known
    own = [with_newcomers(one, options.policies) for one in read]
    pairs = [(one, replace(_setting(one), seeds=number, bounded=False)) for one in own]
    settings = [setting for _, setting in pairs]
    check_newcomers(settings, stored)
    pairs = [pair for pair in pairs if len(pair[1].runs) > 1]
    with _results_folder(options, title, given, pairs) as folder:
        seeds = fresh_seeds(folder, options.fresh_seed, stored)
        pairs = [(one, replace(setting, seeds=seeds)) for one, setting in pairs]
        with _played(options, pairs, folder) as board:
            ranks = verdict_lines(verdicts(stored, settings, board), stored)
            _report(options, board, pairs, folder, title, console, ranks)


def _results_folder(
    options: Options, title: str, given: Mapping[str, Any], pairs: _Pairs
) -> AbstractContextManager[Path]:
    """The folder of the results, locked for a block."""
    if options.data_dir != Path("data"):
        given = {"data_dir": options.data_dir, **given}
    folder = options.run.out or Path("runs/leaderboard") / default_folder(title, given).name
    described = [_described(*pair) for pair in pairs]
    given = {"file": options.file, **given}
    return claimed(
        folder, "leaderboard", _RESULTS, given, described, overwrite=options.run.overwrite
    )


@contextmanager
def _played(options: Options, pairs: _Pairs, folder: Path) -> Iterator[dict[str, Comparison]]:
    """The results of the settings by name; the error of failed runs comes after the block."""
    board: dict[str, Comparison] = {}
    settings = [setting for _, setting in pairs]
    execution = options.run.execution()
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


def _report(
    options: Options,
    board: Mapping[str, Comparison],
    pairs: _Pairs,
    folder: Path,
    title: str,
    console: Console,
    ranks: str = "",
) -> None:
    """Write the runs, the standings, a page with their tables, and a figure; print the tables."""
    sentences = {one.name: _sentence(one, setting) for one, setting in pairs if one.name in board}
    summaries = {name: comparison.summary for name, comparison in board.items()}
    write_csv(folder / "summary.csv", labelled("setting", summaries.items()))
    rows = labelled("setting", ((name, standings(each)) for name, each in board.items()))
    write_csv(folder / "leaderboard.csv", rows)
    sections = [f"# Leaderboard: {title}\n{ranks}".rstrip(), _HOW_TO_READ]
    if len(summaries) > 1:
        sections += [_OVERVIEW, overview_markdown(summaries)]
    for name, sentence in sentences.items():
        sections += [f"## {escaped(name)}", sentence, comparison_markdown(board[name])]
    write_text(folder / "leaderboard.md", "\n\n".join(sections) + "\n")
    save_overview(board, folder / "overview.png", options.output.formats)
    if options.output.latex:
        latex = [comparison_latex(*each) for each in board.items()]
        write_text(folder / "table.tex", "\n".join(latex))
    for name, sentence in sentences.items():
        comparison = board[name]
        console.print(f"\n{name}", style="bold", highlight=False)
        console.print(" ".join([sentence, *not_run(comparison)]), highlight=False)
        print_whole(*comparison_table(comparison, width=console.width, leader=True), console)
    console.print(f"{ranks}\n\nResults: {folder}", soft_wrap=True, highlight=False)


def _sentence(read: FileSetting, setting: Setting) -> str:
    """The facts about a setting that its tables do not show."""
    scenario = setting.scenario
    seeds = setting.seeds
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
        note = network_note(read.options)
        network = f" ({note})" if note else ""
        sentence += (
            f"; trained on {dataset_of(read.options)}{network}, "
            f"target {100 * setting.target:g} % test accuracy."
        )
    return sentence

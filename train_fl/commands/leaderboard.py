"""Ranking schedulers in the settings of a file: tables, a figure and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env.checks import natural_number
from policies.benchmark.comparison import Comparison, compare_settings
from policies.benchmark.results_folder import (
    Kind,
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
    not_run,
    overview_markdown,
)
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.leaderboard_file import FileSetting, find_leaderboard, read_leaderboard
from train_fl.commands.options import OutputOptions, RunOptions, flags_given, shown
from train_fl.commands.settings import dataset_of, make_setting, network_note
from train_fl.commands.submission import (
    QUICK,
    beside_references,
    beside_stored,
    fresh_seeds,
    newcomers,
    quick_lines,
    verdict_lines,
    verdicts,
)

_TABLES = ("leaderboard.csv", "leaderboard.md", "summary.csv", "table.tex")
LEADERBOARD = Kind("leaderboard", (*_TABLES, "overview.pdf", "overview.png"))
_HOW_TO_READ = (
    "Schedulers that are ok are ranked by priced time, and tie where paired intervals do not "
    "separate them; the others are below with the reason. Numbers are means over seeds with 95 % "
    "intervals. Priced times are compared with the leader's on the same seeds, and so on the same "
    "channels. docs/ranking.md explains the columns and the status."
)
_OVERVIEW = (
    "Priced time, to the target or without training in all. Brackets mark schedulers that are not "
    "ok, and bold the first of the others. First come those that are ok in most settings:"
)


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
    """Play three settings of suite-1 on its stored seeds, for
    a verdict without a rank."""
    data_dir: Path = Path("data")
    """Folder of the data sets."""
    run: RunOptions = field(default_factory=RunOptions)
    output: OutputOptions = field(default_factory=OutputOptions)


def leaderboard(options: Options, console: Console) -> None:
    """Run all schedulers in all settings, print the tables and write the results."""
    path, stored = find_leaderboard(options.file)
    read = read_leaderboard(path, options.data_dir)
    run = options.run
    execution = run.execution()
    if options.fresh_seed is not None:
        natural_number("--fresh-seed", options.fresh_seed)
        if not options.policies:
            raise ValueError("--fresh-seed needs new policies: name them after the leaderboard")
    if options.quick:
        _check_quick(options, stored)
    given: dict[str, Any] = {}
    if options.data_dir != Path("data"):
        given["data_dir"] = options.data_dir
    left_out: dict[str, list[str]] = {}
    if options.policies:
        if stored is None:
            raise ValueError(
                f"{str(path)!r} has no stored results to rank {', '.join(options.policies)} among: "
                "add them to its schedulers"
            )
        asked = [one for one in read if one.name in QUICK] if options.quick else read
        read, left_out = newcomers(asked, options.policies, stored)
        given |= {"policies": options.policies} | ({"quick": True} if options.quick else {})
        if options.fresh_seed is not None:
            given["fresh_seed"] = options.fresh_seed
    settings = [_setting(one, stored) for one in read]
    folder = run.out or Path("runs/leaderboard") / default_folder(path.stem, given).name
    with claimed(
        folder,
        LEADERBOARD,
        {"file": options.file} | given,
        [_described(*pair) for pair in zip(read, settings, strict=True)],
        overwrite=run.overwrite,
    ):
        known: list[Setting] = []
        if stored is not None and options.policies:
            known = settings
            settings = []
            if not options.quick:
                seeds = fresh_seeds(folder, options.fresh_seed, stored)
                read = beside_references(read)
                settings = [replace(_setting(one, stored), seeds=seeds) for one in read]
        results = compare_settings([*known, *settings], folder, progress_console(), **execution)
        again = {one.name: result for one, result in zip(known, results, strict=False)}
        board = {
            one.name: result for one, result in zip(settings, results[len(known) :], strict=True)
        }
        sentences = [_sentence(*pair) for pair in zip(read, settings or known, strict=True)]
        ranks = ""
        if stored is not None and known:
            board = board or beside_stored(stored, again)
            found = verdicts(stored, left_out, again, board)
            ranks = verdict_lines(found, stored["policy"].nunique())
            if options.quick:
                ranks = quick_lines(found, path.stem, stored["setting"].nunique())
        summaries = {name: comparison.summary for name, comparison in board.items()}
        write_csv(folder / "summary.csv", labelled("setting", summaries.items()))
        if not options.quick:  # whose tables would look like ranks
            _write(board, sentences, folder, f"Leaderboard: {path.stem}\n{ranks}".strip())
            save_overview(board, folder / "overview.png", options.output.formats)
        if options.output.latex:
            tables = [comparison_latex(name, comparison) for name, comparison in board.items()]
            write_text(folder / "table.tex", "\n".join(tables))
    for (name, comparison), sentence in zip(board.items(), sentences, strict=True):
        console.print(f"\n{name}", style="bold", highlight=False)
        console.print(" ".join([sentence, *not_run(comparison)]), highlight=False)
        print_whole(*comparison_table(comparison, width=console.width, leader=True), console)
    console.print(f"{ranks}\n\nResults: {folder}".lstrip("\n"), soft_wrap=True, highlight=False)


def _check_quick(options: Options, stored: pd.DataFrame | None) -> None:
    """Raise `ValueError` if the options ask for more than a verdict on stored seeds."""
    if stored is None or not options.policies:
        raise ValueError(
            "--quick needs suite-1 and new policies, as in: "
            "fl-edge leaderboard suite-1 my_file.py:MyPolicy --quick"
        )
    other = [*flags_given(options, "fresh_seed"), *flags_given(options.output, "latex", "pdf")]
    if other:
        raise ValueError(f"--quick gives no ranks on fresh seeds, and no tables: remove {other[0]}")


def _setting(read: FileSetting, stored: pd.DataFrame | None) -> Setting:
    """The setting of a file; with stored runs it has their seeds and no bounds."""
    try:
        setting = make_setting(read.name, read.options, read.policies, ranked=True)
    except ValueError as error:
        raise ValueError(f"setting {read.name!r}: {error}") from None
    if stored is None:
        return setting
    seeds = stored.loc[stored["setting"] == read.name, "seed"].unique()
    return replace(setting, seeds=seeds.tolist(), bounded=False)


def _described(read: FileSetting, setting: Setting) -> dict[str, object]:
    return {
        "name": read.name,
        "options": plain(read.options.result_options() | {"seeds": len(setting.seeds)}),
        "schedulers": [plain(vars(one)) for one in read.policies],
    } | described(setting.scenario)


def _write(
    board: Mapping[str, Comparison], sentences: Sequence[str], folder: Path, title: str
) -> None:
    """Write the standings, and a page with their tables."""
    summaries = {name: comparison.summary for name, comparison in board.items()}
    rows = labelled("setting", ((name, standings(each)) for name, each in board.items()))
    write_csv(folder / "leaderboard.csv", rows)
    sections = [f"# {title}", _HOW_TO_READ]
    if len(summaries) > 1:
        sections += [_OVERVIEW, overview_markdown(summaries)]
    for (name, comparison), sentence in zip(board.items(), sentences, strict=True):
        sections += [f"## {name}", sentence, comparison_markdown(comparison)]
    write_text(folder / "leaderboard.md", "\n\n".join(sections) + "\n")


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

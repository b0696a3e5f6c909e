"""Ranking schedulers in the settings of a file: tables, a figure and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro
from rich.console import Console

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
    overview_markdown,
)
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.leaderboard_file import FileSetting, find_leaderboard, read_leaderboard
from train_fl.commands.options import OutputOptions, RunOptions
from train_fl.commands.settings import (
    PolicySpec,
    dataset_of,
    make_run,
    make_setting,
    network_note,
)

_TABLES = ("leaderboard.csv", "leaderboard.md", "summary.csv", "table.tex")
LEADERBOARD = Kind("leaderboard", (*_TABLES, "overview.pdf", "overview.png"))
_HOW_TO_READ = (
    "Schedulers that are ok are ranked by time; the others are below with the reason. Numbers are "
    "means over seeds with 95 % intervals. Times are compared with the leader's on the same seeds, "
    "and so on the same channels. docs/ranking.md explains the columns and the status."
)
_OVERVIEW = (
    "Time to the target, or total time without training. Brackets mark schedulers that are not ok, "
    "and bold the fastest of the others:"
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
    They are ranked among its stored results. Without names
    its own schedulers are run again."""
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
    given: dict[str, Any] = {}
    rivals = stored if options.policies else None  # the runs among which newcomers are ranked
    if options.policies:
        if stored is None:
            raise ValueError(
                f"{str(path)!r} has no stored results to rank {', '.join(options.policies)} among: "
                "add them to its schedulers"
            )
        read = _newcomers(read, options.policies, stored)
        given = {"policies": options.policies}
    settings = [_setting(one, stored) for one in read]
    folder = run.out or Path("runs/leaderboard") / default_folder(path.stem, given).name
    given = {"file": options.file} | given
    described_settings = [_described(*pair) for pair in zip(read, settings, strict=True)]
    with claimed(folder, LEADERBOARD, given, described_settings, overwrite=run.overwrite):
        again = [] if rivals is None else _on_fresh_seeds(settings, rivals)
        results = compare_settings([*settings, *again], folder, progress_console(), **execution)
        fresh = results[len(settings) :]
        results = results[: len(settings)]
        changes = _changes(again, results, fresh)
        if rivals is not None:
            results = [
                _among(rivals, setting.name, result)
                for setting, result in zip(settings, results, strict=True)
            ]
        board = {setting.name: result for setting, result in zip(settings, results, strict=True)}
        sentences = [_sentence(*pair) for pair in zip(read, settings, strict=True)]
        title = f"Leaderboard: {path.stem}\n\n{changes}".strip()
        ranks = _write(board, sentences, folder, title)
        if options.output.latex:
            text = comparison_latex(board, folder.resolve().name, leader=True)
            write_text(folder / "table.tex", text)
        save_overview(board, folder / "overview.png", options.output.formats)
    for (name, comparison), sentence in zip(board.items(), sentences, strict=True):
        console.print(f"\n{name}", style="bold", highlight=False)
        left_out = [f" Not run: {label} ({why})." for label, why in comparison.left_out.items()]
        console.print(sentence + "".join(left_out), highlight=False)
        print_whole(*comparison_table(comparison, width=console.width, leader=True), console)
    if rivals is not None:
        ranks = ranks[~ranks["scheduler"].isin(rivals["policy"])]
        console.print(_ranks(ranks), highlight=False)
        for _, row in ranks[ranks["status_reason"].fillna("") != ""].iterrows():
            reason = f"{row['scheduler']} in {row['setting']!r}: {row['status_reason']}."
            console.print(reason, highlight=False)
        console.print(changes, highlight=False)
    console.print(f"\nResults: {folder}", soft_wrap=True)


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


def _newcomers(
    read: Sequence[FileSetting], names: Sequence[str], stored: pd.DataFrame
) -> list[FileSetting]:
    """The settings with newcomers alone, without those in which no newcomer can run."""
    specs = tuple(PolicySpec(name) for name in names)

    def can_run(one: FileSetting) -> bool:
        scenario = one.options.make_scenario()
        runs = [make_run(spec, scenario, None) for spec in specs]
        for run in runs:
            if run.label in set(stored["policy"]):
                raise ValueError(f"stored results already have {run.label!r}: rename the policy")
        return one.options.training.train or not all(run.policy.needs_training for run in runs)

    return [replace(one, policies=specs) for one in read if can_run(one)]


def _on_fresh_seeds(settings: Sequence[Setting], stored: pd.DataFrame) -> list[Setting]:
    """The settings under ten seeds that the stored results do not have."""
    first = int(stored["seed"].max()) + 1
    return [replace(setting, seeds=range(first, first + 10)) for setting in settings]


def _among(stored: pd.DataFrame, setting: str, new: Comparison) -> Comparison:
    """New results among the stored runs of a setting, with the columns that both have."""
    known = stored[stored["setting"] == setting].drop(columns="setting")
    known = known.dropna(axis="columns", how="all")
    runs = pd.concat([known, new.summary], ignore_index=True)[known.columns]
    return replace(new, summary=runs)


def _ranks(newcomers: pd.DataFrame) -> str:
    """Newcomers' ranks in each setting, or the status if it is not ok, and their mean ranks."""
    cells = newcomers["rank"].astype("string").fillna(newcomers["status"])
    table = newcomers.assign(cell=cells).pivot(index="setting", columns="scheduler", values="cell")
    table = table.loc[newcomers["setting"].unique()].rename_axis(index=None, columns="rank")
    means = newcomers.groupby("scheduler")["rank"].mean().astype(float)
    table.loc["mean where ok"] = means.map("{:.3g}".format, na_action="ignore")
    return f"\n{table.fillna('–').to_string()}\n"


def _changes(
    again: Sequence[Setting], results: Sequence[Comparison], fresh: Sequence[Comparison]
) -> str:
    """A sentence on newcomers whose status differs on fresh seeds; empty without these."""
    if not fresh:
        return ""
    changes = []
    for setting, result, other in zip(again, results, fresh, strict=True):
        statuses = result.statuses()
        for name, now in other.statuses().items():
            if now != statuses[name]:
                changes.append(f"{name} is {now} instead of {statuses[name]} in {setting.name!r}")
    seeds = again[0].seeds
    found = "; ".join(changes) or "no status changes"
    return f"On {len(seeds)} fresh seeds, {seeds[0]} to {seeds[-1]}: {found}."


def _described(read: FileSetting, setting: Setting) -> dict[str, object]:
    return {
        "name": read.name,
        "options": plain(read.options.result_options() | {"seeds": len(setting.seeds)}),
        "schedulers": [plain(vars(one)) for one in read.policies],
    } | described(setting.scenario)


def _write(
    board: Mapping[str, Comparison], sentences: Sequence[str], folder: Path, title: str
) -> pd.DataFrame:
    """Write the numbers, and a page with their tables; return the standings."""
    summaries = {name: comparison.summary for name, comparison in board.items()}
    ranks = labelled("setting", ((name, standings(each)) for name, each in board.items()))
    write_csv(folder / "summary.csv", labelled("setting", summaries.items()))
    write_csv(folder / "leaderboard.csv", ranks)
    sections = [f"# {title}", _HOW_TO_READ]
    if len(summaries) > 1:
        sections += [_OVERVIEW, overview_markdown(summaries)]
    for (name, comparison), sentence in zip(board.items(), sentences, strict=True):
        sections += [f"## {name}", sentence, comparison_markdown(comparison)]
    write_text(folder / "leaderboard.md", "\n\n".join(sections) + "\n")
    return ranks


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
        target = f"{100 * setting.target:g} % test accuracy"
        sentence += f"; trained on {dataset_of(options)}{network}, target {target}."
    return sentence

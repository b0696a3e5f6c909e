"""Reproducing the figures of the paper's Section VII, and one on the lower bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env.checks import one_of
from policies.benchmark.comparison import compare_settings
from policies.benchmark.results_folder import Kind, claimed, described, write_csv
from policies.benchmark.setting import Setting
from policies.report.figures import save_figure
from train_fl.commands import paper
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.options import RunOptions, flags_given, number_of_seeds
from train_fl.commands.paper import Figure
from train_fl.commands.settings import PolicySpec, make_run, make_training
from train_fl.training_options import PlaceFlags

# The figures by name, and the options that only some of them have.
_FIGURES: dict[str, tuple[Callable[[paper.Options, str], Figure], tuple[str, ...]]] = {
    "baselines": (paper.baselines, ()),
    "lambda-sweep": (paper.lambda_sweep, ("mu",)),
    "v-sweep": (paper.v_sweep, ("nu",)),
    "k-sweep": (paper.k_sweep, ("mu", "nu")),
    "bound": (paper.bound, ("nu",)),
}


@dataclass(frozen=True, kw_only=True)
class Options(paper.Options):
    """Reproduce a figure of the paper's Section VII.

    Writes the figure (PNG, PDF) and its data (CSV) to runs/paper.

    Rerun a command to resume it.
    """

    training: PlaceFlags = field(default_factory=PlaceFlags)
    run: RunOptions = field(default_factory=RunOptions)


def reproduce(options: Options, console: Console) -> None:
    """Run an experiment, draw its figure and print its table."""
    make, own = _FIGURES[one_of("figure", options.figure, tuple(_FIGURES))]
    stem = options.figure.removesuffix("-sweep")
    files = tuple(f"{stem}.{kind}" for kind in ("png", "pdf", "csv"))
    kind = Kind("reproduction", files, config=f"{stem}.json")
    joined = [name for name in options.scenarios if "," in name]
    if joined:
        raise ValueError(f"separate scenarios with spaces, got {joined[0]!r}")
    for name in ("scenarios", "mu", "nu"):
        value = getattr(options, name)
        if value == ():
            raise ValueError(f"{name} must be one or more, got none")
        if name not in ("scenarios", *own) and value is not None:
            raise ValueError(f"{options.figure} has no option --{name}: remove it")
    unused = flags_given(options.training, *(one.name for one in fields(PlaceFlags)))
    unused += flags_given(options.run, "checkpoint_every")
    if unused and not options.train:
        raise ValueError(f"{unused[0]} needs training: add --train")
    execution = options.run.execution()
    names = options.scenarios
    figures = [make(options, name) for name in names]
    settings = [setting(options, *each) for each in zip(figures, names, strict=True)]
    folder = options.run.out or Path("runs") / "paper"
    stored = [described(each.scenario) for each in settings]
    given = {one.name: getattr(options, one.name) for one in fields(paper.Options)}
    given |= {name: getattr(options.training, name) for name in ("eval_every", "device")}
    with claimed(folder, kind, given, stored, overwrite=options.run.overwrite):
        results = compare_settings(settings, folder, progress_console(), **execution)
        drawn = [each.draw(got) for each, got in zip(figures, results, strict=True)]
        paths = [folder / name for name in files[:2]]
        save_figure([each.panels for each in drawn], paths, rows_apart=len(drawn) > 1)
        tables = [each.data.assign(scenario=name) for name, each in zip(names, drawn, strict=True)]
        write_csv(folder / files[2], pd.concat(tables))
    table = Table(title=figures[0].title, box=box.SIMPLE_HEAD)
    for index, column in enumerate(drawn[0].rows[0]):
        table.add_column(column, justify="left" if index < 2 else "right")
    for row in (row for each in drawn for row in each.rows):
        table.add_row(*row.values())
    findings = [each.finding for each in drawn if each.finding]
    print_whole(table, [figures[0].comment, *findings], console)
    console.print(f"Figures and data: {folder}", soft_wrap=True)


def setting(options: Options, figure: Figure, name: str) -> Setting:
    """The setting of a system, trained on the data set of the same name."""
    runs = []
    for curve in figure.curves:
        scenario = curve.scenario
        training = None
        if options.train:
            training = make_training(scenario, name, vars(options.training))
            scenario = training.scenario
        runs.append(make_run(PolicySpec(curve.policy, label=curve.label), scenario, training))
    seeds = range(number_of_seeds(options.seeds, options.train))
    return Setting(name, tuple(runs), seeds, bounded=figure.bounded)

"""Reproducing the figures of the paper's Section VII, and one on the lower bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env.checks import integer_at_least
from policies.benchmark import paper
from policies.benchmark.command_line import print_whole
from policies.benchmark.experiment import Setting, run_settings
from policies.benchmark.figures import save_figure
from policies.benchmark.paper import Figure, Options
from policies.benchmark.results_folder import Kind, claimed, described, write_csv
from train_fl.commands.settings import Scheduler, make_entrant, make_training
from train_fl.options import TrainingOptions

# The figures by name, and the options that not all of them have.
_FIGURES: dict[str, tuple[Callable[[Options, str], Figure], tuple[str, ...]]] = {
    "baselines": (paper.baselines, ()),
    "lambda-sweep": (paper.lambda_sweep, ("mu",)),
    "v-sweep": (paper.v_sweep, ("nu",)),
    "k-sweep": (paper.k_sweep, ("mu", "nu")),
    "bound": (paper.bound, ("nu",)),
}


def reproduce(options: Options, console: Console) -> None:
    """Run an experiment, draw its figure and print its table.

    Raises `ValueError` for a wrong option and a folder that holds something else or in which
    another command is at work, `ModuleNotFoundError` where a package is not installed, and
    `JobsFailedError` if a run has failed.
    """
    make, own = _FIGURES[options.figure]
    stem = options.figure.removesuffix("-sweep")
    files = tuple(f"{stem}.{kind}" for kind in ("png", "pdf", "csv"))
    kind = Kind("reproduction", files, config=f"{stem}.json")
    if options.seeds is not None:
        integer_at_least(1, "seeds", options.seeds)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value == ():
            raise ValueError(f"{field.name} must be one or more, got none")
        limited = any(field.name in names for _, names in _FIGURES.values())
        if limited and field.name not in own and value != field.default:
            raise ValueError(f"{options.figure} has no option {field.name}, got {value!r}")
    names = options.scenarios
    figures = [make(options, name) for name in names]
    settings = [setting(options, *each) for each in zip(figures, names, strict=True)]
    folder = options.run.out or Path("runs") / "paper"
    stored = [described(each.scenario) for each in settings]
    same_result = ("run", "data_dir", "download")
    given = {name: value for name, value in vars(options).items() if name not in same_result}
    with claimed(folder, kind, options.run, given, stored):
        results = run_settings(settings, folder, options.run, console)
        drawn = [each.draw(got) for each, got in zip(figures, results, strict=True)]
        save_figure([each.panels for each in drawn], [folder / name for name in files[:2]])
        tables = [each.data.assign(scenario=name) for name, each in zip(names, drawn, strict=True)]
        write_csv(folder / files[2], pd.concat(tables))
    table = Table(title=figures[0].title, box=box.SIMPLE_HEAD)
    for index, column in enumerate(drawn[0].rows[0]):
        table.add_column(column, justify="left" if index < 2 else "right")
    for row in (row for each in drawn for row in each.rows):
        table.add_row(*row.values())
    print_whole(table, console)
    console.print(figures[0].comment)
    console.print(f"Figures and data: {folder}", soft_wrap=True)


def setting(options: Options, figure: Figure, name: str) -> Setting:
    """The setting of a system, with training fitted to the data of its name."""
    entrants = []
    for label, policy, scenario in figure.curves:
        training = None
        if options.train:
            names = ("eval_every", "data_dir", "download", "device")
            how = TrainingOptions(**{each: getattr(options, each) for each in names})
            training = make_training(scenario, name, how)
            scenario = training.scenario
        entrants.append(make_entrant(Scheduler(policy, label=label), scenario, training))
    number = options.seeds if options.seeds is not None else (5 if options.train else 30)
    return Setting(name, tuple(entrants), range(number), bounded=figure.bounded)

"""Comparing policies under common random numbers: a table, plots and files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from policies.benchmark.experiment import run_settings
from policies.benchmark.figures import PLOTS, draw_partition, save_figure, save_plots
from policies.benchmark.latex import comparison_latex
from policies.benchmark.results_folder import (
    Kind,
    claimed,
    default_folder,
    described,
    write_csv,
    write_text,
)
from policies.benchmark.tables import Board, coinciding, comparison_tables
from train_fl.commands.console import print_whole
from train_fl.commands.options import CompareOptions
from train_fl.commands.settings import Scheduler, dataset_of, make_setting, network_note, notes

if TYPE_CHECKING:
    from train_fl.factory import TrainingEnvFactory

_TABLES = ("bounds.csv", "rounds.csv", "summary.csv", "table.tex", "timing.csv")
COMPARISON = Kind("comparison", (*PLOTS, *_TABLES, "partition.pdf", "partition.png"))


def compare(options: CompareOptions, console: Console) -> None:
    """Run a comparison, print its table and write its results."""
    run, output, name = options.run, options.output, options.system.scenario
    options.check_used()
    setting = make_setting(name, options, [Scheduler(each) for each in options.policy.policies])
    decisive, stored = options.decisive(), [described(setting.scenario)]
    folder = run.out or default_folder(name, decisive)
    with claimed(folder, COMPARISON, run, {"scenario": name} | decisive, stored):
        models = folder / "models" if options.training.save_models else None
        (results,) = run_settings([setting], folder, run, console, models=models)
        rounds, bounds, summary, timing = results.rounds, results.bounds, results.summary(), None
        if "real_time" in rounds:  # kept apart from what a repetition repeats
            timing = rounds[["policy", "seed", "round", "real_time"]]
            rounds = rounds.drop(columns="real_time")
        board = Board(summary, setting.target, results.caution())
        played = rounds.drop(columns="status")  # which the summary has
        tables = {"rounds": played, "bounds": bounds.drop(columns="policy"), "summary": summary}
        tables |= {} if timing is None else {"timing": timing}
        for name, table in tables.items():
            write_csv(folder / f"{name}.csv", table)
        if output.latex:
            boards = {Path(setting.name).stem: board}
            write_text(folder / "table.tex", comparison_latex(boards, folder.resolve().name))
        save_plots(rounds, bounds, folder, target=setting.target, formats=output.formats)
        if options.training.train:
            task = cast("TrainingEnvFactory", setting.entrants[0].training).make_task()
            counts = task.num_samples[:, None] * task.label_histogram
            panel = partial(draw_partition, counts=counts)
            save_figure([[panel]], [folder / f"partition.{kind}" for kind in output.formats])
    (printed,) = comparison_tables([board], width=console.width)
    print_whole(printed, console)
    for twins in coinciding(rounds):
        console.print(f"{' and '.join(twins)} draw the same devices and train the same models.")
    if timing is not None:
        seconds = timing.groupby("policy", sort=False)["real_time"].median()
        each = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items())
        console.print(f"real time of a round: {each}", highlight=False)
    if options.training.train and (note := network_note(options)):
        console.print(f"Trained on {dataset_of(options)}: {note}.", highlight=False)
    for note in notes(setting):
        console.print(note, highlight=False)
    console.print(f"Results and plots: {folder}", soft_wrap=True)

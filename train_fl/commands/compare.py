"""Comparing policies under common random numbers: a table, figures and files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from policies.benchmark.experiment import run_settings
from policies.benchmark.results_folder import (
    Kind,
    claimed,
    default_folder,
    described,
    write_csv,
    write_text,
)
from policies.report.figures import PLOTS, draw_partition, save_figure, save_plots
from policies.report.latex import comparison_latex
from policies.report.tables import Board, comparison_table
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.options import CompareOptions
from train_fl.commands.settings import Scheduler, make_setting

if TYPE_CHECKING:
    from train_fl.factory import TrainingEnvFactory

_TABLES = ("bounds.csv", "rounds.csv", "summary.csv", "table.tex", "timing.csv")
COMPARISON = Kind("comparison", (*PLOTS, *_TABLES, "partition.pdf", "partition.png"))


def compare(options: CompareOptions, console: Console) -> None:
    """Run a comparison, print its table and write its results."""
    run = options.run
    output = options.output
    name = options.system.scenario
    options.check_used()
    setting = make_setting(name, options, [Scheduler(each) for each in options.policy.policies])
    decisive = options.decisive()
    stored = [described(setting.scenario)]
    folder = run.out or default_folder(name, decisive)
    with claimed(folder, COMPARISON, run, {"scenario": name} | decisive, stored):
        models = folder / "models" if options.training.save_models else None
        (results,) = run_settings([setting], folder, run, progress_console(), models=models)
        rounds = results.rounds
        bounds = results.bounds
        summary = results.summary()
        timing = None
        if "real_time" in rounds:  # a separate file, as it differs between repetitions
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
        save_plots(board, rounds, folder, formats=output.formats)
        if options.training.train:
            task = cast("TrainingEnvFactory", setting.entrants[0].training).make_task()
            counts = task.num_samples[:, None] * task.label_histogram
            panel = partial(draw_partition, counts=counts)
            save_figure([[panel]], [folder / f"partition.{kind}" for kind in output.formats])
    print_whole(*comparison_table(board, width=console.width), console)
    console.print(f"Results and figures: {folder}", soft_wrap=True)

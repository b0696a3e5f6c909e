"""Comparing policies under common random numbers: a table, figures and files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from policies.benchmark.comparison import Comparison, compare_settings
from policies.benchmark.results_folder import (
    claimed,
    default_folder,
    described,
    models_of,
    write_csv,
    write_text,
)
from policies.report.figures import PLOTS, save_plots
from policies.report.latex import comparison_latex
from policies.report.tables import comparison_table, not_run
from train_fl.commands.console import print_whole, progress_console
from train_fl.commands.options import CompareOptions, OutputOptions
from train_fl.commands.settings import PolicySpec, make_setting

_TABLES = ("bounds.csv", "rounds.csv", "summary.csv", "table.tex", "timing.csv")


def compare(options: CompareOptions, console: Console) -> None:
    """Run a comparison, print its table and write its results."""
    options.check_used()
    run = options.run
    name = options.system.scenario
    execution = run.execution()
    setting = make_setting("", options, [PolicySpec(each) for each in options.policy.policies])
    given = options.result_options()
    folder = run.out or default_folder(name, given)
    models = folder / "models" if options.training.save_models else None
    saved = [] if models is None else models_of(run.title for run in setting.runs)
    with claimed(
        folder,
        "comparison",
        [*PLOTS, *_TABLES, *saved],
        {"scenario": name} | given,
        [described(setting.scenario)],
        overwrite=run.overwrite,
    ) as results:
        # One, or none if all policies failed; then the error of those that failed.
        for comparison in compare_settings(
            [setting], results, progress_console(), models=models, **execution
        ):
            _write_results(comparison, results, Path(name).stem, options.output)
            for line in not_run(comparison):
                console.print(line, highlight=False)
            print_whole(*comparison_table(comparison, width=console.width), console)
            console.print(f"Results and figures: {folder}", soft_wrap=True)


def _write_results(
    comparison: Comparison, folder: Path, system: str, output: OutputOptions
) -> None:
    """Write tables and figures; durations, which differ when repeated, have their own table."""
    rounds = comparison.rounds.drop(columns="status")  # which the summary has
    if "real_time" in rounds:
        write_csv(folder / "timing.csv", rounds[["policy", "seed", "round", "real_time"]])
        rounds = rounds.drop(columns="real_time")
    write_csv(folder / "rounds.csv", rounds)
    write_csv(folder / "bounds.csv", comparison.bounds)
    write_csv(folder / "summary.csv", comparison.summary)
    if output.latex:
        write_text(folder / "table.tex", comparison_latex(system, comparison))
    save_plots(comparison, folder, formats=output.formats)

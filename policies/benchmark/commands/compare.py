"""Comparing policies under common random numbers: a table, plots and files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fl_edge_env.files import writable_folder
from policies.benchmark.bars import run_with_progress
from policies.benchmark.bound import find_prices
from policies.benchmark.command_line import print_whole
from policies.benchmark.commands.comparison_folder import (
    check_room,
    config,
    continued,
    default_folder,
    stored,
    write_csv,
    write_text,
)
from policies.benchmark.commands.comparison_options import Options
from policies.benchmark.commands.folder_lock import only_one
from policies.benchmark.commands.training import (
    MakeTraining,
    dataset_of,
    divfl_note,
    make_entrant,
    network_note,
    reports_note,
    training_of,
)
from policies.benchmark.evaluation import check_target, summarise
from policies.benchmark.feasibility import energy_tolerance
from policies.benchmark.figures import draw_partition, save_figure, save_plots
from policies.benchmark.jobs import BoundJob, make_jobs
from policies.benchmark.live import check_tensorboard, live_files
from policies.benchmark.runner import check_runner
from policies.benchmark.tables import coinciding, comparison_table


def compare(options: Options, console: Console, make_training: MakeTraining) -> None:
    """Run a comparison, print its table and write its results.

    Parameters
    ----------
    options : comparison_options.Options
        What to compare, on which system, and how.
    console : rich.console.Console
        Where to print.
    make_training : callable
        Prepares training where `options.train` asks for it.

    Raises
    ------
    ValueError
        If an option is wrong, or another command is at work in the folder.
    ModuleNotFoundError
        If a package that the options need is not installed.
    JobsFailedError
        If a run has failed.
    """
    settings: dict[str, Any] | None = None
    if resumed := options.resume is not None:
        options, settings = stored(options)
    seeds = options.seed_range()
    options.check_reports()
    check_target(options.target_accuracy)
    check_runner(options.workers, options.backend, options.checkpoint_every)
    check_tensorboard(options.tensorboard, trained=options.train)
    if options.save_models and not options.train:
        raise ValueError("--save-models is for runs that train models, and none are trained here")
    scenario = options.make_scenario()
    make_env = training_of(options, scenario, make_training) if options.train else None
    if make_env is not None:
        scenario = make_env.scenario
    policies = [
        make_entrant(name, scenario, make_env, pay_reports=options.pay_reports)
        for name in options.policies
    ]
    make_jobs(policies, scenario, seeds, make_env)  # refuses what is wrong before prices are found
    prices = find_prices(scenario)
    jobs = make_jobs(policies, scenario, seeds, make_env, prices)
    paths = [BoundJob(scenario, seed, prices) for seed in seeds]
    if make_env is not None:
        make_env(policies[0])  # refuses a wrong option here, not in a worker
    settings = continued(settings, config(options, scenario), console)
    folder = options.out or default_folder(options)
    writes = _can_write(folder, finished_will_do=resumed)
    target = options.target_accuracy if options.train else None
    with only_one(folder) if writes else nullcontext():
        check_room(folder, settings)
        if writes:
            text = json.dumps(settings, indent=2, allow_nan=False) + "\n"
            write_text(folder / "config.json", text)
        results = run_with_progress(
            "runs",
            [*jobs, *paths],
            folder=folder / "jobs",
            workers=options.workers,
            backend=options.backend,
            address=options.address,
            checkpoint_every=options.checkpoint_every,
            record=live_files(folder, tensorboard=options.tensorboard),
            models=folder / "models" if options.save_models and writes else None,
            console=console,
        )
        rounds = pd.concat(results[: len(jobs)], ignore_index=True)
        bounds = pd.concat(results[len(jobs) :], ignore_index=True)
        summary = summarise(rounds, target, bounds)
        timing = None
        if "real_time" in rounds:  # kept apart from what a repetition repeats
            timing = rounds[["policy", "seed", "round", "real_time"]]
            rounds = rounds.drop(columns="real_time")
        if writes:
            tables = {"rounds": rounds, "bounds": bounds.drop(columns="policy"), "summary": summary}
            tables |= {} if timing is None else {"timing": timing}
            for name, table in tables.items():
                write_csv(folder / f"{name}.csv", table)
            save_plots(rounds, bounds, folder)
            if make_env is not None:
                task = make_env.make_task()
                counts = task.num_samples[:, None] * task.label_histogram
                panel = partial(draw_partition, counts=counts)
                save_figure([[panel]], [folder / "partition.png"])
    tolerance = energy_tolerance(scenario, scenario.num_rounds)
    printed = comparison_table(summary, target, tolerance=tolerance, width=console.width)
    print_whole(printed, console)
    for twins in coinciding(rounds):
        console.print(f"{' and '.join(twins)} draw the same devices and train the same models.")
    if timing is not None:
        seconds = timing.groupby("policy", sort=False)["real_time"].median()
        told = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items())
        console.print(f"real time of a round: {told}", highlight=False)
    if options.train and (note := network_note(options)):
        console.print(f"Trained on {dataset_of(options)}: {note}.", highlight=False)
    if note := divfl_note(policies, trained=options.train):
        console.print(note, highlight=False)
    if note := reports_note({policy.name: policy for policy in policies}):
        console.print(note, highlight=False)
    told = "Results and plots" if writes else "Read, and nothing written to"
    console.print(f"{told}: {folder}", soft_wrap=True)


def _can_write(folder: Path, *, finished_will_do: bool) -> bool:
    """Whether results can be written; a finished comparison can be printed without."""
    try:
        writable_folder(folder)
    except ValueError:
        if not finished_will_do:
            raise
        return False
    return True

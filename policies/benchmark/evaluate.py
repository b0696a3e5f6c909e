"""Evaluate policies: run them under many seeds, and summarise each run in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.checks import is_real
from policies.base import Policy
from policies.benchmark.bounds import find_prices
from policies.benchmark.status import DeviceAccounts, judge

if TYPE_CHECKING:
    import pandas as pd

    from policies.benchmark.jobs import EnvFactory, Work


def evaluate(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    make_env: EnvFactory | None = None,
    target_accuracy: float | None = None,
    gaps: bool = True,
    workers: int = 1,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Run policies under the same seeds, and give a row with the results of each run.

    With the same seed every policy meets the same channel (common random numbers).

    Parameters
    ----------
    policies : sequence of Policy
        With distinct names, made for this scenario.
    scenario : Scenario
        The system.
    seeds : sequence of int
        Seeds of the runs.
    make_env : callable, optional
        Makes the training environment of a policy, such as `train_fl.TrainingEnvFactory`. Without
        it no models are trained, and all seeds of a policy run as one batch.
    target_accuracy : float, optional
        Test accuracy in (0, 1]; where models are trained, `time_to_target` is the time at which it
        is first reached.
    gaps : bool
        Whether to compute `gap` and `outcome_gap`. It takes a solution of P2 and one of the outcome
        problem for each round of each seed.
    workers : int
        Number of processes.
    progress : bool, optional
        Whether to show a bar on standard error that advances with each finished run and disappears
        at the end. By default it is shown if that is a terminal.

    Returns
    -------
    pandas.DataFrame
        A row for each policy and seed; see `summarise` for the columns.

    Raises
    ------
    ValueError
        If an argument is wrong.
    JobsFailedError
        If a run raised, after all others are finished.
    WorkerKilledError
        If the system ended a process of several.
    """
    # What runs policies takes longer to import than what policies need.
    import pandas as pd
    from rich.console import Console

    from policies.benchmark.episode import gathered
    from policies.benchmark.jobs import BoundJob, check_seeds, make_jobs
    from policies.benchmark.runner import check_runner, run_jobs

    check_target(target_accuracy)
    seeds = check_seeds(seeds)
    make_jobs(policies, scenario, seeds, make_env)  # refuses what is wrong before prices are found
    check_runner(workers)
    prices = find_prices(scenario) if gaps else None
    jobs = make_jobs(policies, scenario, seeds, make_env, prices)
    paths = [] if prices is None else [BoundJob(scenario, seed, prices) for seed in seeds]
    work: list[Work] = [*jobs, *paths]
    console = Console(stderr=True, force_terminal=progress)
    results = run_jobs(work, workers=workers, console=console, transient=True)
    rounds, devices = gathered(zip((job.policy.name for job in jobs), results, strict=False))
    least = [one.rounds for one in results[len(jobs) :]]
    bounds = pd.concat(least, ignore_index=True) if paths else None
    return summarise(rounds, target_accuracy, bounds, devices)


def check_target(target_accuracy: object) -> None:
    """Raise `ValueError` for an accuracy outside (0, 1], such as one in per cent."""
    if target_accuracy is None:
        return
    if not is_real(target_accuracy):
        raise ValueError(f"target_accuracy must be a number in (0, 1], got {target_accuracy!r}")
    if 0 < target_accuracy <= 1:
        return
    per_cent = f": {target_accuracy:g} % is {target_accuracy / 100:g}"
    instead = per_cent if 1 < target_accuracy <= 100 else ""
    raise ValueError(f"target_accuracy must lie in (0, 1], got {target_accuracy!r}{instead}")


def summarise(
    rounds: pd.DataFrame,
    target_accuracy: float | None = None,
    bounds: pd.DataFrame | None = None,
    devices: Mapping[str, DeviceAccounts] | None = None,
) -> pd.DataFrame:
    """Summarise the rounds of each policy and seed in one row, policies in order of appearance.

    `rounds` is a table of `policies.benchmark.episode.run_episode`, `bounds` the rows of all seeds
    of a `BoundJob` at the prices of these rounds, and `devices` the accounts of all runs of each
    policy.

    Returns
    -------
    pandas.DataFrame
        `policy` and `seed`. The outcome: `total_time` [s]; where models were trained
        `final_accuracy`, `mean_device_accuracy` and `worst_tenth_accuracy` after the last round
        and, with a target accuracy, `time_to_target`, when it is first reached [s], NaN where it
        was not.
        The constraints: with `devices` the `status` of the policy, the same in all its
        rows, and the `status_reason`, empty where it is ok, see `policies.benchmark.status`;
        `spent_ratio` and `worst_spent_ratio`, the energy realized over the budget, as the mean over
        devices and of the worst one; `energy_ratio` and `worst_energy_ratio`, the same of the
        expected energy; `influence`, the mean weight of a device in the aggregate over its share of
        the data, of the device with the least; `aggregate_noise`, the mean of the sum of squared
        weights; `least_participation`, the participations of a device over those that its data
        weight asks for, of the device with the fewest; and `never_seen`, the number of devices that
        never took part. The distances: with bounds `gap`, the priced objective over its least
        possible mean on the same path, less one, and `outcome_gap`, the same of the priced outcome,
        for which no policy is below zero: a value of the Lagrangian, in which leaving devices out
        costs no more than its price, to be read beside the status. And
        `mean_objective` (time-average penalty [s]), `mean_reward` and `sampling_error`. A column
        that is not defined for a policy that chooses its cohort is NaN, and so is a distance where
        prices make the bound negative, and `gap` where devices drop out.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(total_time=("elapsed_time", "last"))
    if "test_accuracy" in rounds:
        if target_accuracy is not None:
            reached = rounds[rounds["test_accuracy"] >= target_accuracy]
            first = reached.groupby(["policy", "seed"], sort=False)["elapsed_time"].first()
            table["time_to_target"] = first
        table["final_accuracy"] = groups["test_accuracy"].last()
        for name in ("mean_device_accuracy", "worst_tenth_accuracy"):
            table[name] = groups[name].last()
    if devices is not None:
        judged = {name: judge(accounts) for name, accounts in devices.items()}
        names = table.index.get_level_values("policy")
        table["status"] = [judged[name].name for name in names]
        table["status_reason"] = [judged[name].reason for name in names]
    table["spent_ratio"] = groups["spent_ratio"].agg(_mean)
    table["worst_spent_ratio"] = groups["worst_spent_ratio"].last()
    table["energy_ratio"] = groups["energy_ratio"].agg(_mean)
    table["worst_energy_ratio"] = groups["worst_energy_ratio"].last()
    table["influence"] = groups["influence"].last()
    table["aggregate_noise"] = groups["aggregate_noise"].agg(_mean)
    table["least_participation"] = groups["least_participation"].last()
    table["never_seen"] = groups["never_seen"].last().astype(int)
    if bounds is not None:
        for name, priced_name, bound_name in (
            ("gap", "priced_objective", "bound"),
            ("outcome_gap", "priced_outcome", "outcome_bound"),
        ):
            priced = groups[priced_name].agg(_mean)
            least = bounds.groupby("seed")[bound_name].agg(_mean)
            bound = least.reindex(priced.index.get_level_values("seed")).to_numpy()
            gap = priced / np.where(bound > 0, bound, np.nan) - 1.0
            table[name] = np.where(np.abs(gap) < 1e-12, 0.0, gap)  # rounding
    table["mean_objective"] = groups["penalty"].agg(_mean)
    table["mean_reward"] = groups["reward"].agg(_mean)
    table["sampling_error"] = groups["sampling_error"].agg(_mean)
    return table.reset_index()


def _mean(values: pd.Series) -> float:
    """The mean as NumPy takes it; that of pandas depends in its last digit on other groups."""
    return float(np.mean(values.to_numpy()))

"""Evaluate policies: run them under many seeds, and condense the rounds to one row a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fl_edge_env import Scenario
from policies.base import Policy
from policies.benchmark.bound import LowerBound
from policies.benchmark.rollout import ENERGY_TOLERANCE
from policies.benchmark.runner import EnvFactory, make_jobs, run_jobs


def evaluate(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    make_env: EnvFactory | None = None,
    target_accuracy: float | None = None,
    bound: LowerBound | None = None,
    workers: int = 1,
) -> pd.DataFrame:
    """Evaluate policies under common random numbers.

    Parameters
    ----------
    policies : sequence of Policy
        With distinct names.
    scenario : Scenario
        The system.
    seeds : sequence of int
        The channel of a seed is the same for every policy.
    make_env : callable, optional
        Makes the training environment for a policy; without it no models are trained and all
        seeds of a policy run as one batch.
    target_accuracy : float, optional
        Adds `time_to_target` where models are trained.
    bound : LowerBound, optional
        That of this scenario, whatever its number of rounds; adds `bound_gap` and
        `within_budget`.
    workers : int
        Processes.

    Returns
    -------
    pandas.DataFrame
        A row per policy and seed; see `summarise` for the columns.

    Raises
    ------
    ValueError
        If an argument is wrong.
    JobsFailedError
        If a run raised, after all others are finished.
    """
    jobs = make_jobs(policies, scenario, seeds, make_env)
    if bound is not None:
        _check_bound(bound, scenario)
    rounds = run_jobs(jobs, workers=workers)
    return summarise(pd.concat(rounds, ignore_index=True), target_accuracy, bound)


def _check_bound(bound: object, scenario: Scenario) -> None:
    if not isinstance(bound, LowerBound):
        raise ValueError(f"bound must be a LowerBound, got {bound!r}")
    wanted, given = scenario.to_dict(), bound.scenario.to_dict()
    given["num_rounds"] = scenario.num_rounds  # of a time average it does not matter
    if other := [name for name in wanted if not np.array_equal(wanted[name], given[name])]:
        raise ValueError(
            f"bound must be that of this scenario, got that of one with another {', '.join(other)}"
        )


def summarise(
    rounds: pd.DataFrame,
    target_accuracy: float | None = None,
    bound: LowerBound | None = None,
) -> pd.DataFrame:
    """Condense rounds to a row per policy and seed, policies in order of appearance.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `policies.benchmark.rollout.run_episode` returns it.
    target_accuracy : float, optional
        Accuracy whose first arrival `time_to_target` tells.
    bound : LowerBound, optional
        Lower bound on the penalty.

    Returns
    -------
    pandas.DataFrame
        `policy`, `seed`, `total_time` [s], `mean_objective` (time-average penalty [s]),
        `mean_reward`, `energy_ratio`, `worst_energy_ratio`, `sampling_error`; where models were
        trained `final_accuracy` and, with a target, `time_to_target` [s], NaN where it was not
        reached; with a bound `bound_gap`, the objective's relative distance to it, and
        `within_budget`, whether every device met its budget, without which the bound does not
        apply.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(
        total_time=("elapsed_time", "last"),
        mean_objective=("penalty", "mean"),
        mean_reward=("reward", "mean"),
        energy_ratio=("energy_ratio", "mean"),
        worst_energy_ratio=("worst_energy_ratio", "last"),
        sampling_error=("sampling_error", "mean"),
    )
    if "test_accuracy" in rounds:
        table["final_accuracy"] = groups["test_accuracy"].last()
        if target_accuracy is not None:
            reached = rounds[rounds["test_accuracy"] >= target_accuracy]
            first = reached.groupby(["policy", "seed"], sort=False)["elapsed_time"].first()
            table["time_to_target"] = first
    if bound is not None:
        table["bound_gap"] = table["mean_objective"] / bound.value - 1.0
        table["within_budget"] = table["worst_energy_ratio"] <= 1.0 + ENERGY_TOLERANCE
    return table.reset_index()

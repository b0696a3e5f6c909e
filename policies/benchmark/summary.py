"""The results of each run in one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from fl_edge_env.typing import FloatArray
from policies.benchmark.status import OK, Status


def summarise(
    rounds: pd.DataFrame,
    target_accuracy: float | None = None,
    bounds: pd.DataFrame | None = None,
    statuses: Mapping[str, Status] | None = None,
) -> pd.DataFrame:
    """Summarise the rounds of each policy and seed in one row, policies in order of appearance.

    `rounds` has the rounds of `policies.benchmark.records.Record`s, with the policies' labels in
    `policy`. `bounds` has the rounds of a `BoundRun` for each seed, at the prices of these rounds.
    `statuses` has the status of each policy; see `policies.benchmark.status.judge`.

    Returns
    -------
    pandas.DataFrame
        `policy` and `seed`. The outcome: `total_time` [s]; with training `final_accuracy`,
        `mean_device_accuracy` and `worst_tenth_accuracy` after the last round; with a target
        accuracy `time_to_target`, when it is first reached [s], NaN if it is not.
        The constraints: with `statuses` the policy's `status`, the same in all its rows, and the
        `status_reason`, empty if it is ok, see `policies.benchmark.status`; `spent_ratio` and
        `worst_spent_ratio`, realised energy over the budget, as the mean over devices and of the
        worst device; `energy_ratio` and `worst_energy_ratio`, the same for expected energy;
        `influence`, the smallest ratio of mean aggregate weight to data share over all devices;
        `aggregate_noise`, the mean sum of squared weights; `least_participation`, the smallest
        ratio of a device's participations to its fair number; and `never_seen`, the number of
        devices that never participated.
        The distances: with bounds `gap`, the priced objective over the mean bound of the same
        sample path, minus one, and `outcome_gap`, the same for the priced outcome, which is never
        below zero. It is a value of the Lagrangian, which charges a policy only the price of the
        devices it leaves out, so read it with the status. With a target and `statuses` also
        `accuracy_gap`, the time to the target over the sum of the outcome bounds of the first R
        rounds, minus one; R is the first evaluated round in which a policy that is ok reaches the
        target on the same seed. It is not below zero for a policy that needs R rounds or more
        and keeps its budgets and participations in the first R. Further: `mean_objective`
        (time-average penalty [s]), `mean_reward` and `sampling_error`. A column is NaN if it is
        undefined for a policy that chooses its cohort, a distance if its bound is not positive,
        `gap` if devices drop out or the scenario has a deadline, and `outcome_gap` if a policy sets
        bandwidths.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(total_time=("elapsed_time", "last"))
    if "test_accuracy" in rounds:
        if target_accuracy is not None:
            reached = rounds[rounds["test_accuracy"] >= target_accuracy]
            first = reached.drop_duplicates(["policy", "seed"]).set_index(["policy", "seed"])
            table["time_to_target"] = first["elapsed_time"]
        table["final_accuracy"] = groups["test_accuracy"].last()
        for name in ("mean_device_accuracy", "worst_tenth_accuracy"):
            table[name] = groups[name].last()
    if statuses is not None:
        judged = [statuses[name] for name in table.index.get_level_values("policy")]
        table["status"] = [status.name for status in judged]
        table["status_reason"] = [status.reason for status in judged]
    table["spent_ratio"] = groups["spent_ratio"].agg(_mean)
    table["worst_spent_ratio"] = groups["worst_spent_ratio"].last()
    table["energy_ratio"] = groups["energy_ratio"].agg(_mean)
    table["worst_energy_ratio"] = groups["worst_energy_ratio"].last()
    table["influence"] = groups["influence"].last()
    table["aggregate_noise"] = groups["aggregate_noise"].agg(_mean)
    table["least_participation"] = groups["least_participation"].last()
    table["never_seen"] = groups["never_seen"].last().astype(int)
    if bounds is not None and len(bounds):
        least = bounds.groupby("seed")[["bound", "outcome_bound"]].agg(_mean)
        table["gap"] = _above(groups["priced_objective"].agg(_mean), least["bound"])
        table["outcome_gap"] = _above(groups["priced_outcome"].agg(_mean), least["outcome_bound"])
        if "status" in table and "time_to_target" in table:
            fewest = first["round"].where(table["status"] == OK).groupby("seed").min()
            played = bounds[bounds["round"] <= bounds["seed"].map(fewest)]
            time = table["time_to_target"].where(table["outcome_gap"].notna())
            table["accuracy_gap"] = _above(time, played.groupby("seed")["outcome_bound"].sum())
    table["mean_objective"] = groups["penalty"].agg(_mean)
    table["mean_reward"] = groups["reward"].agg(_mean)
    table["sampling_error"] = groups["sampling_error"].agg(_mean)
    return table.reset_index()


def by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each policy, in order of appearance."""
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]


def labelled(column: str, tables: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Tables as one, with their labels in a first column."""
    parts = [table.assign(**{column: label}) for label, table in tables]
    whole = pd.concat(parts, ignore_index=True)
    whole.insert(0, column, whole.pop(column))
    return whole


def _above(values: pd.Series, least: pd.Series) -> FloatArray:
    """Runs' values over their seeds' bounds, minus one; NaN if a bound is not positive."""
    bound = least.reindex(values.index.get_level_values("seed")).to_numpy()
    gap = values.to_numpy() / np.where(bound > 0, bound, np.nan) - 1.0
    above: FloatArray = np.where(np.abs(gap) < 1e-12, 0.0, gap)  # rounding
    return above


def _mean(values: pd.Series) -> float:
    """NumPy's mean; the last digit of pandas' depends on other groups."""
    return float(np.mean(values.to_numpy()))

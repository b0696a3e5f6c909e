"""The results of each run in one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fl_edge_env.typing import FloatArray
from policies.benchmark.records import DeviceAccounts, joined
from policies.benchmark.status import Status

# Constraints of a run: the values after its last round, and means over its rounds.
_CONSTRAINTS = (
    "spent_ratio",
    "worst_spent_ratio",
    "energy_ratio",
    "worst_energy_ratio",
    "influence",
    "aggregate_noise",
    "least_participation",
    "never_seen",
)
_MEANS = ("spent_ratio", "energy_ratio", "aggregate_noise")
# Means over rounds of other columns.
_OBJECTIVES = {
    "mean_objective": "penalty",
    "mean_reward": "reward",
    "sampling_error": "sampling_error",
}


def summarise(
    rounds: pd.DataFrame,
    accounts: Mapping[str, DeviceAccounts],
    statuses: Mapping[str, Status],
    target_accuracy: float | None = None,
    bounds: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Summarise the rounds of each policy and seed in one row, policies in order of appearance.

    `rounds` has the rounds of `policies.benchmark.records.Record`s, with the policies' labels in
    `policy`, and `accounts` the accounts of each policy's runs. `statuses` has the status of each
    policy; see `policies.benchmark.status.judge`. `bounds` has the rounds of a `BoundRun` for each
    seed, at the prices of these rounds.

    Returns
    -------
    pandas.DataFrame
        `policy` and `seed`. The outcome: `total_time` [s] and `priced_time` [s], which is the time
        plus what the policy overspends and leaves out at the setting's prices, minus what it saves,
        see `policies.benchmark.bounds.priced_outcome`, NaN if more than K devices take part in a
        round; with training `final_accuracy`, `mean_device_accuracy` and `worst_tenth_accuracy`
        after the last round; with a target accuracy `time_to_target` and `priced_time_to_target`,
        the same until it is first reached [s], NaN if it is not.
        The constraints: the policy's `status`, the same in all its rows, and the `status_reason`,
        empty if it is ok, see `policies.benchmark.status`; `lack`, what devices lack of their fair
        participation, on average over devices, and `excess`, what they spend beyond their budgets;
        `spent_ratio` and `worst_spent_ratio`, realised energy over the budget, as the mean over
        devices and of the worst device; `energy_ratio` and `worst_energy_ratio`, the same for
        expected energy; `influence`, the smallest ratio of mean aggregate weight to data share over
        all devices; `aggregate_noise`, the mean sum of squared weights; `least_participation`, the
        smallest ratio of a device's participations to its fair number; and `never_seen`, the number
        of devices that never participated.
        The distances: with bounds `gap`, the priced objective over the mean bound of the same
        sample path, minus one, and `outcome_gap`, the same for the priced time, which is never
        below zero; with a target also `accuracy_gap`, the same for the priced time to the target
        and the rounds until then. Further: `mean_objective` (time-average penalty [s]),
        `mean_reward` and `sampling_error`. A column is NaN if it is undefined for a policy that
        chooses its cohort, a distance if its bound is not positive, `gap` if devices drop out or
        the scenario has a deadline, and `outcome_gap` and `accuracy_gap` if a policy sets
        bandwidths.
    """
    groups = _runs(rounds)
    table = groups.agg(total_time=("elapsed_time", "last"))
    table["priced_time"] = groups["priced_outcome"].agg(_sum)
    played = rounds
    if "test_accuracy" in rounds:
        if target_accuracy is not None:
            played = _until(rounds, target_accuracy)
            until = _runs(played)
            table["time_to_target"] = until["elapsed_time"].last()
            table["priced_time_to_target"] = until["priced_outcome"].agg(_sum)
        table["final_accuracy"] = groups["test_accuracy"].last()
        for name in ("mean_device_accuracy", "worst_tenth_accuracy"):
            table[name] = groups[name].last()
    names = table.index.get_level_values("policy")
    table["status"] = [statuses[name].name for name in names]
    table["status_reason"] = [statuses[name].reason for name in names]
    of_all = joined([accounts[name] for name in names.unique()])
    table["lack"] = of_all.lack()
    table["excess"] = of_all.excess()
    for name in _CONSTRAINTS:
        table[name] = groups[name].agg(_mean) if name in _MEANS else groups[name].last()
    table["never_seen"] = table["never_seen"].astype(int)
    if bounds is not None and len(bounds):
        _add_distances(table, rounds, played, bounds)
    for name, column in _OBJECTIVES.items():
        table[name] = groups[column].agg(_mean)
    return table.reset_index()


def _add_distances(
    table: pd.DataFrame, rounds: pd.DataFrame, played: pd.DataFrame, bounds: pd.DataFrame
) -> None:
    """Add the columns of distances to bounds; `played` has the rounds until the target."""
    groups = _runs(rounds)
    least = bounds.groupby("seed")[["bound", "outcome_bound"]].agg(_mean)
    least = least.loc[table.index.get_level_values("seed")].set_index(table.index)
    bounded = groups["bounded"].min() == 1
    priced = groups["priced_outcome"].agg(_mean).where(bounded)
    table["gap"] = _above(groups["priced_objective"].agg(_mean), least["bound"])
    table["outcome_gap"] = _above(priced, least["outcome_bound"])
    if "priced_time_to_target" in table:
        least_until = _runs(played.merge(bounds, on=["seed", "round"]))["outcome_bound"].agg(_sum)
        priced = table["priced_time_to_target"].where(bounded)
        table["accuracy_gap"] = _above(priced, least_until.reindex(table.index))


def weights_until(rounds: pd.DataFrame, target_accuracy: float | None) -> dict[str, float]:
    """The mean sum of a round's weights, by policy.

    The larger of two means: over all rounds, and over those until the target in runs that reach it.
    """

    def means(of: pd.DataFrame) -> pd.Series:
        return _runs(of)["weight_sum"].agg(_mean).groupby("policy", sort=False).mean()

    weights = means(rounds)
    if target_accuracy is not None and "test_accuracy" in rounds:
        weights = pd.concat([weights, means(_until(rounds, target_accuracy))], axis=1).max(axis=1)
    return {str(name): float(weight) for name, weight in weights.items()}


def _until(rounds: pd.DataFrame, target_accuracy: float) -> pd.DataFrame:
    """The rounds of runs that reach the target accuracy, until they first do."""
    reached = rounds["round"].where(rounds["test_accuracy"] >= target_accuracy)
    first = _runs(rounds.assign(reached=reached))["reached"].transform("min")
    return rounds[rounds["round"] <= first]


def _runs(rounds: pd.DataFrame) -> Any:
    """The rounds grouped by policy and seed."""
    return rounds.groupby(["policy", "seed"], sort=False)


def by_policy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each policy, in order of appearance."""
    return [(str(name), group) for name, group in table.groupby("policy", sort=False)]


def labelled(column: str, tables: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Tables as one, with their labels in a first column."""
    whole = pd.concat(
        [table.assign(**{column: label}) for label, table in tables], ignore_index=True
    )
    whole.insert(0, column, whole.pop(column))
    return whole


def _above(values: pd.Series, least: pd.Series) -> FloatArray:
    """Runs' values over their bounds, minus one; NaN if a bound is not positive."""
    bound = least.to_numpy()
    gap = values.to_numpy() / np.where(bound > 0, bound, np.nan) - 1.0
    return np.where(np.abs(gap) < 1e-12, 0.0, gap)  # rounding


def _mean(values: pd.Series) -> float:
    """NumPy's mean; the last digit of pandas' depends on other groups."""
    return values.to_numpy().mean()


def _sum(values: pd.Series) -> float:
    """NumPy's sum, as `_mean`."""
    return values.to_numpy().sum()

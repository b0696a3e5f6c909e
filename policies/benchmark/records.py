"""Records the rounds of a run, and the accounts of each device."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_edge_env import Allocation, Scenario
from fl_edge_env.aggregation import contributions, in_time
from fl_edge_env.allocation import normalized
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.physics import participation_probability
from fl_edge_env.typing import BoolArray, FloatArray, Info, Observed
from policies.benchmark.accounts import DeviceAccounts, over_fair
from policies.benchmark.bounds import Prices, priced_outcome

# Relative excess over the budget that is only rounding.
ENERGY_TOLERANCE = 1e-9

# The least filled fraction of the cohort: for cohorts that are chosen and waited for, and others.
LEAST_CHOSEN = 0.95
LEAST_FILLED = 0.9

_SCALARS = ("round_time", "elapsed_time", "latency", "sampling_error", "penalty")


def seed_column(seeds: Sequence[int]) -> NDArray[Any]:
    """Seeds for a table: 64-bit integers, or Python's if one is larger."""
    return np.array(seeds, dtype=np.int64 if max(seeds) < 2**63 else object)


class Record(NamedTuple):
    """What came of a run: a row for each round, and the accounts of each device.

    The record of a bound has only rounds.
    """

    rounds: pd.DataFrame
    accounts: DeviceAccounts | None = None


class Recorder:
    """Makes the `Record` of a run, round by round, at 8 bytes a number."""

    def __init__(
        self, scenario: Scenario, seeds: Sequence[int], prices: Prices | None = None
    ) -> None:
        self._scenario = scenario
        self._prices = prices
        self._target = participation_target(scenario)
        self._shares = _shares(scenario, np.ones(scenario.num_devices, dtype=np.bool_))
        shape = (len(seeds), scenario.num_devices)
        # Sums over the rounds so far, by device; `by_data` is the fair influence.
        names = "expected spent participations counted drawn fair influence by_data"
        self._sums: dict[str, FloatArray] = {name: np.zeros(shape) for name in names.split()}
        self._sums["filled"] = np.zeros(len(seeds))  # fractions of the cohort
        self._sums["chosen"] = np.zeros(())  # rounds with a chosen cohort
        self._seeds = seeds
        self._columns: dict[str, FloatArray] = {}  # (num_rounds, seeds)
        self.num_rounds = 0

    def add(
        self,
        decision: Allocation,
        observation: Observed,
        reward: object,
        info: Info,
        start: float,
    ) -> None:
        """Record a round of all runs, which began at `start` [s] on this machine's clock."""
        seconds = time.perf_counter() - start
        scenario = self._scenario
        budget = scenario.energy_budget_j
        self.num_rounds += 1
        expected = info["energy_expected"]
        spent = info["energy_spent"]
        weight = contributions(decision, info, scenario).weight
        done = in_time(info)
        self._sums["participations"] += done
        self._count_shares(decision, info, weight, done)
        self._sums["expected"] += expected
        self._sums["spent"] += spent
        average = self._sums["expected"] / budget / self.num_rounds
        spent_average = self._sums["spent"] / budget / self.num_rounds
        devices = scenario.num_devices
        values = {name: info.get(name, math.nan) for name in _SCALARS} | {
            "reward": reward,
            # Sums over N: NumPy's mean and count_nonzero take twice as long.
            "energy_ratio": (expected / budget).sum(axis=-1) / devices,
            "spent_ratio": (spent / budget).sum(axis=-1) / devices,
            "worst_energy_ratio": average.max(axis=-1),
            "worst_spent_ratio": spent_average.max(axis=-1),
            "influence": self._influence().min(axis=-1),
            "aggregate_noise": (weight**2).sum(axis=-1),
            # Sampling weights follow from q and are unbiased, so their sum is not checked.
            "weight_sum": weight.sum(axis=-1) if decision.q is None else 1.0,
            "least_participation": self._participation().min(axis=-1),
            "never_seen": (self._sums["participations"] == 0).sum(axis=-1),
            "over_budget": (average > 1 + ENERGY_TOLERANCE).sum(axis=-1) / devices,
            "mean_queue": observation["queue"].sum(axis=-1) / devices,
            "max_queue": observation["queue"].max(axis=-1),
        }
        if self._prices is not None:
            values["priced_outcome"] = priced_outcome(info, self._prices.outcome, scenario)
            if self._prices.energy is not None:
                excess = (self._prices.energy * (expected - budget)).sum(axis=-1)
                values["priced_objective"] = values["penalty"] + excess
                # The bound of the outcome assumes equal bandwidths.
                values["bounded"] = decision.bandwidth is None
        if "client_updates" in info:
            names = ("train_loss", "test_loss", "test_accuracy")
            values |= {name: info.get(name, math.nan) for name in names} | {"real_time": seconds}
            accuracy = np.sort(info.get("device_accuracy", [math.nan]))
            # NaN if none of a device's classes is tested, or nothing was evaluated.
            known = accuracy[~np.isnan(accuracy)] if not np.isnan(accuracy).all() else accuracy
            values["mean_device_accuracy"] = np.mean(known)
            values["worst_tenth_accuracy"] = np.mean(known[: math.ceil(len(known) / 10)])
        for name, value in values.items():
            if name not in self._columns:
                self._columns[name] = np.full((scenario.num_rounds, len(self._seeds)), np.nan)
            self._columns[name][self.num_rounds - 1] = value

    def _count_shares(
        self,
        decision: Allocation,
        info: Info,
        weight: FloatArray,
        done: BoolArray,
    ) -> None:
        """Record the fair participation and weight of available devices, and their actual ones.

        Also record the filled fraction of the cohort, to which late devices do not contribute.
        """
        scenario = self._scenario
        available = info.get("available")
        shares = self._shares if available is None else _shares(scenario, available)
        self._sums["drawn"] += shares.drawn
        self._sums["fair"] += shares.fair
        # Expected sampling weights sum to the available share of the data.
        self._sums["by_data"] += shares.by_data if decision.q is None else shares.of_all
        self._sums["influence"] += weight
        self._sums["counted"] += done
        if decision.weights is not None:
            # A participation with less than the weight of its data share counts less.
            data = scenario.weights * done
            least = data / np.maximum(data.sum(axis=-1, keepdims=True), 1e-300)
            least = np.minimum(least, scenario.weights / self._target)
            sent = done & ~info["failed"] if "failed" in info else done
            given = weight * (1.0 - scenario.upload_failure)
            lost = np.maximum(1.0 - given / np.maximum(least, 1e-300), 0.0)
            self._sums["counted"] -= np.where(sent, lost, 0.0)
        if decision.q is not None:
            q = info["q"] if "q" in info else normalized(decision.q)
            distinct = participation_probability(q, scenario.cohort_size).sum(axis=-1)
            filled = np.minimum(distinct / shares.distinct, 1.0)
            if "late" in info:
                filled *= np.take_along_axis(done, info["cohort"], axis=-1).mean(axis=-1)
        else:
            self._sums["chosen"] += 1.0
            filled = np.minimum(done.sum(axis=-1) / shares.drawn.sum(axis=-1), 1.0)
        self._sums["filled"] += filled

    def _fair(self) -> FloatArray:
        return np.minimum(self._sums["fair"], self.num_rounds * self._target)

    def _participation(self) -> FloatArray:
        return over_fair(self._sums["participations"], self._fair())

    def _influence(self) -> FloatArray:
        fair = np.minimum(self._sums["by_data"], self.num_rounds * self._scenario.weights)
        return over_fair(self._sums["influence"], fair)

    def table(self) -> pd.DataFrame:
        """The rounds so far."""
        index = {
            "seed": np.repeat(seed_column(self._seeds), self.num_rounds),
            "round": np.tile(np.arange(1, self.num_rounds + 1), len(self._seeds)),
        }
        columns = {
            name: values[: self.num_rounds].T.ravel() for name, values in self._columns.items()
        }
        return pd.DataFrame(index | columns)

    def accounts(self) -> DeviceAccounts:
        """The accounts of each device over the rounds so far."""
        drawn = self._sums["drawn"]
        fair = self._fair()
        sampled = not self._sums["chosen"]
        waits = self._scenario.deadline_s == math.inf
        least_filled = LEAST_CHOSEN if waits and not sampled else LEAST_FILLED
        return DeviceAccounts(
            energy=self._sums["spent"] / self._scenario.energy_budget_j / self.num_rounds,
            participation=self._influence() * fair if sampled else self._sums["counted"],
            actual=self._sums["participations"],
            weighted=self._scenario.cohort_size * self._sums["influence"],
            fair=fair,
            drawn=drawn,
            allowed=np.maximum(drawn, self.num_rounds * self._target),
            filled=self._sums["filled"] / self.num_rounds,
            least_filled=np.full(len(self._seeds), least_filled),
        )

    def record(self) -> Record:
        """The rounds so far, and the accounts."""
        return Record(self.table(), self.accounts())


class _Shares(NamedTuple):
    """What a round asks of the available devices.

    Attributes
    ----------
    of_all, by_data : ndarray, shape (..., N)
        Their shares of all data, and of the data of those that are available.
    drawn, fair : ndarray, shape (..., N)
        Their mean participations in proportion to the data, and the same or an even split, if that
        is fewer.
    distinct : ndarray, shape (...,)
        Expected number of distinct devices in draws by data.
    """

    of_all: FloatArray
    by_data: FloatArray
    drawn: FloatArray
    fair: FloatArray
    distinct: FloatArray


def _shares(scenario: Scenario, available: BoolArray) -> _Shares:
    size = scenario.cohort_size
    of_all = np.where(available, scenario.weights, 0.0)
    by_data = of_all / of_all.sum(axis=-1, keepdims=True)
    drawn = np.minimum(size * by_data, 1.0)
    number = np.count_nonzero(available, axis=-1)
    fair = np.minimum(drawn, size / np.maximum(number, 1)[..., None])
    distinct = participation_probability(by_data, size).sum(axis=-1)
    return _Shares(of_all, by_data, drawn, fair, distinct)

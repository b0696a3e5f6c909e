"""Records the rounds of a run, and the accounts of each device."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_edge_env import Allocation, Scenario
from fl_edge_env.aggregation import contributions, in_time, surplus
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import BoolArray, FloatArray, Info, Observed

# Relative excess over the budget that is only rounding.
ENERGY_TOLERANCE = 1e-9

_SCALARS = ("round_time", "elapsed_time", "latency", "sampling_error", "penalty")


class DeviceAccounts(NamedTuple):
    """Accounts of S runs of a policy, from which its status is judged.

    Attributes
    ----------
    energy : ndarray, shape (S, N)
        Energy that each device spent, over its budget.
    participation : ndarray, shape (S, N)
        Number of each device's participations. If a decision gives weights, one with less than the
        weight of the device's data share counts less. If all decisions are sampled, it is `fair`
        times the device's influence, as the weights of draws make up for rare ones.
    fair : ndarray, shape (S, N)
        Fair number of participations: in proportion to the data, but at most an even split.
    drawn : ndarray, shape (S, N)
        Mean number of participations in the lottery.
    rounds : ndarray, shape (S, N)
        Number of rounds in which the device was available.
    filled : ndarray, shape (S,)
        Number of devices and draws of the cohorts that are in time, over the lottery's participants
        in each round, at most 1.
    surplus : ndarray, shape (S,)
        Most devices beyond K in a round; the environments allow none.
    """

    energy: FloatArray
    participation: FloatArray
    fair: FloatArray
    drawn: FloatArray
    rounds: FloatArray
    filled: FloatArray
    surplus: FloatArray

    def lack(self) -> FloatArray:
        """The mean over devices of what they lack of their fair participation, (S,)."""
        share = over_fair(self.participation, self.fair)
        return np.maximum(1.0 - share, 0.0).mean(axis=-1)

    def excess(self) -> FloatArray:
        """The mean over devices of what they spend beyond their budgets, (S,)."""
        return np.maximum(self.energy - 1.0, 0.0).mean(axis=-1)


def joined(parts: Sequence[DeviceAccounts]) -> DeviceAccounts:
    """The accounts of a policy's runs in one table."""
    return DeviceAccounts._make(np.concatenate(values) for values in zip(*parts, strict=True))


def over_fair(number: FloatArray, fair: FloatArray) -> FloatArray:
    """Numbers over fair ones of the same shape; 1 for a device that was never available."""
    return np.divide(number, fair, out=np.ones(fair.shape), where=fair > 0)


class Record(NamedTuple):
    """The results of a run: a row for each round, and the accounts of each device.

    The record of a bound has only rounds.
    """

    rounds: pd.DataFrame
    accounts: DeviceAccounts | None = None


@dataclass
class _Sums:
    """Sums over the rounds so far, for each run and device, shape (S, N), if no other is given."""

    filled: FloatArray  # fractions of the slots, (S,)
    surplus: FloatArray  # the most devices beyond K, no sum, (S,)
    expected: FloatArray  # energy [J]
    spent: FloatArray  # energy [J]
    participations: FloatArray
    counted: FloatArray  # participations, fewer for small weights
    drawn: FloatArray
    fair: FloatArray
    rounds: FloatArray  # in which it was available
    influence: FloatArray
    by_data: FloatArray  # the fair influence
    chosen: int = 0  # rounds with a chosen cohort

    @classmethod
    def zero(cls, runs: int, devices: int) -> _Sums:
        """Sums before the first round."""
        return cls(*np.zeros((2, runs)), *np.zeros((9, runs, devices)))


class Recorder:
    """Makes the `Record` of a run, round by round, at 8 bytes a number."""

    def __init__(self, scenario: Scenario, seeds: Sequence[int]) -> None:
        self._scenario = scenario
        self._target = participation_target(scenario)
        self._shares = _shares(scenario, np.ones(scenario.num_devices, dtype=np.bool_))
        self._sums = _Sums.zero(len(seeds), scenario.num_devices)
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
        priced: Mapping[str, Any],
    ) -> None:
        """Record a round of all runs, which began at `start` [s] on this machine's clock.

        `priced` has further columns; see `policies.benchmark.bounds.price_round`.
        """
        seconds = time.perf_counter() - start
        scenario = self._scenario
        sums = self._sums
        self.num_rounds += 1
        weight = contributions(decision, info, scenario).weight
        done = in_time(info)
        cohort = info["cohort"]
        slots = np.take_along_axis(done, cohort, axis=-1) & (cohort >= 0)
        sums.participations += done
        sums.expected += info["energy_expected"]
        sums.spent += info["energy_spent"]
        sums.surplus = np.maximum(sums.surplus, surplus(info, scenario))
        self._count_shares(decision, info, weight, done, slots)
        values: dict[str, Any] = {name: info.get(name, math.nan) for name in _SCALARS}
        values["reward"] = reward
        average = sums.expected / scenario.energy_budget_j / self.num_rounds
        values |= self._energies(info, average) | self._weights(decision, weight, slots)
        # Sums over N: NumPy's mean and count_nonzero take twice as long.
        over = (average > 1 + ENERGY_TOLERANCE).sum(axis=-1)
        values["over_budget"] = over / scenario.num_devices
        values["mean_queue"] = observation["queue"].sum(axis=-1) / scenario.num_devices
        values["max_queue"] = observation["queue"].max(axis=-1)
        values |= priced
        if "client_updates" in info:
            values |= _training(info) | {"real_time": seconds}
        for name, value in values.items():
            if name not in self._columns:
                shape = scenario.num_rounds, len(self._seeds)
                self._columns[name] = np.full(shape, np.nan)
            self._columns[name][self.num_rounds - 1] = value

    def _energies(self, info: Info, average: FloatArray) -> dict[str, Any]:
        """Energies of the round and of all rounds, over the budgets."""
        budget = self._scenario.energy_budget_j
        devices = self._scenario.num_devices
        spent_average = self._sums.spent / budget / self.num_rounds
        return {
            "energy_ratio": (info["energy_expected"] / budget).sum(axis=-1) / devices,
            "spent_ratio": (info["energy_spent"] / budget).sum(axis=-1) / devices,
            "worst_energy_ratio": average.max(axis=-1),
            "worst_spent_ratio": spent_average.max(axis=-1),
        }

    def _weights(
        self, decision: Allocation, weight: FloatArray, slots: BoolArray
    ) -> dict[str, Any]:
        """Weights of the round, and what all rounds gave the least favoured device."""
        given = decision.weights
        return {
            "influence": self._influence().min(axis=-1),
            "aggregate_noise": (weight**2).sum(axis=-1),
            # Given weights count even if uploads fail; others follow from q or from the data.
            "weight_sum": 1.0
            if given is None
            else np.where(slots[..., : given.shape[-1]], given, 0.0).sum(axis=-1),
            "least_participation": self._participation().min(axis=-1),
            "never_seen": (self._sums.participations == 0).sum(axis=-1),
        }

    def _count_shares(
        self,
        decision: Allocation,
        info: Info,
        weight: FloatArray,
        done: BoolArray,
        slots: BoolArray,
    ) -> None:
        """Record the fair participation and weight of available devices, and their actual ones."""
        scenario = self._scenario
        sums = self._sums
        available = info.get("available")
        shares = self._shares if available is None else _shares(scenario, available)
        sums.drawn += shares.drawn
        sums.fair += shares.fair
        sums.rounds += shares.of_all > 0
        # Expected sampling weights sum to the available share of the data.
        sums.by_data += shares.by_data if decision.q is None else shares.of_all
        sums.influence += weight
        sums.counted += done
        if decision.weights is not None:
            sums.counted -= self._lost(info, weight, done)
        if decision.q is None:
            sums.chosen += 1
        sums.filled += np.minimum(slots.sum(axis=-1) / shares.drawn.sum(axis=-1), 1.0)

    def _lost(self, info: Info, weight: FloatArray, done: BoolArray) -> FloatArray:
        """The part of each participation that counts for nothing: below the device's data share."""
        scenario = self._scenario
        data = scenario.weights * done
        least = data / np.maximum(data.sum(axis=-1, keepdims=True), 1e-300)
        least = np.minimum(least, scenario.weights / self._target)
        sent = done & ~info["failed"] if "failed" in info else done
        given = weight * (1.0 - scenario.upload_failure)
        return np.maximum(1.0 - given / np.maximum(least, 1e-300), 0.0) * sent

    def _fair(self) -> FloatArray:
        return np.minimum(self._sums.fair, self.num_rounds * self._target)

    def _participation(self) -> FloatArray:
        return over_fair(self._sums.participations, self._fair())

    def _influence(self) -> FloatArray:
        fair = np.minimum(self._sums.by_data, self.num_rounds * self._scenario.weights)
        return over_fair(self._sums.influence, fair)

    def table(self) -> pd.DataFrame:
        """The rounds so far."""
        index = {
            "seed": np.repeat(self._seeds, self.num_rounds),
            "round": np.tile(np.arange(1, self.num_rounds + 1), len(self._seeds)),
        }
        columns = {
            name: values[: self.num_rounds].T.ravel() for name, values in self._columns.items()
        }
        return pd.DataFrame(index | columns)

    def accounts(self) -> DeviceAccounts:
        """The accounts of each device over the rounds so far."""
        fair = self._fair()
        sampled = not self._sums.chosen
        return DeviceAccounts(
            energy=self._sums.spent / self._scenario.energy_budget_j / self.num_rounds,
            participation=self._influence() * fair if sampled else self._sums.counted,
            fair=fair,
            drawn=self._sums.drawn,
            rounds=self._sums.rounds,
            filled=self._sums.filled / self.num_rounds,
            surplus=self._sums.surplus,
        )

    def record(self) -> Record:
        """The rounds so far, and the accounts."""
        return Record(self.table(), self.accounts())


def _training(info: Info) -> dict[str, Any]:
    """Losses and accuracies; NaN if nothing is evaluated, or of a device whose classes are not."""
    values: dict[str, Any] = {
        name: info.get(name, math.nan) for name in ("train_loss", "test_loss", "test_accuracy")
    }
    accuracy = np.sort(info.get("device_accuracy", [math.nan]))
    known = accuracy[~np.isnan(accuracy)] if not np.isnan(accuracy).all() else accuracy
    values["mean_device_accuracy"] = np.mean(known)
    values["worst_tenth_accuracy"] = np.mean(known[: math.ceil(len(known) / 10)])
    return values


class _Shares(NamedTuple):
    """What a round asks of the available devices.

    Attributes
    ----------
    of_all, by_data : ndarray, shape (..., N)
        Their shares of all data, and of the data of those that are available.
    drawn, fair : ndarray, shape (..., N)
        Their mean participations in proportion to the data, and the same or an even split, if that
        is fewer.
    """

    of_all: FloatArray
    by_data: FloatArray
    drawn: FloatArray
    fair: FloatArray


def _shares(scenario: Scenario, available: BoolArray) -> _Shares:
    size = scenario.cohort_size
    of_all = np.where(available, scenario.weights, 0.0)
    by_data = of_all / of_all.sum(axis=-1, keepdims=True)
    drawn = np.minimum(size * by_data, 1.0)
    number = np.count_nonzero(available, axis=-1)
    fair = np.minimum(drawn, size / np.maximum(number, 1)[..., None])
    return _Shares(of_all, by_data, drawn, fair)

"""One episode of a policy, as a table of its rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium.vector import VectorEnv

from fl_edge_env import Allocation, Scenario
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.bound import Prices, priced_outcome
from policies.benchmark.checkpoint import Checkpoints, Resumable, State, join, part
from policies.benchmark.feasibility import energy_tolerance
from policies.benchmark.live import Recorder, Row, recorded
from policies.progress import track

# How far over its budget a device counts as within it, relative: rounding.
ENERGY_TOLERANCE = 1e-9

_SCALARS = ("round_time", "elapsed_time", "latency", "sampling_error", "penalty")
_TRAINING = ("train_loss", "test_loss", "test_accuracy")


def run_episode(
    policy: Policy,
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    scenario: Scenario,
    seeds: Sequence[int],
    checkpoints: Checkpoints | None = None,
    prices: Prices | None = None,
    recorders: Sequence[Recorder] = (),
) -> pd.DataFrame:
    """Run a policy for one episode, and give a row for each round and seed.

    The environment is a batch of as many systems as there are seeds, or a single one. Nothing is
    saved where it is not `Resumable`, as is one in another wrapper, or the policy not `resumable`.
    Recorders are told of each round of a single environment when it is played.

    Returns
    -------
    pandas.DataFrame
        With `policy`, `seed`, `round`, the round's scalars, `reward`, `energy_ratio` (mean over
        devices of expected energy over budget in this round), `spent_ratio` (the same of the energy
        realized), `mean_queue` and `max_queue` [J]. Of the rounds so far: `worst_energy_ratio` and
        `worst_spent_ratio` (time average of the device with the largest), `over_budget` (share of
        devices whose expected energy is above the budget), `feasible` (1 if no device and not the
        mean of all has spent more than the budget by more than
        `policies.benchmark.feasibility.energy_tolerance`, else 0), `least_participation`
        (participations over those that the data weight asks for, of the device with the fewest) and
        `never_seen` (devices that have not taken part). With prices `priced_objective`, the penalty
        and the priced energy beyond the budget [s], and `priced_outcome`, the cost of the round to
        a user [s]. Where models are trained `train_loss`, `test_loss`, `test_accuracy`,
        `mean_device_accuracy` and `worst_tenth_accuracy` (the mean of the tenth of the devices with
        the least), and `real_time`, the time the round took on this machine [s]. Where all devices
        report before the first round, `elapsed_time` counts it, and so do the energies and the
        priced columns of the first round.

    Raises
    ------
    ValueError
        If the policy decides something else than an `Allocation`, or one that is not valid.
    """
    seed: Any = list(seeds) if isinstance(env, VectorEnv) else seeds[0]
    records = _Records(scenario, len(seeds), prices)
    resumable = env if checkpoints and isinstance(env, Resumable) and policy.resumable else None
    state = checkpoints.load() if checkpoints and resumable else None
    policy.reset(seed)
    if resumable and state:
        observation = resumable.restore(seed, part("env", state))
        policy.restore(part("policy", state))
        records.restore(part("records", state))
    else:
        observation, info = env.reset(seed=seed)
        policy.feedback(info)
    del state  # it may be large
    left = range(records.num_rounds + 1, scenario.num_rounds + 1)
    with recorded(recorders) as tell:
        for number in range(1, records.num_rounds + 1):
            tell(records.row(number, policy.name, seeds[0]))
        for number in track(left, policy.name):
            start = time.perf_counter()
            decision: object = policy.decide(observation)
            if not isinstance(decision, Allocation):  # a tuple would be taken as a point of the box
                kind = type(decision).__name__
                raise ValueError(f"decide of {policy.name} must return an Allocation, got a {kind}")
            observation, reward, _, _, info = env.step(decision)
            policy.feedback(info)
            if scenario.csi == "participants":  # the judge knows more than the server
                info = info | env.unwrapped.last_round.account()  # type: ignore[union-attr]
            records.add(observation, reward, info, time.perf_counter() - start)
            if recorders:
                tell(records.row(number, policy.name, seeds[0]))
            if checkpoints and resumable and number % checkpoints.every == 0:
                checkpoints.save(
                    number,
                    join(
                        {
                            "env": resumable.state(),
                            "policy": policy.state(),
                            "records": records.state(),
                        }
                    ),
                )
    return records.table(policy.name, seeds)


class _Records:
    """The columns of the table, filled in a round at a time: 8 bytes a number, and nothing else."""

    def __init__(self, scenario: Scenario, num_seeds: int, prices: Prices | None) -> None:
        self._scenario = scenario
        self._prices = prices
        self._target = participation_target(scenario)
        shape = (num_seeds, scenario.num_devices)
        # Sums over the rounds so far, by device.
        self._sums = {name: np.zeros(shape) for name in ("expected", "spent", "participations")}
        self._num_seeds = num_seeds
        self._columns: dict[str, FloatArray] = {}  # (num_rounds, seeds)
        self.num_rounds = 0

    def add(
        self,
        observation: Mapping[str, Any],
        reward: object,
        info: Mapping[str, Any],
        seconds: float,
    ) -> None:
        budget = self._scenario.energy_budget_j
        self.num_rounds += 1
        expected, spent = info["energy_expected"], info["energy_spent"]
        self._sums["participations"] += spent > 0
        first_time, first_energy = 0.0, np.zeros(())
        if self.num_rounds == 1:  # which accounts for what was reported before it
            first_time, first_energy = self._scenario.first_report
            expected, spent = expected + first_energy, spent + first_energy
        self._sums["expected"] += expected
        self._sums["spent"] += spent
        average = self._sums["expected"] / budget / self.num_rounds
        spent_average = self._sums["spent"] / budget / self.num_rounds
        participations = self._sums["participations"]
        tolerance = energy_tolerance(self._scenario, self.num_rounds)
        feasible = np.all(spent_average <= 1 + tolerance.device, axis=-1)
        feasible &= np.mean(spent_average, axis=-1) <= 1 + tolerance.mean
        values = {name: info[name] for name in _SCALARS} | {
            "reward": reward,
            "energy_ratio": np.mean(expected / budget, axis=-1),
            "spent_ratio": np.mean(spent / budget, axis=-1),
            "worst_energy_ratio": np.max(average, axis=-1),
            "worst_spent_ratio": np.max(spent_average, axis=-1),
            "feasible": feasible,
            "least_participation": np.min(participations / self._target, axis=-1) / self.num_rounds,
            "never_seen": np.count_nonzero(participations == 0, axis=-1),
            "over_budget": np.mean(average > 1 + ENERGY_TOLERANCE, axis=-1),
            "mean_queue": np.mean(observation["queue"], axis=-1),
            "max_queue": np.max(observation["queue"], axis=-1),
        }
        if self._prices is not None:
            excess = np.sum(self._prices.energy * (expected - budget), axis=-1)
            values["priced_objective"] = first_time + info["penalty"] + excess
            prices = self._prices.outcome
            values["priced_outcome"] = (
                first_time
                + np.sum(prices.energy * first_energy)
                + priced_outcome(info["round_time"], info["energy_spent"], prices, self._scenario)
            )
        if "train_loss" in info:
            values |= {name: info[name] for name in _TRAINING} | {"real_time": seconds}
            if "device_accuracy" in info:
                accuracy = np.sort(info["device_accuracy"])
                # NaN where none of a device's classes is tested, or nothing was evaluated.
                known = accuracy[~np.isnan(accuracy)] if not np.isnan(accuracy).all() else accuracy
                values["mean_device_accuracy"] = np.mean(known)
                values["worst_tenth_accuracy"] = np.mean(known[: math.ceil(len(known) / 10)])
        for name, value in values.items():
            if name not in self._columns:
                self._columns[name] = self._empty()
            self._columns[name][self.num_rounds - 1] = value

    def state(self) -> State:
        columns = {name: values[: self.num_rounds] for name, values in self._columns.items()}
        return join({"columns": columns, "sums": self._sums})

    def restore(self, state: State) -> None:
        self._sums = part("sums", state)
        saved = part("columns", state)
        self.num_rounds = len(saved["reward"])
        self._columns = {name: self._empty() for name in saved}
        for name, values in saved.items():
            self._columns[name][: self.num_rounds] = values

    def _empty(self) -> FloatArray:
        return np.empty((self._scenario.num_rounds, self._num_seeds))

    def row(self, number: int, policy: str, seed: int) -> Row:
        """A round of the first seed, without the clock of this machine, which repeats nothing."""
        row: dict[str, str | int | float] = {"policy": policy, "seed": seed, "round": number}
        for name, column in self._columns.items():
            if name != "real_time":
                row[name] = float(column[number - 1, 0])
        return row

    def table(self, policy: str, seeds: Sequence[int]) -> pd.DataFrame:
        index = {
            "policy": policy,
            "seed": np.repeat(np.asarray(seeds, dtype=np.int64), self.num_rounds),
            "round": np.tile(np.arange(1, self.num_rounds + 1), len(seeds)),
        }
        columns = {name: values.T.ravel() for name, values in self._columns.items()}
        return pd.DataFrame(index | columns)

"""An experiment: policies in one or several settings under some seeds, run in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from fl_edge_env import Scenario
from policies.base import Policy
from policies.benchmark.bounds import find_prices
from policies.benchmark.episode import Episodes, gathered
from policies.benchmark.evaluate import summarise
from policies.benchmark.jobs import BOUND_NAME, BoundJob, EnvFactory, Job, Work, make_jobs
from policies.benchmark.options import RunOptions
from policies.benchmark.runner import run_jobs
from policies.benchmark.status import DeviceAccounts, cannot_tell, judge
from policies.benchmark.tables import by_policy


class Entrant(NamedTuple):
    """A policy under the name that tables give it, and the system in which it runs."""

    label: str
    policy: Policy
    scenario: Scenario
    training: EnvFactory | None = None


@dataclass(frozen=True)
class Setting:
    """Entrants that meet the same channels under the same seeds."""

    name: str
    entrants: tuple[Entrant, ...]
    seeds: Sequence[int]
    # Of the first entrant's system: both bounds, and their prices for all that have the same.
    bounded: bool = True
    target: float | None = None  # test accuracy
    left_out: Mapping[str, str] = field(default_factory=dict)  # labels, and why
    titled: bool = True  # files of runs are named after the setting, too

    def __post_init__(self) -> None:
        labels = [entrant.label for entrant in self.entrants] + list(self.left_out)
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(
                f"{twice[0]!r} comes twice among the policies, whose results are told apart by "
                "their names: give one another name, or a label of its own"
            )
        self._jobs()  # refuses what is wrong

    @property
    def scenario(self) -> Scenario:
        """The system of the first entrant."""
        return self.entrants[0].scenario

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by their labels."""
        return {entrant.label: entrant.policy for entrant in self.entrants}

    def work(self) -> tuple[list[tuple[str, Job]], list[BoundJob]]:
        """The jobs with their labels, and those of the bounds, whose prices are found here."""
        if not self.bounded:
            return self._jobs(), []
        prices = find_prices(self.scenario)
        return self._jobs(prices), [BoundJob(self.scenario, seed, prices) for seed in self.seeds]

    def _bounds_hold(self, scenario: Scenario) -> bool:
        """True for the system of the first entrant, whatever its V, which no bound counts."""
        names = [one.name for one in fields(scenario) if one.name not in ("V", "nu")]
        each = ((getattr(one, name) for one in (scenario, self.scenario)) for name in names)
        return all(np.array_equal(*pair) for pair in each)

    def _jobs(self, prices: Any = None) -> list[tuple[str, Job]]:
        return [
            (label, job)
            for label, policy, scenario, training in self.entrants
            for job in make_jobs(
                [policy],
                scenario,
                self.seeds,
                training,
                prices if self._bounds_hold(scenario) else None,
                f"{self.name}, {label}" if self.titled else label,
            )
        ]


class Results(NamedTuple):
    """The rounds of a setting with the labels as `policy`, and its bounds, empty if it has none.

    The rounds also have the `status` of each entrant; `devices` are the accounts of all its runs.
    """

    setting: Setting
    rounds: pd.DataFrame
    bounds: pd.DataFrame
    devices: Mapping[str, DeviceAccounts]

    def runs(self) -> dict[str, pd.DataFrame]:
        """The rounds of each entrant."""
        return dict(by_policy(self.rounds))

    def summary(self) -> pd.DataFrame:
        """A row for each run; see `policies.benchmark.evaluate.summarise`."""
        bounds = self.bounds if self.setting.bounded else None
        return summarise(self.rounds, self.setting.target, bounds, self.devices)

    def caution(self) -> str:
        """What these runs cannot tell from luck; see `cannot_tell`."""
        return cannot_tell(list(self.devices.values()))


def run_settings(
    settings: Sequence[Setting],
    folder: Path,
    options: RunOptions,
    console: Console,
    *,
    models: Path | None = None,
) -> list[Results]:
    """Run what is missing in a folder, with a bar that advances with each finished run."""
    finding = "finding the prices of the bounds"
    with console.status(finding, spinner="line") if console.is_terminal else nullcontext():
        work = [setting.work() for setting in settings]
    # The short jobs last, so that no process waits for a long one at the end.
    jobs: list[Work] = [job for runs, _ in work for _, job in runs]
    jobs += [job for _, bounds in work for job in bounds]
    done: Iterator[Episodes] = iter(
        run_jobs(
            jobs,
            folder=folder / "jobs",
            workers=options.workers,
            backend=options.backend,
            checkpoint_every=options.checkpoint_every,
            models=models,
            console=console,
        )
    )
    played = [gathered((label, next(done)) for label, _ in runs) for runs, _ in work]
    bounds = [gathered((BOUND_NAME, next(done)) for _ in each)[0] for _, each in work]
    return [
        Results(setting, _with_status(rounds, devices), least, devices)
        for setting, (rounds, devices), least in zip(settings, played, bounds, strict=True)
    ]


def _with_status(rounds: pd.DataFrame, devices: Mapping[str, DeviceAccounts]) -> pd.DataFrame:
    told = {label: judge(accounts).name for label, accounts in devices.items()}
    return rounds.assign(status=rounds["policy"].map(told))

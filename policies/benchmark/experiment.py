"""Experiments: policies in one or several settings under common seeds, run in one folder."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
import pandas as pd
from rich.console import Console

from fl_edge_env import Scenario
from fl_edge_env.checks import is_integer
from fl_edge_env.files import reason
from policies.base import Policy, check_name, visible
from policies.benchmark.bounds import find_prices
from policies.benchmark.episode import Episodes, gathered
from policies.benchmark.fingerprint import Fingerprint
from policies.benchmark.jobs import BOUND_NAME, BoundJob, EnvFactory, Job, Work
from policies.benchmark.options import RunOptions
from policies.benchmark.runner import run_jobs
from policies.benchmark.status import DeviceAccounts, cannot_tell, judge
from policies.benchmark.summary import by_policy, summarise

# Most numbers in an array of a batch, which has one for each seed and device.
_BATCH_NUMBERS = 1 << 20
_MOST_SEEDS = 1_000_000


class Entrant(NamedTuple):
    """A policy, its label in tables, and the system in which it runs."""

    label: str
    policy: Policy
    scenario: Scenario
    training: EnvFactory | None = None


@dataclass(frozen=True)
class Setting:
    """Entrants that run under the same seeds, and so with the same channels.

    Raises
    ------
    ValueError
        If names or seeds repeat or are missing, or a policy cannot run in its system.
    """

    name: str
    entrants: tuple[Entrant, ...]
    seeds: Sequence[int]
    # Both bounds of the first entrant's system; entrants in the same system use their prices.
    bounded: bool = True
    target: float | None = None  # test accuracy
    left_out: Mapping[str, str] = field(default_factory=dict)  # labels and reasons

    def __post_init__(self) -> None:
        if not self.entrants:
            raise ValueError("policies must be one or more, got none")
        labels = [entrant.label for entrant in self.entrants] + list(self.left_out)
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise ValueError(
                f"{twice[0]!r} occurs twice among the policies, but names must be distinct: give "
                "one a different attribute `name`, or a different label"
            )
        for label in labels:
            check_name(label)
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        for _, policy, scenario, training in self.entrants:
            _check_system(policy, scenario, trained=training is not None)
            _check_copy(policy)
            if training is not None:
                _check_environment(training(policy), scenario)

    @property
    def scenario(self) -> Scenario:
        """The system of the first entrant."""
        return self.entrants[0].scenario

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by their labels."""
        return {entrant.label: entrant.policy for entrant in self.entrants}

    def work(self, *, named: bool = False) -> tuple[list[tuple[str, Job]], list[BoundJob]]:
        """The jobs with their labels, and the bounds' jobs, whose prices are computed here.

        With `named`, messages about a job also name the setting.
        """
        prices = find_prices(self.scenario) if self.bounded else None
        jobs: list[tuple[str, Job]] = []
        for label, policy, scenario, training in self.entrants:
            # The bounds do not depend on V.
            known = None if _differences(scenario, self.scenario, ("V", "nu")) else prices
            title = f"{self.name}, {label}" if named else label
            # One seed at a time with training, otherwise batches that fit into memory.
            size = 1 if training is not None else max(1, _BATCH_NUMBERS // scenario.num_devices)
            for start in range(0, len(self.seeds), size):
                seeds = tuple(self.seeds[start : start + size])
                jobs.append((label, Job(policy, scenario, seeds, training, known, title)))
        if prices is None:
            return jobs, []
        return jobs, [BoundJob(self.scenario, seed, prices) for seed in self.seeds]


def _seeds(seeds: object) -> list[int]:
    """`seeds` as a list; `ValueError` unless they are one or more distinct integers >= 0."""
    if is_integer(seeds):
        raise ValueError(f"seeds must be a sequence, got {seeds!r}: use range({seeds!r}) or [...]")
    try:
        number = len(seeds) if isinstance(seeds, Sized) else 0
    except OverflowError:  # a range of more than 2^63
        number = sys.maxsize
    if number > _MOST_SEEDS:
        raise ValueError(f"seeds must be at most {_MOST_SEEDS:,}, got {number:,}")
    given: list[Any] = list(seeds) if isinstance(seeds, Iterable) else [seeds]
    whole = all(is_integer(seed) and seed >= 0 for seed in given)
    if not whole or not 0 < len(given) == len(set(given)):
        raise ValueError(f"seeds must be one or more distinct integers >= 0, got {given}")
    return [int(seed) for seed in given]


# Fields in which a policy's scenario may differ from the system it runs in: the weights of its
# objective, and the number of rounds.
_OWN_FIELDS = ("mu", "nu", "lambda_", "V", "num_rounds")


def _check_system(policy: Policy, scenario: Scenario, *, trained: bool) -> None:
    """Raise `ValueError` for a policy that cannot run in a system or was made for another."""
    if not trained and policy.needs_training:
        raise ValueError(
            f"{policy.name} needs reports of training, but no models are trained here: "
            "leave it out, or run with training"
        )
    own = visible(getattr(policy, "scenario", scenario))
    other = _differences(own, visible(scenario), _OWN_FIELDS)
    if other:
        raise ValueError(
            f"the policy {policy.name} was made for a scenario with different {', '.join(other)}: "
            "make it with the scenario in which it runs"
        )


def _check_environment(env: gym.Env[Any, Any], scenario: Scenario) -> None:
    """Raise `ValueError` if a training environment simulates another system."""
    with closing(env):
        if not env.has_wrapper_attr("scenario"):
            raise ValueError(f"make_env must make environments of FLEdge, got {env}")
        other = _differences(env.get_wrapper_attr("scenario"), scenario, ())
        if other:
            raise ValueError(
                f"the environment of make_env has a scenario with different {', '.join(other)}: "
                "give evaluate and the policies the scenario of the environment, which is "
                "factory.scenario for a TrainingEnvFactory"
            )


def _check_copy(policy: Policy) -> None:
    """Raise `ValueError` if a policy cannot be copied, as runs play copies, or copies differ."""
    try:
        copied = copy.deepcopy(policy)
        cloudpickle.dumps(policy)  # as for other processes
    except Exception as error:  # values of the user can raise anything
        raise ValueError(
            f"the policy {policy.name} cannot be copied: {reason(error)}. Make locks, open files "
            "and generators in reset, not before"
        ) from None
    alike = True
    with suppress(Exception):  # the runner says what cannot be hashed
        alike = Fingerprint().of(copied) == Fingerprint().of(policy)
    if not alike:
        raise ValueError(
            f"a copy of the policy {policy.name} differs from it, but runs play copies: check its "
            "__getstate__ and __deepcopy__"
        )


def _differences(one: Scenario, other: Scenario, ignored: Sequence[str]) -> list[str]:
    """The fields in which two systems differ."""
    theirs = one.to_dict()
    ours = other.to_dict()
    names = [name for name in ours if name not in ignored]
    return [name for name in names if not np.array_equal(ours[name], theirs[name])]


class Results(NamedTuple):
    """The rounds of a setting with labels in `policy`, and its bounds, empty if it has none.

    The rounds also have each entrant's `status`; `devices` holds the accounts of its whole runs
    and, with a target, its accounts until the target.
    """

    setting: Setting
    rounds: pd.DataFrame
    bounds: pd.DataFrame
    devices: Mapping[str, Sequence[DeviceAccounts]]

    def runs(self) -> dict[str, pd.DataFrame]:
        """The rounds of each entrant."""
        return dict(by_policy(self.rounds))

    def summary(self) -> pd.DataFrame:
        """A row for each run; see `policies.benchmark.summary.summarise`."""
        bounds = self.bounds if self.setting.bounded else None
        return summarise(self.rounds, self.setting.target, bounds, self.devices)

    def caution(self) -> str:
        """Notes on policies with different uploads, and on deviations that may be chance."""
        first, *rest = self.setting.entrants
        uploads = first.scenario.compression
        other = [one.label for one in rest if one.scenario.compression != uploads]
        note = f"Not ranked with {first.label}, as uploads differ: {', '.join(other)}."
        notes = [note] if other else []
        chance = cannot_tell([whole for whole, *_ in self.devices.values()])
        return "\n".join(filter(None, [*notes, chance]))


def run_settings(
    settings: Sequence[Setting],
    folder: Path | None,
    options: RunOptions,
    console: Console,
    *,
    models: Path | None = None,
) -> list[Results]:
    """Run settings, or only the runs that a folder lacks, with a progress bar."""
    finding = "finding the prices of the bounds"
    with console.status(finding, spinner="line") if console.is_terminal else nullcontext():
        work = [setting.work(named=len(settings) > 1) for setting in settings]
    # Short jobs last, so that no process waits for a long one at the end.
    jobs: list[Work] = [job for runs, _ in work for _, job in runs]
    jobs += [job for _, bounds in work for job in bounds]
    done: Iterator[Episodes] = iter(
        run_jobs(
            jobs,
            folder=None if folder is None else folder / "jobs",
            workers=options.processes,
            backend=options.backend,
            checkpoint_every=options.checkpoint_every,
            models=models,
            console=console,
        )
    )
    played = [
        gathered(((label, next(done)) for label, _ in runs), setting.target)
        for setting, (runs, _) in zip(settings, work, strict=True)
    ]
    bounds = [gathered((BOUND_NAME, next(done)) for _ in each)[0] for _, each in work]
    return [
        Results(setting, _with_status(rounds, devices), least, devices)
        for setting, (rounds, devices), least in zip(settings, played, bounds, strict=True)
    ]


def _with_status(
    rounds: pd.DataFrame, devices: Mapping[str, Sequence[DeviceAccounts]]
) -> pd.DataFrame:
    names = {label: judge(*accounts).name for label, accounts in devices.items()}
    return rounds.assign(status=rounds["policy"].map(names))

"""Settings out of options, with training of real models where it is asked for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean
from fl_edge_env.compression import names_own
from fl_edge_env.scenario.presets import PRESETS
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.evaluate import check_target
from policies.benchmark.experiment import Entrant, Setting
from policies.divfl import DivFL
from policies.registry import POLICIES, SELECTORS, make_policy
from train_fl.commands.options import CompareOptions
from train_fl.options import TrainingOptions


class LearningTask(Protocol):
    """A learning task, split over devices."""

    @property
    def num_samples(self) -> FloatArray:
        """Training samples of each device, shape (N,)."""
        ...

    @property
    def label_histogram(self) -> FloatArray:
        """Share of each class in each device's data, shape (N, C)."""
        ...

    @property
    def options(self) -> TrainingOptions:
        """How it is trained, the data set's own values in place of None."""
        ...


class Training(Protocol):
    """Makes the training environment of a policy, as `train_fl.TrainingEnvFactory` does."""

    @property
    def scenario(self) -> Scenario:
        """The system, fitted to the task."""
        ...

    def in_system(self, scenario: Scenario) -> Training:
        """The same training in another system, which must fit the task too."""
        ...

    def make_task(self) -> LearningTask:
        """The learning task."""
        ...

    def __call__(self, policy: Policy) -> gym.Env[Any, Any]:
        """The environment in which a policy trains models."""
        ...


class MakeTraining(Protocol):
    """Prepares training on a system, as `train_fl.command_line.make_training` does."""

    def __call__(self, scenario: Scenario, task: str, options: TrainingOptions) -> Training:
        """Fit a system to the data set that `task` names."""
        ...


@dataclass(frozen=True)
class Scheduler:
    """A policy by its name, as `policies.make_policy` takes it, and how it is entered.

    Behind an ``@`` the name may say how updates are compressed: ``"uni-d@qsgd:4"``.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # keywords of the policy
    label: str | None = None  # its name in tables; the policy's own by default


def make_entrant(
    scheduler: Scheduler,
    scenario: Scenario,
    training: Training | None,
) -> Entrant:
    """A policy as the commands run it; DivFL chooses its cohorts by the labels of the task."""
    options, (name, _, compression) = dict(scheduler.options), scheduler.name.partition("@")
    if compression:
        scenario = scenario.replace(compression=compression)
        training = None if training is None else training.in_system(scenario)
    if name == "divfl" and training is not None:
        options = {"label_histogram": training.make_task().label_histogram} | options
    try:
        policy = make_policy(name, scenario, **options)
    except TypeError as error:
        if (wrong := re.search(r"unexpected keyword argument '(\w+)'", str(error))) is None:
            raise
        kind = name.partition(":")[0]
        makers = [table[kind] for table in (POLICIES, SELECTORS) if kind in table]
        known = [option for make in makers for option in inspect.signature(make).parameters]
        nearest = did_you_mean(wrong[1], known)
        raise ValueError(f"{name} has no option {wrong[1]!r}{nearest}") from None
    label = scheduler.label or f"{policy.name}{compression and f', {compression}'}"
    return Entrant(label, policy, scenario, training)


def make_setting(
    name: str,
    options: CompareOptions,
    schedulers: Sequence[Scheduler],
    make_training: MakeTraining,
    *,
    in_file: bool = False,
) -> Setting:
    """The setting that options describe.

    One of a leaderboard's file leaves out who needs training where there is none.

    Raises
    ------
    ValueError
        If an option is wrong.
    ModuleNotFoundError
        If a package that training needs is not installed.
    """
    seeds = options.seed_range()
    if options.compression is not None and names_own(options.compression) and not options.train:
        raise ValueError(
            f"compression {options.compression!r} needs training, which tells how much it writes: "
            "without, give the size of an upload as bits:NUMBER"
        )
    scenario, training = options.make_scenario(), None
    if options.train:
        if options.dataset is None and Path(options.scenario).suffix == ".toml":
            raise ValueError(
                f"the scenario file {options.scenario!r} names no data set: give one with "
                "--dataset, or --no-train"
            )
        training = make_training(scenario, dataset_of(options), options.training_options())
        if not options.fit_scenario:
            training = _as_given(options, scenario, training)
        scenario = training.scenario
    check_target(options.target_accuracy)
    entrants, left_out = [], {}
    for one in schedulers:
        entrant = make_entrant(one, scenario, training)
        if in_file and training is None and entrant.policy.needs_training:
            left_out[entrant.label] = "needs training"
        else:
            entrants.append(entrant)
    if not entrants:
        if left_out:
            raise ValueError("all its schedulers need training")
        raise ValueError("policies must be one or more, got none")
    target = options.target_accuracy if options.train else None
    setting = Setting(
        name, tuple(entrants), seeds, target=target, left_out=left_out, titled=in_file
    )
    if training is not None:
        training(entrants[0].policy)  # refuses a wrong option here, not in a worker
    return setting


def _as_given(options: CompareOptions, scenario: Scenario, training: Training) -> Training:
    """Training in a system in which all that the user gave stays; `ValueError` if it does not fit.

    Training changes no channel, and a compression only where one's own was asked for by name.
    """
    fitted, told, even = training.scenario, [], {}
    for name in sorted(options.fields_given() - {"preset", "channel", "compression"}):
        given, fits = (np.asarray(getattr(each, name)) for each in (scenario, fitted))
        if np.array_equal(given, fits):
            continue
        # An even split leaves a fraction of a sample.
        if name == "num_samples" and np.all(np.abs(given - fits) < 1):
            even[name] = given
        else:
            told.append(f"{name} is {_numbers(given)} and must be {_numbers(fits)}")
    if told:
        raise ValueError(
            f"the scenario {options.scenario!r} does not fit the data set {dataset_of(options)!r} "
            f"and the network: {'; '.join(told)}. Change that, leave it out, or give "
            "--fit-scenario (fit_scenario = true in a leaderboard's file), which replaces it"
        )
    return training.in_system(fitted.replace(**even)) if even else training


def _numbers(values: NDArray[Any]) -> str:
    low, high = values.min(), values.max()
    return f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}"


def dataset_of(options: CompareOptions) -> str:
    """The data set that a setting trains on: its own, or that of its scenario."""
    preset = PRESETS.get(options.scenario)
    own = Path(options.scenario).stem if preset is None else preset.dataset or options.scenario
    return options.dataset or own


def network_note(options: CompareOptions) -> str:
    """Which network trains and which is uploaded, empty where both are the data set's own."""
    told = []
    if options.model is not None:
        told.append(f"network {options.model.rpartition(':')[2]}")
    if options.upload is not None:
        told.append(f"uploads of the size of {options.upload}")
    return ", ".join(told)


def notes(setting: Setting) -> list[str]:
    """How DivFL chose its cohorts."""
    if not any(isinstance(policy, DivFL) for policy in setting.policies.values()):
        return []
    trained = setting.entrants[0].training is not None
    how = "gradients" if trained else "label histograms: the same in every round"
    return [f"DivFL chose its cohorts by {how}."]

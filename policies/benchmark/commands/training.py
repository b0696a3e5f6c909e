"""What the commands need of training real models; `train_fl.command_line` supplies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym

from fl_edge_env import Scenario
from fl_edge_env.scenario.presets import PRESETS
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.benchmark.commands.comparison_options import Options
from policies.benchmark.training_options import TrainingOptions
from policies.divfl import DivFL
from policies.registry import make_policy
from policies.reports import describe_reports, with_reports


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


class Training(Protocol):
    """Makes the training environment of a policy, as `train_fl.TrainingEnvFactory` does."""

    @property
    def scenario(self) -> Scenario:
        """The system, fitted to the task."""
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
        """Fit a system to a task.

        Parameters
        ----------
        scenario : Scenario
            The system.
        task : str
            Name of the data set.
        options : TrainingOptions
            How models are trained.

        Raises
        ------
        ModuleNotFoundError
            If a package that training needs is not installed.
        ValueError
            If an option is wrong.
        """
        ...


def policy_options(name: str, training: Training | None) -> dict[str, Any]:
    """What a policy needs beside the scenario.

    Parameters
    ----------
    name : str
        As in `policies.make_policy`.
    training : Training, optional
        Where models are trained.

    Returns
    -------
    dict
        Keywords of the policy: DivFL chooses its cohorts by the labels of the task.
    """
    if name == "divfl" and training is not None:
        return {"label_histogram": training.make_task().label_histogram}
    return {}


def make_entrant(
    name: str,
    scenario: Scenario,
    training: Training | None,
    *,
    pay_reports: bool = False,
    **options: Any,
) -> Policy:
    """A policy as the commands run it.

    Parameters
    ----------
    name : str
        As in `policies.make_policy`.
    scenario : Scenario
        The system, with training as it is fitted to the data.
    training : Training, optional
        Where models are trained.
    pay_reports : bool
        Whether it pays for what it asks the devices to report; see `policies.with_reports`. Where
        no models are trained, nothing is reported.
    **options
        Keywords of the policy.
    """
    options = policy_options(name, training) | options
    policy = make_policy(name, scenario, **options)
    if not pay_reports or training is None:
        return policy
    paying = with_reports(scenario, policy)
    return policy if paying is scenario else make_policy(name, paying, **options)


def training_of(options: Options, scenario: Scenario, make_training: MakeTraining) -> Training:
    """What makes the training environments of a comparison.

    Parameters
    ----------
    options : comparison_options.Options
        Those of the comparison.
    scenario : Scenario
        Its system.
    make_training : callable
        Prepares training.

    Raises
    ------
    ValueError
        If an option is wrong.
    ModuleNotFoundError
        If a package that training needs is not installed.
    """
    if options.training.dataset is None and Path(options.scenario).suffix == ".toml":
        raise ValueError(
            f"the scenario file {options.scenario!r} names no data set: give one with --dataset, "
            "or --no-train"
        )
    return make_training(scenario, dataset_of(options), options.training)


def dataset_of(options: Options) -> str:
    """The data set that a comparison trains on: its own, or that of its scenario.

    Parameters
    ----------
    options : comparison_options.Options
        Those of the comparison.
    """
    preset = PRESETS.get(options.scenario)
    own = Path(options.scenario).stem if preset is None else preset.dataset or options.scenario
    return options.training.dataset or own


def network_note(options: Options) -> str:
    """Which network trains and which is uploaded, empty where both are the data set's own.

    Parameters
    ----------
    options : comparison_options.Options
        Those of the comparison.
    """
    told = []
    if options.training.model is not None:
        told.append(f"network {options.training.model.rpartition(':')[2]}")
    if options.training.upload is not None:
        told.append(f"uploads of the size of {options.training.upload}")
    return ", ".join(told)


def divfl_note(policies: Sequence[Policy], *, trained: bool) -> str:
    """By what DivFL chose its cohorts, empty where it is not among the policies.

    Parameters
    ----------
    policies : sequence of Policy
        Those that were run.
    trained : bool
        Whether models were trained.
    """
    if not any(isinstance(policy, DivFL) for policy in policies):
        return ""
    how = "gradients" if trained else "label histograms: the same in every round"
    return f"DivFL chose its cohorts by {how}."


def reports_note(policies: Mapping[str, Policy]) -> str:
    """What policies pay for reports, empty where none pays.

    Parameters
    ----------
    policies : mapping
        Those that were run, by their names in the tables.
    """
    costs: dict[str, list[str]] = {}
    for name, policy in policies.items():
        scenario = getattr(policy, "scenario", None)  # one of the user's own may have none
        if scenario is not None and (told := describe_reports(scenario)):
            costs.setdefault(told, []).append(name)
    paid = [f"{' and '.join(names)} ({told})" for told, names in costs.items()]
    return f"Reports cost time and energy: {'; '.join(paid)}." if paid else ""

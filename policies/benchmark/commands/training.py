"""What the commands need of training real models; `train_fl.command_line` supplies it."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym

from fl_edge_env import Scenario
from fl_edge_env.typing import FloatArray
from policies.base import Policy


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

    def __call__(self, scenario: Scenario, task: str, **options: Any) -> Training:
        """Fit a system to a task.

        Parameters
        ----------
        scenario : Scenario
            The system.
        task : str
            Name of the data set.
        **options
            Keywords of `train_fl.TrainingEnvFactory`.

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

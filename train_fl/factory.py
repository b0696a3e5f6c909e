"""A factory of training environments, for runs in other processes."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium as gym

from fl_edge_env import Scenario
from policies.base import Policy, check_scenario
from policies.benchmark.stored import code_of_place
from train_fl.data.catalogue import DATASETS
from train_fl.task import Task, make_task
from train_fl.training_options import TrainingOptions
from train_fl.wrapper import TrainingWrapper


class TrainingEnvFactory:
    """Makes the training environment of a policy.

    If the task is a name, the factory holds only names and numbers, and is cheap to send to other
    processes. A `Task` is sent with its data.

    Parameters
    ----------
    scenario : Scenario
        The system, which must fit the task; see `fitted`.
    task : str or Task
        Name of the data set, as `train_fl.make_task` takes it, or a task.
    **options
        See `train_fl.training_options.TrainingOptions`. A `Task` has its own options; only
        `train_fl.training_options.RUN_OPTIONS` can be changed here.

    Raises
    ------
    ValueError
        If an option is out of range, or belongs to the given `Task`.
    TypeError
        If there is no such option.
    """

    def __init__(self, scenario: Scenario, task: str | Task, **options: Any) -> None:
        check_scenario(scenario)
        if isinstance(task, Task):
            self.options = task.options.for_run(**options)
            task = replace(task, options=self.options)
        elif isinstance(task, str):
            self.options = TrainingOptions(**options)
            _cached_task.cache_clear()  # a function of the user may now give other data
        else:
            raise ValueError(
                f"task must be the name of a data set or a Task, got {task!r}: use make_task "
                "to turn a Dataset into a Task"
            )
        self.scenario = scenario
        self.task = task

    def __call__(self, policy: Policy) -> gym.Env[Any, Any]:
        """Make the environment, with the reports that the policy uses.

        Raises `ValueError` if data are missing or damaged.
        """
        return TrainingWrapper(
            gym.make("FLEdge-v0", scenario=self.scenario),
            self.make_task(),
            report_gradients=policy.uses_gradients,
            report_losses=policy.uses_losses,
            report_update_norms=policy.uses_update_norms,
        )

    def fitted(self, keep: Collection[str] = ()) -> TrainingEnvFactory:
        """A copy whose scenario has the task's upload size and sample counts; see `Task.fit`."""
        return self.in_system(self.make_task().fit(self.scenario, keep))

    def in_system(self, scenario: Scenario) -> TrainingEnvFactory:
        """A copy with another scenario, which must also fit the task."""
        other = copy.copy(self)
        other.scenario = scenario
        return other

    @property
    def identity(self) -> list[Any]:
        """Everything that determines the training of a task that a text names.

        Of the data that is the content, not the place.
        """
        options = vars(self.options) | {"download": False, "data_dir": None}
        code = [
            code_of_place(value)
            for value in (self.task, *options.values())
            if isinstance(value, str)
        ]
        return [
            self.task if self.task in DATASETS or code[0] else "folder",
            options,
            code,
            self.make_task().identity,
        ]

    def make_task(self) -> Task:
        """The learning task, split over the scenario's devices.

        Raises `ValueError` if data are missing or damaged.
        """
        if isinstance(self.task, Task):
            return self.task
        scenario = self.scenario
        merit = None  # hashable, as a cache key
        if self.options.partition == "place":
            merit = tuple(scenario.mean_gain)
        elif self.options.partition == "speed":
            merit = tuple(scenario.f_max / scenario.cycles_per_sample)
        return _cached_task(
            self.task,
            num_devices=scenario.num_devices,
            merit=merit,
            **vars(self.options),
        )


_cached_task = lru_cache(maxsize=1)(make_task)

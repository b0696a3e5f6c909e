"""Training environments by name, for jobs that run in other processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium as gym
import torch

from fl_edge_env import Scenario
from policies.base import Policy
from train_fl.task import Task, make_task
from train_fl.wrapper import TrainingWrapper


@dataclass(frozen=True)
class TrainingEnvFactory:
    """Makes the training environment of a policy.

    It holds names and numbers only, so that it is cheap to send and says all that determines
    the training.

    Parameters
    ----------
    scenario : Scenario
        The system.
    task : str
        Name of the data set.
    eval_every : int
        Rounds between evaluations on the test set.
    """

    scenario: Scenario
    task: str
    eval_every: int = 10

    def __call__(self, policy: Policy) -> gym.Env[Any, Any]:
        """Make it; torch gets one thread, as several processes share the cores.

        Parameters
        ----------
        policy : Policy
            Says whether it needs gradients.
        """
        torch.set_num_threads(1)
        return TrainingWrapper(
            gym.make("FLEdge-v0", scenario=self.scenario),
            self.make_task(),
            eval_every=self.eval_every,
            report_gradients=policy.uses_gradients,
        )

    def make_task(self) -> Task:
        """The learning task, split over the scenario's devices."""
        return _cached_task(self.task, self.scenario.num_devices)


@lru_cache(maxsize=4)
def _cached_task(name: str, num_devices: int) -> Task:
    return make_task(name, num_devices=num_devices)

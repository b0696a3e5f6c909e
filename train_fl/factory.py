"""Training environments by name, for jobs that run in other processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from fl_edge_env import Scenario
from fl_edge_env.checks import integer_at_least
from policies.base import Policy
from train_fl.task import Network, Partition, Task, make_task
from train_fl.wrapper import NonFinite, TrainingWrapper


@dataclass(frozen=True)
class TrainingEnvFactory:
    """Makes the training environment of a policy.

    It holds names and numbers only, so that it is cheap to send and says all that determines
    the training.

    Parameters
    ----------
    scenario : Scenario
        The system, which must fit the task; see `fitted`.
    task : str
        Name of the data set.
    eval_every : int
        Rounds between evaluations on the test set.
    partition : str, optional
        How samples are split; see `train_fl.make_task`.
    concentration : float
        Of the split's Dirichlet distribution.
    network : {"own", "small"}
        The data set's own network, or a small one in its place.
    learning_rate : float, optional
        Initial learning rate; the data set's own by default.
    on_non_finite : {"raise", "skip"}
        What to do with an update that is not finite.
    data_dir : Path
        Folder with the data set's files.
    download : bool
        Whether to fetch missing files from the internet.
    device : str
        Where to train.
    threads : int
        Threads of torch. One by default, as several processes share the cores; the number may
        change the last digits.

    Raises
    ------
    ValueError
        If `threads` is not positive.
    """

    scenario: Scenario
    task: str
    eval_every: int = 10
    partition: Partition | None = None
    concentration: float = 0.5
    network: Network = "own"
    learning_rate: float | None = None
    on_non_finite: NonFinite = "raise"
    data_dir: Path = Path("data")
    download: bool = False
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        integer_at_least(1, "threads", self.threads)

    def __call__(self, policy: Policy) -> gym.Env[Any, Any]:
        """Make it, and set torch to its threads and to deterministic kernels in this process.

        Parameters
        ----------
        policy : Policy
            Says what it wants to be reported.

        Raises
        ------
        ValueError
            If an option is wrong, or the data are missing or damaged.
        """
        torch.set_num_threads(self.threads)
        torch.backends.cudnn.deterministic = True
        return TrainingWrapper(
            gym.make("FLEdge-v0", scenario=self.scenario),
            self.make_task(),
            eval_every=self.eval_every,
            report_gradients=policy.uses_gradients,
            report_losses=policy.uses_losses,
            report_update_norms=policy.uses_update_norms,
            on_non_finite=self.on_non_finite,
            device=self.device,
        )

    def checkpoint_bytes(self, policy: Policy) -> int:
        """Size of a checkpoint of a run: nearly all are the numbers of `TrainingWrapper.state`.

        Parameters
        ----------
        policy : Policy
            Says whether the gradients of all devices are kept.
        """
        gradients = 2 * self.scenario.num_devices if policy.uses_gradients else 0  # bfloat16
        return (4 + gradients) * self.make_task().num_parameters

    def fitted(self) -> TrainingEnvFactory:
        """The same with the scenario fitted to the task.

        The data say how many samples each device has, and the network how large an upload is.
        """
        return replace(self, scenario=self.make_task().fit(self.scenario))

    def make_task(self) -> Task:
        """The learning task, split over the scenario's devices."""
        return _cached_task(
            self.task,
            num_devices=self.scenario.num_devices,
            partition=self.partition,
            concentration=self.concentration,
            network=self.network,
            # As a tuple, by which the task is kept in the cache.
            mean_gain=tuple(self.scenario.mean_gain) if self.partition == "place" else None,
            learning_rate=self.learning_rate,
            data_dir=self.data_dir,
            download=self.download,
        )


_cached_task = lru_cache(maxsize=1)(make_task)

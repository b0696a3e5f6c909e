"""Training environments by name, for jobs that run in other processes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from fl_edge_env import Scenario
from fl_edge_env.checks import integer_at_least
from policies.base import Policy
from policies.own import names_own, own_source
from policies.reports import system_of
from train_fl.local_sgd import Precision
from train_fl.server import make_server_optimizer
from train_fl.task import Partition, Task, make_task
from train_fl.wrapper import NonFinite, TrainingWrapper


@dataclass(frozen=True)
class TrainingEnvFactory:
    """Makes the training environment of a policy.

    With a task by name it holds names and numbers only, so that it is cheap to send to other
    processes and says all that determines the training. A `Task` is sent with its data.

    Parameters
    ----------
    scenario : Scenario
        The system, which must fit the task; see `fitted`.
    task : str or Task
        Name of the data set, as `train_fl.make_task` takes it, or a task of one's own. The other
        options of the task are then its own, and cannot be given here.
    eval_every : int
        Rounds between evaluations on the test set.
    partition : str, optional
        How samples are split; see `train_fl.make_task`.
    concentration : float
        Of the split's Dirichlet distribution.
    split_seed : int, optional
        Seed of a split that all seeds share; by default each has its own.
    model, upload : str, optional
        The network, and the one whose size is uploaded; see `train_fl.make_task`.
    batch_size : int
        Samples in a step of SGD.
    learning_rate : float, optional
        Initial learning rate; the data set's own by default.
    momentum, weight_decay : float
        Of SGD.
    proximal : float
        FedProx's mu.
    server : {"fedavg", "fedavgm", "fedadam"}
        The server's optimiser.
    server_learning_rate : float, optional
        Its learning rate; by default 1, or 0.01 for FedAdam.
    precision : {"float32", "bfloat16"}
        What layers compute with.
    channels_last : bool
        Whether images are stored pixel by pixel.
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
        If `threads` is not positive, or an option is given that a `Task` has already.
    """

    scenario: Scenario
    task: str | Task
    eval_every: int = 10
    partition: Partition | None = None
    concentration: float = 0.5
    split_seed: int | None = None
    model: str | None = None
    upload: str | None = None
    batch_size: int = 32
    learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    proximal: float = 0.0
    server: str = "fedavg"
    server_learning_rate: float | None = None
    precision: Precision = "float32"
    channels_last: bool = False
    on_non_finite: NonFinite = "raise"
    data_dir: Path = Path("data")
    download: bool = False
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        integer_at_least(1, "threads", self.threads)
        if isinstance(self.task, str):
            return
        if not isinstance(self.task, Task):
            raise ValueError(
                f"task must be the name of a data set or a Task, got {self.task!r}: make_task "
                "makes one of a Dataset"
            )
        for field in fields(self):
            if field.name not in _OF_THE_RUN and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"{field.name} belongs to the task: give it to make_task, which made the task"
                )

    def __call__(self, policy: Policy) -> gym.Env[Any, Any]:
        """Make it, and set torch to its threads and to deterministic kernels in this process.

        Parameters
        ----------
        policy : Policy
            Says what it wants to be reported, and what that costs in its scenario; see
            `policies.with_reports`.

        Raises
        ------
        ValueError
            If an option is wrong, or the data are missing or damaged.
        """
        torch.set_num_threads(self.threads)
        torch.backends.cudnn.deterministic = True
        return TrainingWrapper(
            gym.make("FLEdge-v0", scenario=system_of(policy, self.scenario)),
            self.make_task(),
            eval_every=self.eval_every,
            report_gradients=policy.uses_gradients,
            report_losses=policy.uses_losses,
            report_update_norms=policy.uses_update_norms,
            on_non_finite=self.on_non_finite,
            precision=self.precision,
            channels_last=self.channels_last,
            device=self.device,
        )

    def checkpoint_bytes(self, policy: Policy) -> int:
        """Size of a checkpoint of a run: nearly all are the numbers of `TrainingWrapper.state`.

        Parameters
        ----------
        policy : Policy
            Says whether the gradients of all devices are kept.
        """
        task = self.make_task()
        model_and_server = 4 * (1 + len(task.server.keeps))  # float32
        gradients = 2 * self.scenario.num_devices if policy.uses_gradients else 0  # bfloat16
        return (model_and_server + gradients) * task.num_parameters

    def fitted(self) -> TrainingEnvFactory:
        """The same with the scenario fitted to the task.

        The data say how many samples each device has, and the network how large an upload is.
        """
        return replace(self, scenario=self.make_task().fit(self.scenario))

    @property
    def identity(self) -> tuple[TrainingEnvFactory, str]:
        """What determines the training: all but whether files are fetched, and own code.

        The code is what stands in the files of one's own that the task or the network is named by.
        """
        names = [name for name in (self.task, self.model) if isinstance(name, str)]
        files = [own_source(name) for name in names if names_own(name)]
        code = "".join(file.read_text(encoding="utf-8") for file in files if file is not None)
        return replace(self, download=False), code

    def make_task(self) -> Task:
        """The learning task, split over the scenario's devices."""
        if isinstance(self.task, Task):
            return self.task
        return _cached_task(
            self.task,
            num_devices=self.scenario.num_devices,
            partition=self.partition,
            concentration=self.concentration,
            seed=self.split_seed,
            model=self.model,
            upload=self.upload,
            # As a tuple, by which the task is kept in the cache.
            mean_gain=tuple(self.scenario.mean_gain) if self.partition == "place" else None,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            proximal=self.proximal,
            server=make_server_optimizer(self.server, self.server_learning_rate),
            data_dir=self.data_dir,
            download=self.download,
        )


# Fields that are no part of the task.
_OF_THE_RUN = (
    "scenario",
    "task",
    "eval_every",
    "precision",
    "channels_last",
    "on_non_finite",
    "device",
    "threads",
)

_cached_task = lru_cache(maxsize=1)(make_task)

"""The options of a comparison."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fl_edge_env.checks import integer_at_least
from policies.benchmark.command_line import ScenarioOptions
from policies.benchmark.runner import Backend

# Options that do not change the result: with --resume they are those of the new command.
HOW_TO_RUN = ("workers", "backend", "address", "checkpoint_every", "tensorboard")


@dataclass(frozen=True)
class Options(ScenarioOptions):
    """Compare policies for federated learning at the wireless edge.

    All policies meet the same channel under the same seed. The first policy is compared with the
    others.
    """

    policies: tuple[str, ...] = ("lroa", "uni-d", "uni-s", "divfl")
    """Names such as lroa, folders of trained agents, or classes of your own as my_file.py:MyPolicy.
    best-channel:static also names the resources of a scheduler."""
    train: bool = True
    """Train real models in every round. Only the data of digits come with the libraries."""
    dataset: str | None = None
    """Data set: digits, fashion_mnist, cifar10 or femnist, by default that of the scenario; or your
    own, as my_file.py:function or a folder of pictures."""
    data_dir: Path = Path("data")
    """Folder with the files of the data set."""
    download: bool = False
    """Fetch missing data from the internet."""
    partition: str | None = None
    """Split of the data: dirichlet, dirichlet-by-class, iid, place or writer.
    By default writer for FEMNIST, and dirichlet for the other data sets."""
    concentration: float = 0.5
    """Parameter of the Dirichlet split: the smaller, the more the devices' data differ."""
    split_seed: int | None = None
    """Seed of a split that all seeds share. By default each seed has a split of its own."""
    model: str | None = None
    """Network: digits, small, cnn or resnet18, by default that of the data set; or your own, as
    my_file.py:MyNet."""
    upload: str | None = None
    """Network whose size is uploaded, such as cnn while small trains; by default the one of
    --model."""
    batch_size: int = 32
    """Samples in a step of local training."""
    learning_rate: float | None = None
    """Initial learning rate; by default that of the data set."""
    momentum: float = 0.9
    """Momentum of local training."""
    weight_decay: float = 0.0
    """Weight decay of local training."""
    proximal: float = 0.0
    """FedProx's mu: how strongly devices are held to the global model."""
    server: str = "fedavg"
    """What the server does with the weighted sum of the updates: fedavg, fedavgm or fedadam."""
    server_learning_rate: float | None = None
    """The server's learning rate; by default 1, or 0.01 for fedadam."""
    precision: str = "float32"
    """What layers compute with: float32 or bfloat16, faster on processors with units for it."""
    channels_last: bool = False
    """Store images pixel by pixel, which makes some networks faster."""
    pay_reports: bool = False
    """Let each policy pay for what it asks the devices to report, in time and energy.
    Gradients: a pass over the data and the bits of a model; losses: a third of a pass."""
    on_non_finite: str = "raise"
    """What to do with an update that is infinite or NaN: raise (stop with an error) or skip."""
    device: str = "cpu"
    """Device to train on, as PyTorch names it: cpu, cuda, cuda:1, and so on."""
    threads: int = 1
    """Threads of PyTorch in each process; another number may change the last digits of results."""
    seeds: int | None = None
    """Number of seeds; 5 with training, 30 without by default."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, and so on."""
    workers: int = os.cpu_count() or 1
    """Number of processes."""
    backend: Backend = "processes"
    """Where the processes run: on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    out: Path | None = None
    """Folder for the results, by default one in runs that is named by the options; runs finished
    there are not repeated."""
    resume: Path | None = None
    """Folder of an interrupted comparison, which continues with the options it was started with."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints, from which an interrupted training run continues."""
    tensorboard: bool = False
    """Write event files of runs that train models, for `tensorboard --logdir <out>/tensorboard`."""
    target_accuracy: float = 0.9
    """Test accuracy; the table shows when it is first reached."""
    eval_every: int = 10
    """Rounds between two evaluations on the test set."""

    def seed_range(self) -> range:
        """The seeds, as many as were asked for.

        Raises
        ------
        ValueError
            If there are none.
        """
        number = self.seeds if self.seeds is not None else (5 if self.train else 30)
        integer_at_least(1, "seeds", number)
        return range(self.first_seed, self.first_seed + number)

    def check_reports(self) -> None:
        """Refuse to let policies pay for reports where there are none.

        Raises
        ------
        ValueError
            If `pay_reports` is given and `train` is not.
        """
        if self.pay_reports and not self.train:
            raise ValueError("pay_reports needs training: without it nothing is reported")


def fits(value: object, kind: Any) -> bool:
    """Whether a value that comes from JSON or TOML is one of an option of some type.

    Parameters
    ----------
    value : object
        The value.
    kind : type
        The type of the option's field.
    """
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    kinds: dict[Any, tuple[type, ...]] = {float: (float, int), Path: (str,)}
    return any(type(value) in kinds.get(one, (one,)) for one in get_args(kind) or [kind])

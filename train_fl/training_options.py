"""Options for training real models: names, defaults, help texts and checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fl_edge_env.checks import (
    finite_number,
    finite_or_zero,
    natural_number,
    number_below_one,
    one_of,
    positive_integer,
)

PARTITIONS = ("dirichlet", "iid", "place", "speed", "writer")

# Options of a run, which are not part of the task.
RUN_OPTIONS = ("eval_every", "on_non_finite", "device", "threads")


@dataclass(frozen=True)
class PlaceFlags:
    """Evaluation, device and data of the training."""

    eval_every: int = 10
    """Rounds between evaluations on the test set. The last
    round is always evaluated."""
    device: str = "cpu"
    """PyTorch's device, such as cpu, cuda or cuda:1."""
    data_dir: Path = Path("data")
    """Folder of the data sets."""
    download: bool = False
    """Download missing data. The digits need no download."""


@dataclass(frozen=True)
class TrainingOptions(PlaceFlags):
    """Real models: network, split, local training, server and evaluation.

    Raises
    ------
    ValueError
        If a value is out of range; the message names the option.
    """

    model: str | None = None
    """Network: digits, small, small_colour, cnn, resnet18, or my_file.py:MyNet; by default the data
    set's."""
    partition: str | None = None
    """Split of the data: dirichlet, iid, place, speed or writer.
    By default writer for FEMNIST, and dirichlet otherwise."""
    concentration: float = 0.5
    """Parameter of the Dirichlet split: the smaller, the more the devices' data differ."""
    split_seed: int | None = None
    """Seed of one split for all seeds. By default each seed has a different split."""
    upload: str | None = None
    """Network whose size is uploaded, such as cnn while small trains; by default --model."""
    batch_size: int = 32
    """Batch size of local training."""
    learning_rate: float | None = None
    """Initial learning rate; by default the data set's."""
    momentum: float = 0.9
    """Momentum of local training."""
    proximal: float = 0.0
    """FedProx's mu: how strongly devices are pulled towards the global model."""
    compression: str | None = None
    """User-defined compressor, such as my_file.py:MyCompressor; by default the scenario's."""
    server: str = "fedavg"
    """The server's optimiser: fedavg, fednova (normalised by work), fedavgm or fedadam."""
    server_learning_rate: float | None = None
    """The server's learning rate; by default 1, or 0.01 for fedadam."""
    on_non_finite: str = "raise"
    """If an update is infinite or NaN: raise (stop with an error) or skip it."""
    threads: int = 1
    """PyTorch threads in each process; other numbers may change the last digits of results."""

    def __post_init__(self) -> None:
        # Names of data sets, networks, compressors, server optimisers and devices are checked where
        # they are looked up.
        for name in ("batch_size", "eval_every", "threads"):
            positive_integer(name, getattr(self, name))
        finite_number("concentration", self.concentration)
        number_below_one("momentum", self.momentum)
        finite_or_zero("proximal", self.proximal)
        one_of("on_non_finite", self.on_non_finite, ("raise", "skip"))
        check_flag("download", self.download)
        if not isinstance(self.data_dir, str | Path):
            raise ValueError(f"data_dir must be a path, got {self.data_dir!r}")
        if self.split_seed is not None:
            natural_number("split_seed", self.split_seed)
        if self.partition is not None:
            one_of("partition", self.partition, PARTITIONS)
        if self.learning_rate is not None:
            finite_number("learning_rate", self.learning_rate)

    def for_run(self, **changes: Any) -> TrainingOptions:
        """A copy with changed `RUN_OPTIONS`; `ValueError` for other names."""
        for name in changes:
            if name not in RUN_OPTIONS:
                raise ValueError(
                    f"{name} is none of {', '.join(RUN_OPTIONS)}: give other options to make_task"
                )
        return replace(self, **changes)


def check_flag(name: str, value: object) -> None:
    """Raise `ValueError` if `value` is not True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")

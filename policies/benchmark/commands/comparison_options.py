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
HOW_TO_RUN = ("workers", "backend", "address", "checkpoint_every")


@dataclass(frozen=True)
class Options(ScenarioOptions):
    """Compare policies for federated learning at the wireless edge.

    All policies meet the same channel under the same seed. The first policy is compared with the
    others.
    """

    policies: tuple[str, ...] = ("lroa", "uni-d", "uni-s", "divfl")
    """Those to compare: names of `policies.POLICIES`, best-channel:static for the resources of
    a scheduler, a trained agent's folder, or my_file.py:MyPolicy."""
    train: bool = True
    """Train real models inside every round. Only digits has its data at hand."""
    dataset: str | None = None
    """Data to train on: digits, fashion_mnist, cifar10, femnist; the scenario's by default."""
    data_dir: Path = Path("data")
    """Folder with the data set's files."""
    download: bool = False
    """Fetch missing data from the internet."""
    partition: str | None = None
    """Split of the data: dirichlet, dirichlet-by-class, iid, place or writer; usual by default."""
    concentration: float = 0.5
    """Concentration of the split's Dirichlet distribution."""
    network: str = "own"
    """The data set's own network, or small, a faster one with the own one's upload."""
    learning_rate: float | None = None
    """Initial learning rate; the data set's own by default."""
    on_non_finite: str = "raise"
    """What to do with an update that is not finite: raise an error, or skip it."""
    device: str = "cpu"
    """Where to train, as torch names it."""
    threads: int = 1
    """Threads of torch in each process; another number may change the last digits."""
    seeds: int | None = None
    """Number of seeds; 5 with training, 30 without by default."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, and so on."""
    workers: int = os.cpu_count() or 1
    """Processes to run on."""
    backend: Backend = "processes"
    """Processes of this machine, or of a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    out: Path | None = None
    """Folder for the results, in runs and named by the options by default; what is finished in it
    is not run again."""
    resume: Path | None = None
    """Folder of a comparison to go on with, by its own options but for how to run it."""
    checkpoint_every: int = 50
    """Rounds after which a training run is saved, to go on from there after a crash."""
    target_accuracy: float = 0.9
    """Accuracy whose first arrival the table tells."""
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

"""The options of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import OmitArgPrefixes

from fl_edge_env.checks import integer_at_least
from policies.benchmark.command_line import ScenarioOptions
from policies.benchmark.runner import Backend
from policies.benchmark.training_options import TrainingOptions

# Options that do not change the result: with --resume they are those of the new command.
HOW_TO_RUN = ("workers", "backend", "address", "checkpoint_every", "tensorboard", "save_models")


_TRAINING = TrainingOptions()


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
    training: Annotated[TrainingOptions, OmitArgPrefixes] = _TRAINING
    """Training of real models."""
    pay_reports: bool = False
    """Let each policy pay for what it asks the devices to report, in time and energy.
    Gradients: a pass over the data and the bits of a model; losses: a third of a pass."""
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
    save_models: bool = False
    """Write the last global model of each run to <out>/models, as a state dict of PyTorch."""
    tensorboard: bool = False
    """Write event files of runs that train models, for `tensorboard --logdir <out>/tensorboard`."""
    target_accuracy: float = 0.9
    """Test accuracy; the table shows when it is first reached."""

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


# The types of all options by name, those of training among them.
_OF_TRAINING = get_type_hints(TrainingOptions)
KINDS = get_type_hints(Options) | _OF_TRAINING
del KINDS["training"]


def as_values(options: Options) -> dict[str, Any]:
    """All options by name, those of training among them."""
    values: dict[str, Any] = {}
    for name, value in vars(options).items():
        values |= vars(value) if name == "training" else {name: value}
    return values


def from_values(values: Mapping[str, Any]) -> Options:
    """Options from some of `as_values`, perhaps as they come back from JSON or TOML."""
    own = {name: value for name, value in values.items() if name not in _OF_TRAINING}
    if "policies" in own:
        own["policies"] = tuple(own["policies"])
    training = {name: value for name, value in values.items() if name in _OF_TRAINING}
    if "data_dir" in training:
        training["data_dir"] = Path(training["data_dir"])
    return Options(**own, training=TrainingOptions(**training))


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

"""The options of the commands in groups, and fields by ``--set``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from inspect import getdoc
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tyro

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean, natural_number, positive_integer
from fl_edge_env.compression import is_custom
from fl_edge_env.core import resolve_scenario
from fl_edge_env.files import user_path
from fl_edge_env.scenario import toml
from train_fl.training_options import PlaceFlags, TrainingOptions


def shown(metavar: str, default: str) -> Any:
    """How ``--help`` shows an option that is None by default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class RunOptions:
    """Execution and folder; none of these options changes a result."""

    workers: Annotated[int | None, shown("INT", "one for each processor")] = None
    """Number of processes."""
    backend: Literal["processes", "ray"] = "processes"
    """Processes of this machine, or the Ray cluster at
    RAY_ADDRESS."""
    checkpoint_every: int = 50
    """Rounds between checkpoints of a training run."""
    out: Annotated[Path | None, shown("PATH", "a folder in runs")] = None
    """Folder for the results. Finished runs in it are not
    repeated."""
    overwrite: bool = False
    """Replace other results in the folder."""

    def __post_init__(self) -> None:
        if self.out is not None:
            object.__setattr__(self, "out", user_path(self.out))

    def execution(self) -> dict[str, Any]:
        """Keywords of `policies.benchmark.runner.play_runs`; `ValueError` if one is wrong."""
        import joblib  # slow, and not needed for --help

        from policies.benchmark.runner import check_runner

        # By default, all processors that this process may use.
        workers = joblib.cpu_count() if self.workers is None else self.workers
        check_runner(workers, self.checkpoint_every)
        return {
            "workers": workers,
            "backend": self.backend,
            "checkpoint_every": self.checkpoint_every,
        }


@dataclass(frozen=True)
class SystemOptions:
    """The simulated system."""

    scenario: Annotated[str, tyro.conf.arg(metavar="NAME")] = "digits"
    """digits, fashion_mnist, cifar10, femnist, cell, phones,
    mobile, or a TOML file."""
    rounds: Annotated[int | None, shown("INT", "the scenario's")] = None
    """Number of rounds."""
    set: Annotated[
        tuple[tuple[str, ...], ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="FIELD=VALUE ...", help_behavior_hint="(repeatable)"),
    ] = ()
    """Fields of the scenario, such as num_devices=60
    cohort_size=4 mu=0.1 csi=delayed channel=markov:0.9.
    --set alone lists all fields."""
    tiers: Annotated[str | None, shown("KIND", "the scenario's devices")] = None
    """Unequal devices: phones (measured speeds)."""
    work: Annotated[str | None, shown("KIND", "equal")] = None
    """Local epochs: equal, or proportional to each device's
    speed with the same total."""

    fields_in_file: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Fields of the scenario and of training that a leaderboard's file gives."""

    @cached_property
    def given_fields(self) -> dict[str, Any]:
        """The fields of the scenario and of training that are given, by name.

        `ValueError` if a field of ``--set`` is unknown, given twice, or not of its type.
        """
        found: dict[str, Any] = {} if self.rounds is None else {"num_rounds": self.rounds}
        if () in self.set:
            print(_field_list())
            raise SystemExit(0)
        for name, value in chain(map(_field, chain(*self.set)), self.fields_in_file.items()):
            if name in found:
                raise ValueError(f"{name} is given twice: as {found[name]!r} and as {value!r}")
            found[name] = value
        return found


@dataclass(frozen=True)
class PolicyOptions:
    """The policies to compare, on the same channels under each seed."""

    policies: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = (
        "lroa",
        "uni-d",
        "uni-s",
        "divfl",
        "best-channel:static",
        "opportunistic",
    )
    """Names, separated by spaces: lroa; best-channel:static,
    a selector with its resources; uni-d@qsgd:4, with other
    uploads; agent.zip, a trained agent; my_file.py:MyPolicy."""
    seeds: Annotated[int | None, shown("INT", "5 with training, 30 without")] = None
    """Number of seeds."""
    first_seed: int = 0
    """The first of the consecutive seeds."""


@dataclass(frozen=True)
class _TrainOptions:
    train: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: train)")] = True
    """Train real models; --no-train simulates time and
    energy only."""
    target_accuracy: float = 0.9
    """Test accuracy. Policies are ranked by the time to it."""
    fit_scenario: bool = False
    """Take upload size and data sizes from the network and
    the data, even if a scenario file or --set gives others."""
    save_models: bool = False
    """Save the final global model of each run in
    <out>/models, as a state dict of PyTorch."""
    dataset: Annotated[str | None, shown("NAME", "the scenario's")] = None
    """digits, fashion_mnist, cifar10, femnist,
    my_file.py:function, or a folder of images."""
    model: Annotated[str | None, shown("NAME", "the data set's")] = None
    """digits, small, small_colour, cnn, resnet18, or
    my_file.py:MyNet."""


@dataclass(frozen=True)
class TrainOptions(PlaceFlags, _TrainOptions):
    """Training of real models; --set also takes fields such as partition=iid server=fednova."""


@dataclass(frozen=True)
class OutputOptions:
    """Additional files."""

    latex: bool = False
    """Write <out>/table.tex, for LaTeX with booktabs."""
    pdf: bool = False
    """Also write the figures as PDF."""

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of the figures."""
        return ("png", "pdf") if self.pdf else ("png",)


def _kinds(options: type) -> dict[str, type]:
    """The type of each field on the command line: str for a channel, float for an array."""
    hints = get_type_hints(options)
    kinds: dict[str, type] = {}
    for one in fields(options):
        parts = (hints[one.name], *get_args(hints[one.name]))
        kinds[one.name] = next((kind for kind in (int, float, str) if kind in parts), float)
    return kinds


def _field_list() -> str:
    """The fields of ``--set`` with their units and defaults, as a table."""
    described = r"^([\w, ]+) : .*\n(?: {4}.*\n)*? {4}.*\[(\D[^]\n]*)\]"  # the name and the unit
    units: dict[str, str] = {}
    for names, unit in re.findall(described, getdoc(Scenario) or "", re.MULTILINE):
        units |= dict.fromkeys(names.split(", "), unit)
    lines = ["field                  unit         default"]
    defaults = {one.name: one.default for one in (*fields(TrainingOptions), *fields(Scenario))}
    for name in FIELDS:
        value = "" if defaults[name] in (None, MISSING) else defaults[name]
        lines.append(f"{name:22} {units.get(name, ''):12} {value}".rstrip())
    return "\n".join(lines)


def _field(text: str) -> tuple[str, Any]:
    """The name and the value of a field of ``--set``; `ValueError` if one of them is wrong."""
    name, equals, value = text.partition("=")
    if name not in FIELDS:
        nearest = did_you_mean(name, FIELDS) or ": --set alone lists all"
        raise ValueError(f"--set has no field {name!r}{nearest}")
    if not equals:
        raise ValueError(f"--set needs {name}=VALUE, got {text!r}")
    kind = FIELDS[name]
    try:
        return name, kind(value)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        more = ": separate fields with spaces" if "," in value else ""
        raise ValueError(f"{name} must be {wanted}, got {value!r}{more}") from None


SCENARIO_FIELDS = _kinds(Scenario) | {"channel": str}
_FLAGS = get_type_hints(TrainOptions)
TRAINING_FIELDS = {n: kind for n, kind in _kinds(TrainingOptions).items() if n not in _FLAGS}
FIELDS = SCENARIO_FIELDS | TRAINING_FIELDS  # of --set


# Options that change no result, or are listed by themselves.
_NO_RESULT_OPTIONS = (
    "scenario",
    "rounds",
    "set",
    "fields_in_file",
    "download",
    "save_models",
)


@dataclass(frozen=True)
class CompareOptions:
    """Compare policies for federated learning at the wireless edge.

    Prints a table and writes results and figures. Rerun a command to resume it.
    """

    system: SystemOptions = field(default_factory=SystemOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    training: TrainOptions = field(default_factory=TrainOptions)
    run: RunOptions = field(default_factory=RunOptions)
    output: OutputOptions = field(default_factory=OutputOptions)

    def names_given(self) -> set[str]:
        """Names of the fields that the options or the TOML file give, but not a preset's."""
        name = self.system.scenario
        in_file = toml.read(Path(name)) if name.lower().endswith(".toml") else {}
        return {*in_file, *self.system.given_fields}

    def make_scenario(self) -> Scenario:
        """The system; `ValueError` if an option is wrong."""
        system = self.system
        given = {n: value for n, value in system.given_fields.items() if n in SCENARIO_FIELDS}
        if self.training.train and is_custom(given.get("compression", "none")):
            del given["compression"]  # training loads it and determines its size
        return resolve_scenario(system.scenario, tiers=system.tiers, work=system.work, **given)

    def check_used(self) -> None:
        """Raise `ValueError` for the first option that has no effect without training."""
        if self.training.train:
            return
        unused = flags_given(self.training, *(name for name in _FLAGS if name != "train"))
        unused += flags_given(self.run, "checkpoint_every")
        unused += [
            f"--set {name}" for name in self.system.given_fields if name not in SCENARIO_FIELDS
        ]
        if unused:
            raise ValueError(f"{unused[0]} needs training: remove --no-train")

    def training_options(self) -> dict[str, Any]:
        """The options of training, as keywords of `TrainingOptions`."""
        given = vars(self.training) | self.system.given_fields
        if not is_custom(given.get("compression", "none")):
            given["compression"] = None  # the scenario has it
        return {one.name: given[one.name] for one in fields(TrainingOptions) if one.name in given}

    def seed_range(self) -> range:
        """The seeds; `ValueError` if the options give none."""
        number = self.policy.seeds
        if number is None:
            number = 5 if self.training.train else 30
        positive_integer("seeds", number)
        first = natural_number("first_seed", self.policy.first_seed)
        return range(first, first + number)

    def result_options(self) -> dict[str, Any]:
        """The options that determine results and differ from their defaults, in one level."""
        groups = (self.system, self.policy, self.training)
        given = {
            one.name: getattr(group, one.name)
            for group in groups
            for one in fields(group)
            if one.name not in _NO_RESULT_OPTIONS and getattr(group, one.name) != one.default
        }
        return self.system.given_fields | given


def flags_given(group: object, *names: str) -> list[str]:
    """Return the named flags that differ from their defaults."""
    changed = [name for name in names if getattr(group, name) != getattr(type(group), name)]
    return [f"--{name.replace('_', '-')}" for name in changed]

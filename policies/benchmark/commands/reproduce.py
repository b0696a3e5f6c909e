"""Reproducing the figures of the paper's Section VII, and two of our own."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env import Scenario
from fl_edge_env.checks import integer_at_least
from policies.base import Policy
from policies.benchmark.command_line import print_whole
from policies.benchmark.commands.training import MakeTraining, Scheduler, make_entrant
from policies.benchmark.experiment import Entrant, Results, Setting, run_settings
from policies.benchmark.figures import save_figure
from policies.benchmark.options import RunOptions
from policies.benchmark.results_folder import (
    Kind,
    claimed,
    described,
    reopened,
    write_csv,
)
from policies.benchmark.training_options import TrainingOptions

if TYPE_CHECKING:
    from policies.benchmark.figures import Panel


class Curve(NamedTuple):
    """A policy, by its name or what makes it, on a scenario, under a label."""

    label: str
    policy: str | Callable[[Scenario], Policy]
    scenario: Scenario


class Drawn(NamedTuple):
    """Results of a system: panels of the figure, their data, and rows of the table."""

    panels: list[Panel]
    data: pd.DataFrame
    rows: list[dict[str, str]]  # by column


@dataclass(frozen=True)
class Experiment(RunOptions, ABC):
    """An experiment of the paper: its curves on each system, and what is told of them."""

    stem: ClassVar[str]  # of its files
    title: ClassVar[str]  # of its table
    comment: ClassVar[str]  # below its table
    bounded: ClassVar[bool] = False  # whether its curves are measured against the bounds

    scenarios: tuple[str, ...] = ("cifar10", "femnist")
    """Systems, each a row of panels in the figure; with --train they are also the data sets."""
    train: bool = False
    """Train real models. Only the data of digits come with the libraries."""
    data_dir: Path = Path("data")
    """Folder with the files of the data set."""
    download: bool = False
    """Fetch missing data from the internet."""
    eval_every: int = 10
    """Rounds between two evaluations on the test set."""
    device: str = "cpu"
    """Device to train on, as PyTorch names it: cpu, cuda, cuda:1, and so on."""
    seeds: int | None = None
    """Number of seeds; 30, or 5 with training, by default."""
    rounds: int | None = None
    """Number of rounds; by default that of the scenario."""

    @abstractmethod
    def curves(self, name: str) -> list[Curve]:
        """The curves on a system."""

    @abstractmethod
    def draw(self, results: Results) -> Drawn:
        """The panels, data and rows of a system."""

    def scenario(self, name: str, **fields: Any) -> Scenario:
        """A preset with the number of rounds that was asked for and other fields."""
        rounds = {} if self.rounds is None else {"num_rounds": self.rounds}
        return Scenario.preset(name, **rounds | fields)

    def setting(self, name: str, make_training: MakeTraining) -> Setting:
        """The setting of a system, with training fitted to the data of its name."""
        entrants = []
        for label, policy, scenario in self.curves(name):
            training = None
            if self.train:
                names = ("eval_every", "data_dir", "download", "device")
                options = TrainingOptions(**{name: getattr(self, name) for name in names})
                training = make_training(scenario, name, options)
                scenario = training.scenario
            if isinstance(policy, str):
                entrants.append(make_entrant(Scheduler(policy, label=label), scenario, training))
            else:
                entrants.append(Entrant(label, policy(scenario), scenario, training))
        number = self.seeds if self.seeds is not None else (5 if self.train else 30)
        return Setting(name, tuple(entrants), range(number), bounded=self.bounded)


def reproduce(experiment: Experiment, console: Console, make_training: MakeTraining) -> None:
    """Run an experiment, draw its figure and print its table.

    Raises `ValueError` for a wrong option and a folder that holds something else or in which
    another command is at work, `ModuleNotFoundError` where a package is not installed, and
    `JobsFailedError` if a run has failed.
    """
    stem = experiment.stem
    files = tuple(f"{stem}.{kind}" for kind in ("png", "pdf", "csv"))
    kind = Kind("reproduction", files, config=f"{stem}.json")
    experiment = reopened(experiment, kind)
    if experiment.seeds is not None:
        integer_at_least(1, "seeds", experiment.seeds)
    for field in dataclasses.fields(experiment):
        if getattr(experiment, field.name) == ():
            raise ValueError(f"{field.name} must be one or more, got none")
    settings = [experiment.setting(name, make_training) for name in experiment.scenarios]
    systems = [described(setting.scenario) for setting in settings]
    folder = experiment.out or Path("runs") / "paper"
    with claimed(folder, kind, experiment, systems, (), console) as writes:
        results = run_settings(settings, folder, experiment, console)
        drawn = [experiment.draw(each) for each in results]
        if writes:
            paths = [folder / name for name in files[:2]]
            save_figure([each.panels for each in drawn], paths)
            tables = [
                each.data.assign(scenario=setting.name)
                for each, setting in zip(drawn, settings, strict=True)
            ]
            write_csv(folder / files[2], pd.concat(tables))
    table = Table(title=experiment.title, box=box.SIMPLE_HEAD)
    for index, column in enumerate(drawn[0].rows[0]):
        table.add_column(column, justify="left" if index < 2 else "right")
    for row in (row for each in drawn for row in each.rows):
        table.add_row(*row.values())
    print_whole(table, console)
    console.print(experiment.comment)
    told = "Figures and data" if writes else "Read, and nothing written to"
    console.print(f"{told}: {folder}", soft_wrap=True)

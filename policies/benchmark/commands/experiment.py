"""What the experiments of the paper share: options, runs, figures and tables."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from rich import box
from rich.console import Console
from rich.table import Table

from fl_edge_env import Scenario
from fl_edge_env.files import atomic_path, writable_folder
from policies.base import Policy
from policies.benchmark.bars import run_with_progress
from policies.benchmark.bound import Prices, find_prices
from policies.benchmark.commands.training import MakeTraining, Training, make_entrant
from policies.benchmark.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_energy,
    draw_time,
    save_figure,
)
from policies.benchmark.jobs import BoundJob, Job, Work, make_jobs
from policies.benchmark.live import live_files
from policies.benchmark.runner import Backend
from policies.benchmark.training_options import TrainingOptions


@dataclass(frozen=True)
class Setting:
    """One curve: a policy, by its name or what makes it, on a scenario, under a label."""

    label: str
    policy: str | Callable[[Scenario], Policy]
    scenario: Scenario


@dataclass(frozen=True)
class Experiment(ABC):
    """Options of every experiment."""

    scenarios: tuple[str, ...] = ("cifar10", "femnist")
    """Systems, each a row of panels in the figure; with --train they are also the data sets."""
    train: bool = False
    """Train real models. Only the data of digits come with the libraries."""
    data_dir: Path = Path("data")
    """Folder with the files of the data sets."""
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
    workers: int = os.cpu_count() or 1
    """Number of processes."""
    backend: Backend = "processes"
    """Where the processes run: on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints, from which an interrupted training run continues."""
    out: Path = Path("runs/paper")
    """Folder for figures, data and finished runs."""

    @abstractmethod
    def run(self, console: Console, make_training: MakeTraining) -> None:
        """Run the experiment, draw its figure and print its table.

        Parameters
        ----------
        console : rich.console.Console
            Where to print.
        make_training : callable
            Prepares training where `train` asks for it.
        """

    def scenario(self, name: str, **fields: Any) -> Scenario:
        """A system with the number of rounds that was asked for.

        Parameters
        ----------
        name : str
            Of a preset.
        **fields
            Other fields of the scenario.
        """
        rounds = {} if self.rounds is None else {"num_rounds": self.rounds}
        return Scenario.preset(name, **rounds | fields)

    def collect(
        self,
        name: str,
        settings: list[Setting],
        console: Console,
        make_training: MakeTraining,
        detail: str = "",
        *,
        priced: bool = False,
    ) -> dict[str, pd.DataFrame]:
        """The rounds of each setting by label, with a progress bar meanwhile.

        Parameters
        ----------
        name : str
            Of the system, and with training of the data set.
        settings : list of Setting
            The curves, with labels that differ.
        console : rich.console.Console
            Where to show the progress.
        make_training : callable
            As for `run`.
        detail : str
            Stands after the name before the progress bar.
        priced : bool
            Whether to add the priced objective; the settings must then have the same prices.
        """
        if len({setting.label for setting in settings}) < len(settings):
            raise ValueError(f"settings repeat: {', '.join(s.label for s in settings)}")
        first = self.system(name, settings[0].scenario, make_training)
        prices = find_prices(first) if priced else None
        jobs: list[Job] = []
        labels: list[str] = []
        for setting in settings:
            new = self.jobs(name, setting, make_training, prices)
            jobs += new
            labels += [setting.label] * len(new)
        results = self.run_jobs(name + detail, jobs, console)
        collected: dict[str, list[pd.DataFrame]] = {}
        for label, rounds in zip(labels, results, strict=True):
            collected.setdefault(label, []).append(rounds.assign(policy=label))
        return {label: pd.concat(parts, ignore_index=True) for label, parts in collected.items()}

    def bounds(
        self, name: str, scenario: Scenario, console: Console, make_training: MakeTraining
    ) -> pd.DataFrame:
        """The bound along the path of each seed; the parameters are those of `collect`."""
        system = self.system(name, scenario, make_training)
        prices = find_prices(system)
        jobs = [BoundJob(system, seed, prices) for seed in self.all_seeds]
        return pd.concat(self.run_jobs(f"{name}, bound", jobs, console), ignore_index=True)

    def run_jobs(self, title: str, jobs: Sequence[Work], console: Console) -> list[pd.DataFrame]:
        """Run jobs as the options say; see `policies.benchmark.runner.run_jobs`."""
        return run_with_progress(
            title,
            jobs,
            folder=writable_folder(self.out) / "jobs",
            workers=self.workers,
            backend=self.backend,
            address=self.address,
            checkpoint_every=self.checkpoint_every,
            record=live_files(self.out),
            console=console,
        )

    @property
    def all_seeds(self) -> range:
        """Seeds from 0 on, as many as were asked for."""
        return range(self.seeds if self.seeds is not None else (5 if self.train else 30))

    def system(self, name: str, scenario: Scenario, make_training: MakeTraining) -> Scenario:
        """The system itself, or with training as it is fitted to the data."""
        training = self.training(name, scenario, make_training)
        return scenario if training is None else training.scenario

    def jobs(
        self,
        name: str,
        setting: Setting,
        make_training: MakeTraining,
        prices: Prices | None = None,
    ) -> list[Job]:
        """The runs of a setting; the other parameters are those of `collect`."""
        training = self.training(name, setting.scenario, make_training)
        scenario = setting.scenario if training is None else training.scenario
        if isinstance(setting.policy, str):
            policy = make_entrant(setting.policy, scenario, training)
        else:
            policy = setting.policy(scenario)
        title = f"{name}, {setting.label}"
        return make_jobs([policy], scenario, self.all_seeds, training, prices, title)

    def training(
        self, name: str, scenario: Scenario, make_training: MakeTraining
    ) -> Training | None:
        """With training, what makes the environments of a system, which it fits to the data."""
        if not self.train:
            return None
        return make_training(
            scenario,
            name,
            TrainingOptions(
                eval_every=self.eval_every,
                data_dir=self.data_dir,
                download=self.download,
                device=self.device,
            ),
        )

    def save(self, stem: str, grid: list[list[Any]], data: dict[str, pd.DataFrame]) -> None:
        """Write a figure and the data of its curves.

        Parameters
        ----------
        stem : str
            Name of the files.
        grid : list of lists of callables
            The panels, a list for each row.
        data : dict
            A table for each system.
        """
        folder = writable_folder(self.out)
        save_figure(grid, [folder / f"{stem}.png", folder / f"{stem}.pdf"])
        tables = [table.assign(scenario=name) for name, table in data.items()]
        with atomic_path(folder / f"{stem}.csv") as temporary:
            pd.concat(tables).to_csv(temporary, index=False)


def panels(rounds: pd.DataFrame, name: str, *, trained: bool) -> list[Any]:
    """The paper's pair of panels; without training time and energy stand for the accuracy."""
    if trained:
        return [
            titled(partial(draw_accuracy_over_time, rounds=rounds), name),
            titled(partial(draw_accuracy_over_rounds, rounds=rounds), name),
        ]
    return [
        titled(partial(draw_time, rounds=rounds), name),
        titled(partial(draw_energy, rounds=rounds), name),
    ]


def titled(panel: Any, name: str) -> Any:
    """The panel with the scenario in its title."""

    def draw(axes: Axes) -> None:
        panel(axes)
        axes.set_title(f"{name}: {axes.get_title()}")

    return draw


def total_time(rounds: pd.DataFrame) -> float:
    """Mean over seeds of the time of all rounds [s]."""
    return float(rounds.groupby("seed")["elapsed_time"].last().mean())


def new_table(title: str, *columns: str) -> Table:
    """An empty table."""
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right")
    return table

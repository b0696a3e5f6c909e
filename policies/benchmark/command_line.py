"""What the commands share: options, a progress bar over jobs, errors in one line."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    MarkovChannel,
    Scenario,
    TraceChannel,
    UplinkChannel,
    with_phones,
    with_tiers,
)
from fl_edge_env.channels import ChannelModel
from policies.benchmark.runner import Backend, JobsFailedError, Work, run_jobs


@dataclass(frozen=True)
class ScenarioOptions:
    """The options by which a command names its system."""

    scenario: str = "digits"
    """The system: digits, fashion_mnist, cifar10, femnist, cell, phones, or a TOML file."""
    channel: str | None = None
    """clip, resample, markov:P, cell, cell:P (gains stay so likely), uplinks, or a trace file."""
    csi: str | None = None
    """Gains the server knows: full, delayed by a round, or participants, at their last turn."""
    delayed_csi: bool = False
    """The same as --csi delayed."""
    objective: str | None = None
    """What the reward counts: penalty, or outcome, for which actions rank the devices."""
    latency: str | None = None
    """What counts as latency: proxy, the paper's sum of q T, or round_time, of the slowest."""
    availability: float | None = None
    """Long-run probability that a device is there in a round; 1 by default."""
    availability_persistence: float | None = None
    """Probability that a device keeps its state, there or not, from the round before."""
    upload_failure: float | None = None
    """Probability that an upload fails."""
    tiers: str | None = None
    """hardware: an older, the scenario's own or a newer device; phones: of measured speeds."""
    rounds: int | None = None
    """Rounds in an episode; the scenario's own number by default."""
    num_devices: int | None = None
    """Number of devices N; the scenario's own by default."""
    cohort_size: int | None = None
    """Number of draws in a round, K; the scenario's own by default."""
    mu: float | None = None
    """Scale of the weight lambda of the sampling error; the scenario's own by default."""
    nu: float | None = None
    """Scale of the weight V of the penalty against the queues; the scenario's own by default."""

    def make_scenario(self) -> Scenario:
        """The preset or the file with the options that were given.

        Raises
        ------
        ValueError
            If one of them is wrong.
        """
        fields = {
            "channel": None if self.channel is None else make_channel(self.channel),
            "csi": self.csi,
            "delayed_csi": self.delayed_csi or None,
            "objective": self.objective,
            "latency": self.latency,
            "availability": self.availability,
            "availability_persistence": self.availability_persistence,
            "upload_failure": self.upload_failure,
            "num_rounds": self.rounds,
            "num_devices": self.num_devices,
            "cohort_size": self.cohort_size,
            "mu": self.mu,
            "nu": self.nu,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        if self.scenario.endswith(".toml"):
            scenario = Scenario.load(self.scenario).replace(**given)
        else:
            scenario = Scenario.preset(self.scenario, **given)
        return scenario if self.tiers is None else _mixed(scenario, self.tiers)


def _mixed(scenario: Scenario, tiers: str) -> Scenario:
    """The scenario with devices of different hardware."""
    kinds = {"hardware": with_tiers, "phones": with_phones}
    if tiers not in kinds:
        raise ValueError(f"tiers must be one of {', '.join(kinds)}, got {tiers!r}")
    return kinds[tiers](scenario)


def make_channel(text: str) -> ChannelModel:
    """The channel that an option describes.

    Parameters
    ----------
    text : str
        ``clip``, ``resample``, ``markov:P``, ``cell``, ``cell:P``, ``uplinks`` or a trace file.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    name, _, parameter = text.partition(":")
    if text == "clip":
        return ExponentialChannel()
    if text == "resample":
        return ExponentialChannel(filter="resample")
    if text == "cell":
        return CellChannel()
    if text == "uplinks":
        return UplinkChannel()
    if name in ("cell", "markov"):
        try:
            persistence = float(parameter)
            if name == "cell":
                return CellChannel(persistence=persistence)
            return MarkovChannel.correlated(persistence)
        except ValueError as error:
            raise ValueError(f"channel {name}:P needs a probability P: {error}") from None
    if Path(text).suffix in (".csv", ".parquet"):
        return TraceChannel(text)
    raise ValueError(
        "channel must be clip, resample, markov:P, cell, cell:P, uplinks, or a .csv or .parquet "
        f"file, got {text!r}"
    )


@contextmanager
def errors_in_one_line(console: Console) -> Iterator[None]:
    """End the program with a message, not a traceback.

    The status is 2 for wrong input or a missing package, 1 for failed runs or a full disk, and
    130 for an interrupt.

    Parameters
    ----------
    console : rich.console.Console
        Where to print.
    """
    try:
        yield
    except (ValueError, ModuleNotFoundError, JobsFailedError) as error:
        message = Text(f"error: {error}", style="bold red")
        console.print(message, soft_wrap=True)
        sys.exit(1 if isinstance(error, JobsFailedError) else 2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        message = Text(f"error: {_full_disk(error)}", style="bold red")
        console.print(message, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print(
            "interrupted: what is finished is kept, and the same command goes on from there",
            style="yellow",
            soft_wrap=True,
        )
        sys.exit(130)


def _full_disk(error: OSError) -> str:
    """What to say where there is no room for a file."""
    where = Path(error.filename).parent if error.filename else Path.cwd()
    free = shutil.disk_usage(where if where.exists() else Path.cwd()).free / 2**20
    return (
        f"no room for {str(error.filename or 'a file')!r}: {free:.0f} MiB are free there; "
        "make room and give the same command again, which goes on from what is finished"
    )


def print_whole(table: Table, console: Console) -> None:
    """Print a table so that no number is cut off, however narrow the terminal.

    Parameters
    ----------
    table : rich.table.Table
        The table.
    console : rich.console.Console
        The terminal.
    """
    whole = Measurement.get(console, console.options.update(width=1000), table).maximum
    Console(width=max(console.width, whole)).print(table)


def run_with_progress(
    title: str,
    jobs: Sequence[Work],
    *,
    folder: Path,
    workers: int,
    console: Console,
    backend: Backend = "processes",
    address: str | None = None,
    checkpoint_every: int = 50,
) -> list[pd.DataFrame]:
    """Run jobs with a bar that tells how many are finished and how long the rest may take.

    Parameters
    ----------
    title : str
        Stands before the bar.
    jobs, folder, workers, backend, address, checkpoint_every
        As in `policies.benchmark.runner.run_jobs`.
    console : rich.console.Console
        Where to draw.

    Returns
    -------
    list of pandas.DataFrame
        The rounds of each job.
    """
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(jobs))
        return run_jobs(
            jobs,
            folder=folder,
            workers=workers,
            backend=backend,
            address=address,
            checkpoint_every=checkpoint_every,
            on_finish=lambda _: progress.advance(bar),
        )

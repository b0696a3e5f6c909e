"""What all commands share: options, and errors in one line."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
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
from policies.benchmark.runner import JobsFailedError, is_interrupt


@dataclass(frozen=True)
class ScenarioOptions:
    """The options by which a command names its system."""

    scenario: str = "digits"
    """The system: digits, fashion_mnist, cifar10, femnist, cell, phones, or a TOML file."""
    channel: str | None = None
    """Channel: clip, resample, markov:P, cell, cell:P, uplinks, or a trace file.
    P is the probability that a gain stays for the next round."""
    csi: str | None = None
    """Channel gains that the server knows when it decides.
    full: this round's; delayed: the last round's; participants: of their last participation."""
    objective: str | None = None
    """What the reward counts.
    penalty: the paper's penalty; outcome: what a user pays (actions then rank the devices)."""
    latency: str | None = None
    """What counts as latency.
    proxy: the paper's sum of q T; round_time: the mean time of the slowest device drawn."""
    availability: float | None = None
    """Long-run probability that a device is available in a round; 1 by default."""
    availability_persistence: float | None = None
    """Probability that a device keeps its state of the round before; else it is drawn anew."""
    upload_failure: float | None = None
    """Probability that an upload fails."""
    tiers: str | None = None
    """Unequal devices.
    hardware: older, the scenario's own, and newer ones; phones: of measured speeds."""
    rounds: int | None = None
    """Number of rounds; by default that of the scenario."""
    num_devices: int | None = None
    """Number of devices, N; by default that of the scenario.
    They share out all its samples, where it gives one number of samples for all."""
    cohort_size: int | None = None
    """Number of devices drawn in a round, K; by default that of the scenario."""
    mu: float | None = None
    """Scale factor of lambda, the weight of the sampling error; by default that of the scenario."""
    nu: float | None = None
    """Scale factor of V, the weight of the penalty; by default that of the scenario."""

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
            devices = given.pop("num_devices", None)
            scenario = Scenario.load(self.scenario, num_devices=devices).replace(**given)
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


# The extra that installs a package.
_EXTRAS = {
    "cvxpy": "reference",
    "pygame": "render",
    "ray": "cluster",
    "sklearn": "train",
    "stable_baselines3": "rl",
    "tensorboard": "rl",
    "torch": "train",
    "torchvision": "train",
}


def _with_extra(error: ModuleNotFoundError) -> str:
    """What to install, where Python itself says no more than that a package is missing."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return str(error)
    extra = _EXTRAS[package]
    return (
        f"this needs the package {package}: install the extra `{extra}`, "
        f'for example by pip install -e ".[{extra}]"'
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
        told = _with_extra(error) if isinstance(error, ModuleNotFoundError) else str(error)
        console.print(Text(f"error: {told}", style="bold red"), soft_wrap=True)
        sys.exit(1 if isinstance(error, JobsFailedError) else 2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        message = Text(f"error: {_full_disk(error)}", style="bold red")
        console.print(message, soft_wrap=True)
        sys.exit(1)
    except (KeyboardInterrupt, SystemError) as error:
        if not is_interrupt(error):
            raise
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

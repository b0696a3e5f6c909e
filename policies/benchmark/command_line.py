"""Errors of commands in one line, and tables that are printed whole."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from fl_edge_env.files import NO_ROOM, in_bytes
from policies.benchmark.console import PlainConsole
from policies.benchmark.runner import JobsFailedError, WorkerKilledError, is_interrupt

# The extra that installs a package.
_EXTRAS = {
    "cvxpy": "reference",
    "ray": "cluster",
    "sklearn": "train",
    "stable_baselines3": "rl",
    "tensorboard": "rl",
    "torch": "train",
    "torchvision": "train",
}


def _with_extra(error: ModuleNotFoundError) -> str:
    """The extra to install, where Python itself says no more than that a package is missing."""
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

    The status is 2 for wrong input or a missing package, and 1 for failed runs, a killed worker or
    a full disk. An interrupt is a `KeyboardInterrupt`, whatever compiled functions make of it.
    """
    try:
        yield
    except (ValueError, ModuleNotFoundError, JobsFailedError, WorkerKilledError) as error:
        told = _with_extra(error) if isinstance(error, ModuleNotFoundError) else str(error)
        console.print(f"error: {told}", style="bold red", highlight=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, RuntimeError) else 2)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        message = f"error: {_full_disk(error)}"
        if error.filename is None:  # it may be what is printed to that has no room
            console = PlainConsole(stderr=True)
        console.print(message, style="bold red", highlight=False, soft_wrap=True)
        sys.exit(1)
    except SystemError as error:
        if not is_interrupt(error):
            raise
        raise KeyboardInterrupt from error


def _full_disk(error: OSError) -> str:
    """The message where there is no room for a file, which writing to a stream does not name."""
    told = "no room for a file"
    if error.filename:
        place = Path(os.fsdecode(error.filename)).resolve()
        disk = next(path for path in (place, *place.parents) if os.path.ismount(path))
        free = in_bytes(shutil.disk_usage(disk).free)
        told = f"no room for {str(error.filename)!r}: of the disk at {str(disk)!r} {free} are free"
    return f"{told}; make room and give the same command again, which goes on from what is finished"


def print_whole(table: Table, console: Console) -> None:
    """Print a table so that no number is cut off, however narrow the terminal."""
    whole = Measurement.get(console, console.options.update(width=1000), table).maximum
    PlainConsole(width=max(console.width, whole)).print(table)

"""Errors of commands in one line, and tables that are printed whole."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from policies.benchmark.runner import JobsFailedError, is_interrupt

# The extra that installs a package.
_EXTRAS = {
    "cvxpy": "reference",
    "optuna": "train",
    "pygame": "render",
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

    The status is 2 for wrong input or a missing package, 1 for failed runs or a full disk, and
    130 for an interrupt.
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
    """The message where there is no room for a file."""
    where = Path(error.filename).parent if error.filename else Path.cwd()
    free = shutil.disk_usage(where if where.exists() else Path.cwd()).free / 2**20
    return (
        f"no room for {str(error.filename or 'a file')!r}: {free:.0f} MiB are free there; "
        "make room and give the same command again, which goes on from what is finished"
    )


def print_whole(table: Table, console: Console) -> None:
    """Print a table so that no number is cut off, however narrow the terminal."""
    whole = Measurement.get(console, console.options.update(width=1000), table).maximum
    Console(width=max(console.width, whole)).print(table)

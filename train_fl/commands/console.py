"""One-line errors of commands, and tables that are printed whole."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from policies.benchmark.run import Run
from policies.benchmark.runner import RunsFailedError, WorkerKilledError, is_interrupt
from policies.solvers.waits import console_options

# The extras that install packages whose import error names no remedy.
_EXTRAS = {"stable_baselines3": "rl", "torch": "train"}


@contextmanager
def errors_in_one_line(given: Sequence[str]) -> Iterator[None]:
    """End the program of this command line with a message on standard error, not a traceback.

    The status is 1 for failed runs, a killed worker or a full disk, and 2 for wrong input, a
    missing package or an unusable path. Compiled functions turn an interrupt into a `SystemError`;
    here it becomes a `KeyboardInterrupt` again.
    """
    try:
        yield
        return
    except (RunsFailedError, WorkerKilledError) as error:
        message = str(error)
        again = repeating(given, error) if isinstance(error, RunsFailedError) else ""
        message += f"\nTo repeat the first:\n{again}" if again else ""
        status = 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        message = str(error)
        status = 2
        extra = _EXTRAS.get(package)
        if extra:
            message = (
                f"this needs the package {package}: install the extra `{extra}`, "
                f'for example by pip install -e ".[{extra}]"'
            )
    except ValueError as error:
        message = str(error)
        status = 2
    except LostOutputError:  # which the program itself reports
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        after = ". Make room and rerun the command to resume" if full else ""
        path = "" if error.filename is None else f"{os.fsdecode(error.filename)!r}: "
        message = f"{path}{error.strerror or error}{after}"
        status = 1 if full else 2
    except SystemError as error:
        if not is_interrupt(error):
            raise
        raise KeyboardInterrupt from error
    console = progress_console()
    console.print(f"error: {message}", style="bold red", highlight=False, soft_wrap=True)
    sys.exit(status)


def repeating(given: Sequence[str], error: RunsFailedError) -> str:
    """The command that repeats the first failed run of a comparison; empty for other commands."""
    run = error.failures[0][0]
    if given[0] != "compare" or not isinstance(run, Run) or run.text is None:
        return ""
    seeds = ["--seeds", str(len(run.seeds)), "--first-seed", str(run.seeds[0])]
    own = ["--policies", run.text.name, *seeds]
    dropped = {*own, "--out", "--overwrite"}
    words = []
    keep = True
    for word in given[1:]:
        if word.startswith("--"):
            keep = word.partition("=")[0].replace("_", "-") not in dropped
        words += [word] if keep else []
    return shlex.join(["fl-edge", "compare", *words, *own])


class LostOutputError(OSError):
    """Standard output cannot be written: nobody reads it, or the disk is full."""


class _Stream:
    """A standard stream. Lost messages and progress do no harm, but lost tables do."""

    def __init__(self, file: IO[str], *, needed: bool) -> None:
        self._file = file
        self._needed = needed

    def write(self, text: str) -> int:
        with self._losses():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with self._losses():
            self._file.flush()

    @contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._needed:
                raise LostOutputError(error.errno, error.strerror) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def output_console(width: int | None = None) -> Console:
    """Standard output, for tables; `LostOutputError` if it cannot be written."""
    file = cast("IO[str]", _Stream(sys.stdout, needed=True))
    return Console(file=file, markup=False, emoji=False, width=width, **console_options())


def progress_console() -> Console:
    """Standard error, for messages and progress: standard output is for tables."""
    file = cast("IO[str]", _Stream(sys.stderr, needed=False))
    return Console(file=file, markup=False, emoji=False, **console_options())


def print_whole(table: Table, notes: Sequence[str], console: Console) -> None:
    """Print a table with its notes; a narrow terminal cuts off no number."""
    whole = Measurement.get(console, console.options.update(width=1000), table).maximum
    output_console(max(console.width, whole)).print(table)
    for note in notes:
        console.print(note, highlight=False)

"""One-line errors of commands, and tables that are printed whole."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from fl_edge_env.files import reason
from policies.benchmark.runner import RunsFailedError, WorkerKilledError, is_interrupt
from policies.report.tables import table_width
from policies.solvers.waits import console_options

# The extras that install packages whose import error names no remedy.
_EXTRAS = {"ray": "cluster", "stable_baselines3": "rl", "torch": "train"}


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the program with a message on standard error, not a traceback.

    The status is 1 for failed runs, a killed worker or a full disk, and 2 for wrong input, a
    missing package or an unusable path.
    """
    status = 2
    try:
        yield
        return
    except (RunsFailedError, WorkerKilledError) as error:
        message = str(error)
        status = 1
    except ModuleNotFoundError as error:
        message = str(error)
        if error.name in _EXTRAS:
            extra = _EXTRAS[error.name]
            message += f': install the extra `{extra}`, for example by pip install -e ".[{extra}]"'
    except ValueError as error:
        message = str(error)
    except OSError as error:
        if error.errno and error.filename is None:
            raise  # it is not about a path, but mostly about standard output
        message = reason(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            status = 1
    except SystemError as error:  # which compiled functions make of Ctrl-C
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    console = progress_console()
    console.print(f"error: {message}", style="bold red", highlight=False, soft_wrap=True)
    sys.exit(status)


class _Console(Console):
    """A console that leaves a closed pipe to the program, which ends as shells expect."""

    def on_broken_pipe(self) -> None:
        raise  # the error that is being handled


def output_console(width: int | None = None) -> Console:
    """Standard output, for tables."""
    return _Console(markup=False, emoji=False, width=width, **console_options())


def progress_console() -> Console:
    """Standard error, for messages and progress: standard output is for tables."""
    return _Console(stderr=True, markup=False, emoji=False, **console_options())


def print_whole(table: Table, notes: Sequence[str], console: Console) -> None:
    """Print a table with its notes; a narrow terminal cuts off no number."""
    output_console(max(console.width, table_width(table))).print(table)
    for note in notes:
        console.print(note, highlight=False)

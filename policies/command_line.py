"""What the programs in `examples` share: a progress bar over jobs, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from policies.experiment import Backend, Job, JobsFailedError, run_jobs


@contextmanager
def errors_in_one_line(console: Console) -> Iterator[None]:
    """End the program with a message, not a traceback.

    The status is 2 for wrong input or a missing package, and 1 for failed runs.

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


def run_with_progress(
    title: str,
    jobs: Sequence[Job],
    *,
    folder: Path,
    workers: int,
    backend: Backend,
    address: str | None,
    checkpoint_every: int,
    console: Console,
) -> list[pd.DataFrame]:
    """Run jobs with a bar that tells how many are finished and how long the rest may take.

    Parameters
    ----------
    title : str
        Stands before the bar.
    jobs, folder, workers, backend, address, checkpoint_every
        As in `policies.experiment.run_jobs`.
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

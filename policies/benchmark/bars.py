"""Progress bars on a terminal for everything that takes long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from policies.benchmark.episode import Episodes
from policies.benchmark.jobs import Work
from policies.benchmark.runner import run_jobs
from policies.progress import listening


class _Bars:
    """A bar for each piece of work, which is there as long as the work lasts."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Draw how far a piece of work has come; see `policies.progress.Listener`."""
        if self._progress is None:
            columns = (
                SpinnerColumn("line"),  # in ASCII, as not every terminal knows more
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left:"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._bars[what], completed=done)
        if done >= total:
            self._progress.remove_task(self._bars.pop(what))
            if not self._bars:
                self.stop()

    def stop(self) -> None:
        """Leave the terminal to others."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._bars.clear()


@contextmanager
def bars_shown(console: Console) -> Iterator[None]:
    """Show on a terminal how far the computations of the block have come; nothing of it stays."""
    if not console.is_terminal:
        yield
        return
    bars = _Bars(console)
    try:
        with listening(bars):
            yield
    finally:
        bars.stop()


def run_with_progress(
    title: str,
    jobs: Sequence[Work],
    *,
    console: Console,
    transient: bool = False,
    folder: Path | None = None,
    workers: int = 1,
    **options: Any,
) -> list[Episodes]:
    """Run jobs with a bar that tells how much is done and how long the rest may take.

    A transient bar goes when all jobs are finished; see `policies.benchmark.runner.run_jobs`.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[finished]}/{task.fields[jobs]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    nowhere = transient and not console.is_terminal  # it would leave empty lines
    progress = Progress(*columns, console=console, transient=transient, disable=nowhere)
    # One display at a time: of what runs here, and not in a worker, nothing else is shown.
    with progress, listening(None):
        bar = progress.add_task(title, total=len(jobs), jobs=len(jobs), finished=0)
        finished = 0

        def finish(_: Work) -> None:
            nonlocal finished
            finished += 1
            progress.update(bar, finished=finished)
            move(0.0)

        def move(running: float) -> None:
            done = max(progress.tasks[0].completed, finished + running)
            progress.update(bar, completed=min(done, len(jobs)))

        watched = console.is_terminal
        return run_jobs(
            jobs,
            folder=folder,
            workers=workers,
            on_finish=finish,
            on_progress=move if watched else None,
            **options,
        )

"""Progress of jobs that run in other processes."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fl_edge_env.files import held, is_abandoned
from fl_edge_env.typing import FloatArray
from policies.progress import Listener

# Time between two looks at how far the jobs have come [s].
_LOOK_EVERY = 0.25


@dataclass(frozen=True)
class JobsBoard:
    """A file in which every job notes how much of it is done; without a path nothing is noted.

    Workers write to it without waiting for each other, and a worker on another machine, where
    there is no such file, writes nothing. The file has a float64 for each job: the share done.
    """

    path: Path | None
    num_jobs: int

    def done(self) -> float:
        """Progress of the jobs that run, in jobs."""
        shares = self._shares()
        return 0.0 if shares is None else float(np.sum(shares))

    def clear(self, index: int) -> None:
        """Forget a job that is finished, by its place among all."""
        if (shares := self._shares()) is not None:
            shares[index] = 0.0

    def listener(self, index: int, parts: int) -> Listener | None:
        """A listener that notes how far a job of so many pieces of work has come."""
        shares = self._shares()
        if shares is None:
            return None
        outermost: list[str] = []
        finished = 0

        def note(what: str, done: int, total: int) -> None:
            nonlocal finished
            if what != (outermost or [what])[0]:  # a piece of work inside another
                return
            outermost[:] = [what]
            shares[index] = min((finished + done / max(total, 1)) / parts, 1.0)
            if done >= total:
                finished += 1
                outermost.clear()

        return note

    def _shares(self) -> FloatArray | None:
        if self.path is None:
            return None
        try:
            return np.memmap(self.path, dtype=np.float64, mode="r+", shape=(self.num_jobs,))
        except (OSError, ValueError):  # not there, or not written whole
            return None


@contextmanager
def watched(num_jobs: int, on_progress: Callable[[float], None] | None) -> Iterator[JobsBoard]:
    """A board for the jobs of the block, and a thread that tells `on_progress` what it says."""
    if on_progress is None:
        yield JobsBoard(None, num_jobs)
        return
    prefix = "fl-edge-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*/board"):
        if is_abandoned(left):  # by a process that was killed
            shutil.rmtree(left.parent, ignore_errors=True)
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        board = JobsBoard(Path(stack.enter_context(folder)) / "board", num_jobs)
        with suppress(OSError):  # without room for it nobody is told, and the jobs run
            np.zeros(num_jobs).tofile(board.path)  # type: ignore[arg-type]
            stack.enter_context(held(board.path))  # type: ignore[arg-type]
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_EVERY):
                on_progress(board.done())

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield board
        finally:
            over.set()
            watcher.join()

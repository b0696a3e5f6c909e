"""Compiling the solvers with numba, and sharing out rows among the processor's cores.

Nothing here imports numba before a file of compiled functions is imported, which the solvers do
when they are first called.

Numba caches an `entry` by the date of the file it stands in: after a change of a compiled function
in another file, change the file of the entry too, or remove its ``__pycache__``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from threading import Timer
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Devices times rows that are worth a thread of their own: about half a millisecond.
_WORTH_A_THREAD = 4000
# Seconds of compiling before the terminal says so.
_PATIENCE_S = 2.0

_most_threads: list[int] = []


def compiled(function: F) -> F:
    """A function that other compiled functions call.

    Division by zero gives inf as in numpy, which lets the compiler use vector instructions.
    """
    from numba import njit

    return njit(error_model="numpy")(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """A compiled function that stands where it is called: a call with arrays takes 10 ns."""
    from numba import njit

    return njit(error_model="numpy", inline="always")(function)  # type: ignore[no-any-return]


def entry(function: F) -> F:
    """A compiled function that Python calls, with `run_rows`; cached on disk if it can be."""
    from numba import njit

    _listen()
    options = {"error_model": "numpy", "nogil": True}
    try:
        return njit(**options, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's can be written
        _tell_no_cache()
        return njit(**options)(function)  # type: ignore[no-any-return]


def run_rows(function: Callable[..., None], rows: int, size: int, *arguments: object) -> None:
    """Call ``function(start, stop, *arguments)`` for all rows, in parts where it is worth threads.

    ``size`` is the number of devices of a row.
    """
    parts = min(rows, rows * size // _WORTH_A_THREAD)
    if parts > 1:
        parts = min(parts, _most_threads[-1] if _most_threads else _cores())
    if parts <= 1:
        function(0, rows, *arguments)
        return
    ends = [rows * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [
            pool.submit(function, start, stop, *arguments) for start, stop in pairwise(ends[1:])
        ]
        function(0, ends[1], *arguments)
    for other in others:
        other.result()


@contextmanager
def solver_threads(number: int) -> Iterator[None]:
    """At most so many threads for the solvers within the block."""
    _most_threads.append(number)
    try:
        yield
    finally:
        _most_threads.pop()


def _cores() -> int:
    """Cores that the solvers may use: ``NUMBA_NUM_THREADS``, or those of the process."""
    number = os.environ.get("NUMBA_NUM_THREADS", "")
    if number.isdigit() and int(number) > 0:
        return int(number)
    affinity = getattr(os, "sched_getaffinity", None)  # where the system has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@lru_cache
def _listen() -> None:
    """Have numba's compiling announced."""
    from numba.core import event

    class Announcer(event.Listener):  # type: ignore[misc]
        """Starts a timer with the outermost compiling, which nothing but its end stops."""

        depth = 0

        def on_start(self, event: object) -> None:  # noqa: ARG002
            if self.depth == 0:
                self.timer = Timer(_PATIENCE_S, _announce)
                self.timer.daemon = True
                self.timer.start()
            self.depth += 1

        def on_end(self, event: object) -> None:  # noqa: ARG002
            self.depth -= 1
            if self.depth == 0:
                self.timer.cancel()

    event.register("numba:compile", Announcer())


@lru_cache
def _announce() -> None:
    """Tell the terminal, if there is one, once in a process."""
    if sys.stderr is not None and sys.stderr.isatty():
        print("compiling the solvers, once for this installation …", file=sys.stderr)


@lru_cache
def _tell_no_cache() -> None:
    """Tell once, and not in each worker, why every start will take long."""
    if sys.stderr is not None and multiprocessing.current_process().name == "MainProcess":
        print(
            "compiled solvers cannot be kept, and are compiled anew by each process: set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            file=sys.stderr,
        )

"""Compile the solvers with numba, and split rows among the processor's cores.

numba is imported with the first file of compiled functions, which happens when a solver is first
called.

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
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Devices times rows that are worth another thread: about half a millisecond.
_WORTH_A_THREAD = 4000

_most_threads: list[int] = []


# Division by zero gives inf as in numpy, which lets the compiler use vector instructions. Python
# calls entries alone: what it would need to call the others takes a second to compile.
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}
_INNER = _OPTIONS | {"no_cpython_wrapper": True}


def compiled(function: F) -> F:
    """Compile a function that other compiled functions call."""
    from numba import njit

    return njit(**_INNER)(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Compile a function in the place of each call: a call with arrays takes 10 ns."""
    from numba import njit

    return njit(**_INNER, inline="always")(function)  # type: ignore[no-any-return]


def entry(function: F) -> F:
    """Compile a function that Python calls through `run_rows`; kept on disk if possible."""
    from numba import njit

    _listen()
    try:
        return njit(**_OPTIONS, nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's can be written
        _report_no_cache()
        return njit(**_OPTIONS, nogil=True)(function)  # type: ignore[no-any-return]


def run_rows(function: Callable[..., None], rows: int, size: int, *arguments: object) -> None:
    """Call ``function(begin, end, *arguments)`` for all rows, in threads if that pays.

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
    """Limit the solvers' threads within the block."""
    _most_threads.append(number)
    try:
        yield
    finally:
        _most_threads.pop()


def _cores() -> int:
    """Count the cores that the solvers may use: ``NUMBA_NUM_THREADS``, or the process's."""
    number = os.environ.get("NUMBA_NUM_THREADS", "")
    if number.isdigit() and int(number) > 0:
        return int(number)
    affinity = getattr(os, "sched_getaffinity", None)  # where the system has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@lru_cache
def _listen() -> None:
    """Have the compilation of the solvers announced."""
    from numba.core import event

    class Announcer(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__.startswith("policies."):
                _announce()

        def on_end(self, event: object) -> None:
            pass

    event.register("numba:compile", Announcer())


@lru_cache
def _announce() -> None:
    """Say once in a process, on a terminal, why the first decision takes seconds."""
    if sys.stderr is not None and sys.stderr.isatty():
        print("compiling the solvers, once for this installation …", file=sys.stderr)


@lru_cache
def _report_no_cache() -> None:
    """Say once, and not in each worker, why every start takes seconds."""
    if sys.stderr is not None and multiprocessing.current_process().name == "MainProcess":
        print(
            "compiled solvers cannot be kept, and are compiled anew by each process: set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            file=sys.stderr,
        )

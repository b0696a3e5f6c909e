"""Compile the solvers with numba, which is imported when a solver is first called."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import current_process
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions. Python
# calls only entries: wrappers to call the other functions would take a second to compile.
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}
# All files with compiled functions.
_FILES = [
    file
    for folder in ("solvers", "p2", "outcome")
    for file in sorted((Path(__file__).parents[1] / folder).glob("*.py"))
]


def compiled(function: F, **options: Any) -> F:
    """Compile a function that other compiled functions call."""
    compiler: Callable[[F], F] = njit(**_OPTIONS, no_cpython_wrapper=True, **options)
    return compiler(function)


# LLVM inlines the function at each call, because a call with arrays takes 10 ns.
inlined = partial(compiled, forceinline=True)
# Merges the function into its only caller, which compiles faster than both.
merged = partial(compiled, inline="always")

# Seconds after which a terminal shows that the solvers are being compiled.
_PATIENCE = 2.0


@cache
def _announce() -> None:
    """Print once on a terminal why this takes long; among several workers, only in the first."""
    if current_process().name in ("MainProcess", "LokyProcess-1") and sys.stderr.isatty():
        # Wide enough to cover another process's progress bar.
        note = "\rcompiling the solvers takes some seconds, once after installing".ljust(80)
        print(note, file=sys.stderr)


@contextmanager
def _compiling() -> Iterator[None]:
    """Announce a long wait; compile without garbage collection, which takes a tenth of the time."""
    timer, collects = Timer(_PATIENCE, _announce), gc.isenabled()
    timer.start()
    gc.disable()
    try:
        yield
    finally:
        timer.cancel()
        if collects:
            gc.enable()


def entry(function: F) -> F:
    """Compile a function that Python calls through `Rounds.run`; cached on disk if possible."""
    try:
        kept = njit(**_OPTIONS, nogil=True, cache=True)(function)
        kept.compile = _compiling()(kept.compile)
        # Numba checks only the entry's own file, and would miss changes to other files.
        index = kept._cache._cache_file
        changed = [(file.stat().st_mtime, file.stat().st_size) for file in _FILES]
        index._source_stamp = index._source_stamp, changed
        return kept  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's is writable
        warnings.warn(
            "compiled solvers cannot be cached, so each process compiles them again: set "
            "NUMBA_CACHE_DIR to a writable folder",
            stacklevel=1,  # this line: warn once per process
        )
        return njit(**_OPTIONS, nogil=True)(function)  # type: ignore[no-any-return]

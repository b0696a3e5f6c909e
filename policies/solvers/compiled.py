"""Compile the solvers with numba, which is imported when a solver is first called."""

from __future__ import annotations

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
# calls entries alone: what it would need to call the others takes a second to compile.
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


# LLVM puts the function in the place of each call: a call with arrays takes 10 ns.
inlined = partial(compiled, forceinline=True)
# Makes the function a part of its only caller, which is faster to compile than both.
merged = partial(compiled, inline="always")

# Seconds after which a terminal shows that the solvers are being compiled.
_PATIENCE = 2.0


@cache
def _announce() -> None:
    """Say on a terminal, once, what is waited for; of several workers only the first does so."""
    if current_process().name in ("MainProcess", "LokyProcess-1") and sys.stderr.isatty():
        # Wide enough to cover the bar that other processes draw.
        note = "\rcompiling the solvers takes some seconds, once after installing".ljust(80)
        print(note, file=sys.stderr)


@contextmanager
def _announced() -> Iterator[None]:
    timer = Timer(_PATIENCE, _announce)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def entry(function: F) -> F:
    """Compile a function that Python calls through `Rounds.run`; kept on disk if possible."""
    try:
        kept = njit(**_OPTIONS, nogil=True, cache=True)(function)
        kept.compile = _announced()(kept.compile)
        # Numba goes by the entry's own file, and would keep what other files have changed.
        index = kept._cache._cache_file
        changed = [(file.stat().st_mtime, file.stat().st_size) for file in _FILES]
        index._source_stamp = index._source_stamp, changed
        return kept  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's can be written
        warnings.warn(
            "compiled solvers cannot be kept, and are compiled anew by each process: set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            stacklevel=1,  # of this line: once in a process
        )
        return njit(**_OPTIONS, nogil=True)(function)  # type: ignore[no-any-return]

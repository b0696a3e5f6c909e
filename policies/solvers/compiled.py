"""Compile the solvers with numba.

numba is imported with the first file of compiled functions, which happens when a solver is first
called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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


def compiled(function: F, **options: str) -> F:
    """Compile a function that other compiled functions call."""
    from numba import njit

    compiler: Callable[[F], F] = njit(**_OPTIONS, no_cpython_wrapper=True, **options)
    return compiler(function)


# Compiles a function in the place of each call: a call with arrays takes 10 ns.
inlined = partial(compiled, inline="always")


def entry(function: F) -> F:
    """Compile a function that Python calls through `Rounds.run`; kept on disk if possible."""
    from numba import njit

    try:
        kept = njit(**_OPTIONS, nogil=True, cache=True)(function)
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

"""Compile the solvers with numba, and split rows among the processor's cores.

numba is imported with the first file of compiled functions, which happens when a solver is first
called.

Numba caches an `entry` by the date of the file it stands in: after a change of a compiled function
in another file, change the file of the entry too, or remove its ``__pycache__``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Devices times rows that are worth another thread: about half a millisecond.
_WORTH_A_THREAD = 4000

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions. Python
# calls entries alone: what it would need to call the others takes a second to compile.
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: F, **options: str) -> F:
    """Compile a function that other compiled functions call."""
    from numba import njit

    compiler: Callable[[F], F] = njit(**_OPTIONS, no_cpython_wrapper=True, **options)
    return compiler(function)


# Compiles a function in the place of each call: a call with arrays takes 10 ns.
inlined = partial(compiled, inline="always")


def entry(function: F) -> F:
    """Compile a function that Python calls through `run_rows`; kept on disk if possible."""
    from numba import njit

    try:
        return njit(**_OPTIONS, nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's can be written
        warnings.warn(
            "compiled solvers cannot be kept, and are compiled anew by each process: set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            stacklevel=1,  # of this line: once in a process
        )
        return njit(**_OPTIONS, nogil=True)(function)  # type: ignore[no-any-return]


def run_rows(function: Callable[..., None], rows: int, size: int, *arguments: object) -> None:
    """Call ``function(begin, end, *arguments)`` for all rows, in threads if that pays.

    ``size`` is the number of devices of a row.
    """
    parts = min(rows, rows * size // _WORTH_A_THREAD)
    if parts > 1:
        from numba import config

        parts = min(parts, config.NUMBA_NUM_THREADS)  # fewer in the workers of joblib
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

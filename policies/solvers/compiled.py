"""Compile the solvers with numba, which is imported when a solver is first called."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from numba import __version__, config, njit

from fl_edge_env.allocation import LEAST_Q
from fl_edge_env.files import user_cache, writable_folder
from policies.solvers.waits import announced

F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions. Python
# calls only entries: wrappers to call the other functions would take a second to compile.
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: F, **options: Any) -> F:
    """Compile a function that other compiled functions call."""
    return njit(**_OPTIONS, no_cpython_wrapper=True, **options)(function)


# LLVM inlines the function at each call, because a call with arrays takes 10 ns.
inlined = partial(compiled, forceinline=True)
# Merges the function into its only caller, which compiles faster than both.
merged = partial(compiled, inline="always")


def _cache_folder() -> Path | None:
    """A folder for compiled solvers, named by what they depend on; None if it is not writable.

    numba itself notices only changes of the file that an entry is in, not of those that it calls.
    """
    digest = hashlib.blake2b(repr((__version__, LEAST_Q)).encode(), digest_size=8)
    for folder in ("outcome", "p2", "solvers"):
        for path in sorted(Path(__file__).parents[1].glob(f"{folder}/*.py")):
            digest.update(path.read_bytes())
    try:
        return writable_folder(
            Path(config.CACHE_DIR or user_cache(), f"solvers-{digest.hexdigest()}")
        )
    except ValueError as error:
        warnings.warn(
            f"{error}. Each process compiles the solvers: set NUMBA_CACHE_DIR to a writable folder",
            stacklevel=1,
        )
        return None


_FOLDER = _cache_folder()


def entry(function: F) -> F:
    """Compile a function that Python calls through `Rounds.run`; cached on disk if possible."""
    others = config.CACHE_DIR
    config.CACHE_DIR = str(_FOLDER)  # numba reads it when it decorates a function
    kernel = njit(**_OPTIONS, nogil=True, cache=_FOLDER is not None)(function)
    config.CACHE_DIR = others
    ready = False

    def called(*arguments: Any) -> Any:
        nonlocal ready
        if ready:
            return kernel(*arguments)
        what = "compiling the solvers takes some seconds, once after installing"
        with announced(what, so_far=lambda: kernel.stats.cache_misses):
            try:
                return kernel(*arguments)
            except SystemError:  # from Ctrl-C
                raise
            except Exception:  # a damaged file can raise anything
                if _FOLDER is None:
                    raise
                warnings.warn(
                    f"the cache of compiled solvers, '{_FOLDER}', is damaged or full: solvers are "
                    "compiled again",
                    stacklevel=1,
                )
                shutil.rmtree(_FOLDER, ignore_errors=True)
                return kernel(*arguments)
            finally:
                ready = True

    return called  # type: ignore[return-value]

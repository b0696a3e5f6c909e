"""Compile the solvers with numba, which is imported when a solver is first called."""

from __future__ import annotations

import gc
import hashlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from numba import __version__, njit
from numba.core.serialize import dumps

from fl_edge_env.files import atomic_path
from policies.solvers.waits import announced

F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions. Python
# calls only entries: wrappers to call the other functions would take a second to compile.
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: F, **options: Any) -> F:
    """Compile a function that other compiled functions call."""
    compiler: Callable[[F], F] = njit(**_OPTIONS, no_cpython_wrapper=True, **options)
    return compiler(function)


# LLVM inlines the function at each call, because a call with arrays takes 10 ns.
inlined = partial(compiled, forceinline=True)
# Merges the function into its only caller, which compiles faster than both.
merged = partial(compiled, inline="always")


@contextmanager
def _compiling() -> Iterator[None]:
    """Announce a long wait; compile without garbage collection, a tenth of the compile time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with announced("compiling the solvers takes some seconds, once after installing"):
            yield
    finally:
        if collects:
            gc.enable()


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@cache
def _loaded(function: Any) -> str:
    """A digest of the code and constants of a function and of the compiled functions it calls.

    They are read from memory, because a file may have changed since it was imported.
    """
    code = function.__code__
    parts = [code.co_code, code.co_consts, code.co_names]
    for name in code.co_names:
        value = function.__globals__.get(name)
        if hasattr(value, "py_func"):
            parts += value.targetoptions, _loaded(value.py_func)
        else:
            parts += value, getattr(value, "_fields", None)  # the fields of named tuples
    return _digest(parts)


class _Kept:
    """Compiled code on disk, in a file for each function, signature, processor and loaded code.

    It replaces numba's files: an index and numbered files, which do not belong together after a
    copy, and would go by the time of the entry's own file alone.
    """

    def __init__(self, folder: Path, name: str, function: Any) -> None:
        self._folder = folder
        self._name = name
        self._state = f"{__version__}-{_loaded(function)}"

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._name}.{self._state}.{_digest(key)}.nbc"

    def load(self, key: object) -> Any:
        """The code of a key, or None; `ValueError` if its file is damaged."""
        path = self._path(key)
        if not path.exists():
            return None
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            raise ValueError(f"{path.name} is damaged")
        return pickle.loads(content[32:])

    def save(self, key: object, code: Any) -> None:
        """Keep the code of a key, and remove that of earlier sources."""
        content = dumps(code)
        with atomic_path(self._path(key)) as temporary:
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
        for other in self._folder.glob(f"{self._name}.*.nbc"):
            if self._state not in other.name:
                other.unlink(missing_ok=True)


def _or_compiles(use: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Turn any error of the cache into a warning: numba then compiles."""

    def tried(*arguments: Any) -> Any:
        try:
            return use(*arguments)
        except Exception:  # a damaged file can raise anything
            _warn(f"the cache of compiled solvers, '{folder}', is damaged, full or read-only")

    return tried


@cache
def _warn(what: str) -> None:
    """Warn once that solvers are compiled again."""
    warnings.warn(
        f"{what}. Solvers are compiled again: if this repeats, empty the folder, or set "
        "NUMBA_CACHE_DIR to a writable one",
        stacklevel=1,
    )


def entry(function: F) -> F:
    """Compile a function that Python calls through `Rounds.run`; cached on disk if possible."""
    try:
        made: Any = njit(**_OPTIONS, nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's is writable
        _warn("there is no folder for a cache of compiled solvers")
        return njit(**_OPTIONS, nogil=True)(function)  # type: ignore[no-any-return]
    made.compile = _compiling()(made.compile)
    # Numba has no public way to change how its cache works: pyproject.toml bounds its version.
    cached = made._cache
    folder = Path(cached.cache_path)
    cached._cache_file = _Kept(folder, cached._impl.filename_base, function)
    cached.load_overload = _or_compiles(cached.load_overload, folder)
    cached.save_overload = _or_compiles(cached.save_overload, folder)
    return made  # type: ignore[no-any-return]

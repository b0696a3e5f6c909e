"""User-defined policies, data sets and networks, loaded by file or module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import reason, user_path
from policies.global_random import seeded
from policies.user_files import is_user_file

# Modules by their places.
_LOADED: dict[str, ModuleType] = {}


def is_reference(name: str) -> bool:
    """Whether a name has the form ``my_file.py:MyPolicy`` or ``my_module:MyPolicy``."""
    place, _, what = name.rpartition(":")
    module = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return module and what.isidentifier()


def load_reference(name: str, *, kind: str, bases: tuple[type, ...] = ()) -> Any:
    """Load the object named ``my_file.py:MyPolicy`` or ``my_module:MyPolicy``.

    `ValueError` if it is missing, cannot be imported, or is no `kind`: a subclass of one of the
    `bases`, or without them a function or a class.
    """

    def fits(value: object) -> bool:
        if not bases:
            return callable(value)
        return isinstance(value, type) and issubclass(value, bases) and value not in bases

    place, _, wanted = name.rpartition(":")
    module = loaded(place)
    if not hasattr(module, wanted):
        known = [name for name, value in vars(module).items() if fits(value)]
        raise ValueError(f"{place!r} has no {wanted!r}{did_you_mean(wanted, known)}")
    found = getattr(module, wanted)
    if not fits(found):
        raise ValueError(f"{wanted} in {place!r} must be a {kind}, got {found!r}")
    return found


@contextmanager
def user_errors(before: str) -> Iterator[None]:
    """Raise each exception of user code as a one-line `ValueError` that begins with `before`.

    User code may change to its own folder, which does not last.
    """
    try:
        with chdir("."):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code can raise anything, `SystemExit` included
        kind = type(error).__name__
        raise ValueError(f"{before}: {kind}: {reason(error)}{place_of(error)}") from error


def place_of(error: BaseException | None) -> str:
    """The place in the user's code that raised an error or its cause, in brackets, or empty."""
    place = ""
    while error is not None and not place:
        for frame, line in traceback.walk_tb(error.__traceback__):
            # Functions that cloudpickle has sent know their file only by their globals.
            file = frame.f_globals.get("__file__", frame.f_code.co_filename)
            if is_user_file(file):
                place = f" ({file}:{line} in {frame.f_code.co_name})"
        error = error.__cause__
    return place


def loaded_places() -> list[str]:
    """The files and modules that `load_reference` has loaded, for `load_places`."""
    return [*_LOADED]


def load_places(places: Iterable[str]) -> None:
    """Load them in another process, before it gets objects of their classes; prints nothing."""
    for place in places:
        with redirect_stdout(None):
            loaded(place)


def loaded(place: str) -> ModuleType:
    """The module of a file, or of the name of a module, which is loaded once."""
    is_file = place.endswith(".py")
    path = user_path(place).resolve()
    if is_file and not path.is_file():
        raise ValueError(f"the file {place!r} does not exist")
    known = str(path) if is_file else place
    if known not in _LOADED:
        folder = str(path.parent) if is_file else str(Path.cwd())
        if folder not in sys.path:  # imports also search there, last
            sys.path.append(folder)
        with user_errors(f"cannot import {place!r}"), seeded(0):
            _LOADED[known] = _run_file(path) if is_file else importlib.import_module(place)
    return _LOADED[known]


def _run_file(path: Path) -> ModuleType:
    # A unique name, so that a file random.py does not replace Python's module.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

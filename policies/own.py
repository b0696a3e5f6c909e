"""What users write (policies, data, networks), loaded by its file or module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import as_value_error, reason
from policies.base import Policy
from policies.selection import Selector

# What joblib sends work to its processes with: a package of its own since 1.6.
_PICKLERS = ("cloudpickle", "joblib.externals.cloudpickle")

# Modules that may be found here alone, so that processes are sent their code, not their name.
_LOADED: dict[str, ModuleType] = {}


def names_own(name: str) -> bool:
    """Whether a name has the form ``my_file.py:MyPolicy`` or ``my_module:MyPolicy``.

    Parameters
    ----------
    name : str
        The name of a policy, a data set or a network.
    """
    place, _, what = name.rpartition(":")
    module = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return module and what.isidentifier()


def load_own(name: str, *, kind: str, fits: Callable[[object], bool]) -> Any:
    """Import the file or module that a name tells, and give what it names there.

    Parameters
    ----------
    name : str
        ``path/to/my_file.py:name``, or ``my_module:name`` with a module that Python finds, also
        in the working directory.
    kind : str
        What it must be, for messages.
    fits : callable
        Whether an object is one.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        If it cannot be imported, there is nothing of that name in it, or it is something else.
    """
    place, _, wanted = name.rpartition(":")
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    if not hasattr(module, wanted):
        known = [name for name, value in vars(module).items() if fits(value)]
        raise ValueError(f"{place!r} has no {wanted!r}{did_you_mean(wanted, known)}")
    found = getattr(module, wanted)
    if not fits(found):
        raise ValueError(f"{wanted} in {place!r} must be a {kind}, got {found!r}")
    return found


def load_class(name: str) -> type[Policy] | type[Selector]:
    """The class of a policy or selector of one's own; see `load_own`.

    Parameters
    ----------
    name : str
        As for `load_own`.

    Raises
    ------
    ValueError
        If it cannot be imported, or is no subclass of `Policy` or `Selector`.
    """
    found: type[Policy] | type[Selector] = load_own(
        name,
        kind="subclass of Policy or Selector",
        fits=lambda value: (
            isinstance(value, type)
            and issubclass(value, (Policy, Selector))
            and value not in (Policy, Selector)
        ),
    )
    return found


@contextmanager
def running_own(before: str) -> Iterator[None]:
    """Raise whatever a function of the user's own raises as a `ValueError` of one line.

    It tells the kind of error and keeps its traceback, as the mistake is in the user's code.

    Parameters
    ----------
    before : str
        What the message begins with.
    """
    try:
        yield
    except Exception as error:  # what it can raise has no end
        raise ValueError(f"{before}: {type(error).__name__}: {reason(error)}") from error


def own_source(name: str) -> Path | None:
    """The file in which something of the user's own stands; None where that is not known.

    Parameters
    ----------
    name : str
        As for `load_own`.
    """
    place = name.rpartition(":")[0]
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def own_modules() -> list[ModuleType]:
    """The modules that were loaded for `load_own`, which other processes may not find."""
    return list(_LOADED.values())


def _load_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise ValueError(f"the file {place!r} does not exist")
    # A name of its own: a file random.py must not take the place of Python's.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in _LOADED:
        return _LOADED[name]
    _find_in(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with as_value_error(f"cannot import {place!r}: "):
            spec.loader.exec_module(module)
    except ValueError:
        del sys.modules[name]
        raise
    return _remember(module)


def _load_module(place: str) -> ModuleType:
    if place in _LOADED:
        return _LOADED[place]
    _find_in(Path.cwd())
    with as_value_error(f"cannot import {place!r}: "):
        return _remember(importlib.import_module(place))


def _find_in(folder: Path) -> None:
    """Let imports look into a folder too, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _remember(module: ModuleType) -> ModuleType:
    for name in _PICKLERS:
        with suppress(ImportError, AttributeError):  # absent, or too old to be the one that sends
            importlib.import_module(name).register_pickle_by_value(module)
    _LOADED[module.__name__] = module
    return module

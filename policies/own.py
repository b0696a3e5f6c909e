"""Policies that users write, loaded by the file or module of their class."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import as_value_error
from policies.base import Policy
from policies.selection import Selector

# What joblib sends work to its processes with: a package of its own since 1.6.
_PICKLERS = ("cloudpickle", "joblib.externals.cloudpickle")

# Modules that may be found here alone, so that processes are sent their code, not their name.
_LOADED: dict[str, ModuleType] = {}


def names_own_class(name: str) -> bool:
    """Whether a name has the form ``my_file.py:MyPolicy`` or ``my_module:MyPolicy``.

    Parameters
    ----------
    name : str
        The name of a policy.
    """
    place, _, kind = name.rpartition(":")
    module = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return module and kind.isidentifier()


def load_class(name: str) -> type[Policy] | type[Selector]:
    """Import the file or module that a name tells, and give its class.

    Parameters
    ----------
    name : str
        ``path/to/my_file.py:MyPolicy``, or ``my_module:MyPolicy`` with a module that Python finds,
        also in the working directory.

    Returns
    -------
    type
        The subclass of `Policy` or `Selector`.

    Raises
    ------
    ValueError
        If it cannot be imported, or there is no such class in it.
    """
    place, _, wanted = name.rpartition(":")
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    kinds = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, (Policy, Selector))
        and value not in (Policy, Selector)
    ]
    kind = getattr(module, wanted, None)
    if kind is None:
        raise ValueError(f"{place!r} has no class {wanted!r}{did_you_mean(wanted, kinds)}")
    if wanted not in kinds:
        raise ValueError(f"{wanted} in {place!r} must be a subclass of Policy or Selector")
    return kind  # type: ignore[no-any-return]


def own_source(name: str) -> Path | None:
    """The file in which a class of the user's own stands; None where that is not known.

    Parameters
    ----------
    name : str
        As for `load_class`.
    """
    file = getattr(sys.modules[load_class(name).__module__], "__file__", None)
    return None if file is None else Path(file)


def own_modules() -> list[ModuleType]:
    """The modules that were loaded for `load_class`, which other processes may not find."""
    return list(_LOADED.values())


def _load_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise ValueError(f"the file {place!r} of a policy does not exist")
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

"""What of the user's code has changed, or changes FLEdge's."""

from __future__ import annotations

import sys
from collections.abc import Container
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

from policies.benchmark.fingerprint import Fingerprint, wrapped
from policies.benchmark.whose import is_python_name, is_users
from policies.user_files import PACKAGES, differs

# Thousands of values in FLEdge's modules that are not the user's, by `id`, for the next run.
_CHECKED: dict[int, object] = {}


class UserCode(NamedTuple):
    """The user's code that a key covers, as it was when the key was made.

    Attributes
    ----------
    files : dict of str to bytes
        The contents of files.
    values : dict of str to str
        Hashes of the global values of modules, by their names.
    inputs : str
        The `inputs_hash` of a run with such code, which in a notebook has no file, or empty.
    """

    files: dict[str, bytes]
    values: dict[str, str]
    inputs: str = ""

    def changed_file(self) -> str:
        """A file that has changed since, or an empty string."""
        return next((file for file, content in self.files.items() if differs(file, content)), "")

    def changed_value(self) -> str:
        """A global value that has changed since, or an empty string."""
        now = module_values(self.files)
        names = (name for name, value in now.items() if self.values.get(name, value) != value)
        return next(names, "")


NO_CODE = UserCode({}, {}, "unknown")  # without a key


def module_values(files: Container[str]) -> dict[str, str]:
    """Hashes of the global values of loaded modules whose files are among some."""
    found = {}
    for name, module in [*sys.modules.items()]:
        if getattr(module, "__file__", None) in files:
            for item, value in vars(module).items():
                with suppress(Exception):  # what cannot be hashed is not compared
                    if not is_python_name(item) and not isinstance(value, ModuleType):
                        found[f"{name}.{item}"] = Fingerprint().of(value)
    return found


def patches() -> dict[str, object]:
    """The user's code that has replaced FLEdge's in its loaded modules and classes, by place."""
    fledge = {package.name for package in PACKAGES}
    found = {}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in fledge:
            continue
        places: dict[str, Any] = {name: module}
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == name:
                places[f"{name}.{kind.__qualname__}"] = kind
        for place, holder in places.items():
            for item, value in vars(holder).items():
                if id(value) in _CHECKED:
                    continue
                if any(map(is_users, (value, type(value), *wrapped(value)))):
                    found[f"{place}.{item}"] = value
                else:
                    _CHECKED[id(value)] = value
    return dict(sorted(found.items()))

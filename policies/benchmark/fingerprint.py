"""Fingerprints of Python objects by value and code, the same in every process."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import logging
import os
import random
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import (
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np

from policies.user_files import is_library_file, is_user_file, with_packages

# How pickle makes an object whose class does not say otherwise.
_NEW: Any = object().__reduce_ex__(4)[0]
# Objects that wrap functions, and the attributes in which they keep them.
_WRAPPERS = (
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
    type(functools.cache(len)),
)
_WRAPPED = ("__wrapped__", "fget", "fset", "fdel", "func")
_VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items())
# State that all code shares, and that differs in each process.
_SHARED = os.environ, np.random.mtrand._rand, random._inst
# Objects without a value of their own: class attributes for `__slots__`, and loggers.
_BY_TYPE = logging.Logger, MemberDescriptorType
# Attributes of classes that Python makes, which differ in each process.
_GENERATED = {"__hash__", "_abc_impl"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


class Fingerprint:
    """Hashes objects, and collects the user's modules in which their code is defined.

    Objects with equal values have equal hashes. The code of functions and classes counts, with the
    values that they close over and the attributes of classes, unless they belong to a library:
    these count by name and by what they close over, such as the functions that they decorate. A
    user's function also counts with the global values that it uses, including values in the user's
    modules. Paths in the user's folder count relative to it, and loggers do not count.

    Attributes
    ----------
    modules : set of module
        Modules from the user's files that define a class or a function of the hashed objects.
    """

    def __init__(self) -> None:
        self.modules: set[ModuleType] = set()
        # Hashes by `id`, with the objects, whose ids would otherwise be given to others.
        self._known: dict[int, tuple[object, str]] = {}
        self._depth = 0  # number of objects that are being hashed

    def of(self, value: object) -> str:
        """The hash of a value; raises any exception if it cannot be hashed, as a lock cannot."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        key = id(value)
        if key not in self._known:
            self._known[key] = value, f"contains itself, {self._depth}"
            self._depth += 1
            self._known[key] = value, _hash(*self._parts(value))
            self._depth -= 1
        return self._known[key][1]

    def _named(self, values: Mapping[str, object]) -> list[str]:
        return [f"{name}={self.of(value)}" for name, value in sorted(values.items())]

    def _each(self, *values: object) -> list[str]:
        return [self.of(value) for value in values]

    def _parts(self, value: Any) -> list[str]:
        """Everything that determines a value, as text."""
        kind = type(value)
        if kind in (list, tuple, *_VIEWS):
            return [kind.__name__, *self._each(*value)]
        if kind in (dict, MappingProxyType):
            return ["dict", *(_hash(*self._each(*pair)) for pair in value.items())]
        if kind in (set, frozenset):
            return ["set", *sorted(self._each(*value))]
        if kind is np.ndarray and not value.dtype.hasobject:
            return ["array", repr(value.dtype), repr(value.shape), _hash(value.tobytes())]
        if isinstance(value, ModuleType):
            file = _user_file(value)
            return ["module", Path(file).name if file else value.__name__]
        if isinstance(value, _BY_TYPE) or any(value is one for one in _SHARED):
            return [kind.__name__]
        if isinstance(value, type):
            return ["class", *self._class(value)]
        if isinstance(value, FunctionType):
            return ["function", *self._function(value)]
        if isinstance(value, CodeType):
            names = value.co_names, value.co_varnames, value.co_freevars
            return ["code", value.co_code.hex(), repr(names), *self._each(*value.co_consts)]
        if isinstance(value, _WRAPPERS) or kind.__module__.startswith("numba."):
            functions = [getattr(value, name, None) for name in _WRAPPED]
            if not any(functions):
                raise TypeError(f"cannot tell objects of {kind.__qualname__} apart")
            return ["wrapper", *self._each(kind, *functions)]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            shown = [str(value.dtype), str(value.requires_grad), repr(tuple(value.shape))]
            return ["tensor", *shown, *self._each(kind, data)]
        return ["object", *self._object(value)]

    def _object(self, value: Any) -> list[str]:
        """The parts of an object that pickle would store."""
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return [self.of(type(value)), str(getattr(value, "__module__", None)), reduced]
        make, arguments, *more = reduced
        state, items, pairs = [*more, None, None, None][:3]
        if state is None and make is _NEW:  # `__getstate__` may return nothing
            state = getattr(value, "__dict__", None)
        parts = self._each(type(value), make, arguments, state)
        return [*parts, *self._each(list(items or ()), list(pairs or ()))]

    def _class(self, kind: type) -> list[str]:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        library = module is not None and kind.__module__ != "__main__" and file is None
        if library or (file is not None and is_library_file(file)):
            return [f"{kind.__module__}.{kind.__qualname__}"]
        if module is not None and _user_file(module):
            self.modules.add(module)
        own = {
            name: item
            for name, item in vars(kind).items()
            # Others with such names describe the class, and Python adds some to it later.
            if name not in _GENERATED and (not name.startswith("__") or callable(item))
        }
        above = self._each(type(kind), *kind.__bases__)
        return [kind.__qualname__, *above, *self._named(own)]

    def _function(self, function: FunctionType) -> list[str]:
        code = function.__code__
        cells = [_content(cell) for cell in function.__closure__ or ()]
        if is_library_file(code.co_filename):
            name = f"{function.__globals__.get('__name__')}.{code.co_qualname}"
            return [name, *self._named(dict(zip(code.co_freevars, cells, strict=True)))]
        parts = self._each(code, function.__defaults__, function.__kwdefaults__, *cells)
        parts += self._named(function.__dict__)
        # Not `__module__`, which a decorator may have copied from another function.
        module = sys.modules.get(str(function.__globals__.get("__name__")))
        file = None if module is None else getattr(module, "__file__", None)
        if file is None or is_user_file(file):
            if module is not None and file is not None:
                self.modules.add(module)
            values = _used_values(function.__globals__, {*_names(code)})
            folder = "" if file is None else str(Path(file).parent)
            parts += self._named({name: _without(folder, value) for name, value in values.items()})
        return [function.__qualname__, *parts]


def _user_file(module: ModuleType) -> str | None:
    """The file of a module of the user's, None for other modules."""
    file = getattr(module, "__file__", None)
    return file if file is not None and is_user_file(file) else None


def _used_values(values: Mapping[str, object], used: AbstractSet[str]) -> dict[str, object]:
    """Values of names that are used, and of the same names in the user's modules among them.

    Modules that are imported within the code count if they are loaded. Names with two underscores
    are left out, such as a module's name.
    """
    found: dict[str, object] = {}
    packages = ["", *(f"{name}." for name in with_packages(str(values.get("__package__") or "")))]
    imported = {
        f"{package}{name}": sys.modules.get(f"{package}{name}")
        for package in packages
        for name in used
    }
    modules = {name: module for name, module in imported.items() if module and _user_file(module)}
    waiting = [("", values), *((f"{name}.", vars(module)) for name, module in modules.items())]
    seen: set[int] = set()
    while waiting:
        place, values = waiting.pop()
        for name in sorted(used & values.keys()):
            if name.startswith("__"):
                continue
            value = values[name]
            found[f"{place}{name}"] = value
            if isinstance(value, ModuleType) and _user_file(value) and id(value) not in seen:
                seen.add(id(value))
                waiting.append((f"{place}{name}.", vars(value)))
    return found


def _without(folder: str, value: object) -> object:
    """A path below a folder relative to it, and any other value as it is."""
    if folder and isinstance(value, str | Path) and str(value).startswith(folder):
        return str(value).removeprefix(folder)
    return value


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)} ".encode() + content)
    return digest.hexdigest()


def _content(cell: CellType) -> object:
    """The value in a closure, None before it is assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: CodeType) -> Iterator[str]:
    """Names of variables, modules and attributes in a code and all functions in it, and texts."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            yield constant

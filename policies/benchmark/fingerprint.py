"""Fingerprints of Python objects by value and code, the same in every process."""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import logging
import os
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import _GeneratorContextManager, contextmanager, suppress
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal, TypeAlias

import numpy as np

from fl_edge_env import Scenario
from policies import global_random
from policies.benchmark.whose import (
    is_fledges,
    is_librarys,
    is_python_name,
    is_users,
    module_of,
)
from policies.user_files import is_library_file, is_user_file, with_packages

# How pickle makes an object whose class does not say otherwise.
_NEW: Any = object().__reduce_ex__(4)[0]
_GETSTATE: Any = object.__getstate__
# Objects that wrap functions, and the attributes in which they keep them.
_WRAPPERS = (
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
    type(functools.cache(len)),
)
_WRAPPED = ("__wrapped__", "__func__", "fget", "fset", "fdel", "func")
_VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items())
# State that all code shares, and that differs in each process.
_SHARED = os.environ, *global_random.SHARED.values()
# Generators of random numbers. What is within code, so in these types, is shared by all runs.
_GENERATORS = np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random
_CODE = type, FunctionType, BuiltinFunctionType, ModuleType
# Values that never change, so that it does not matter whether two are one.
_FIXED = tuple, frozenset, Path, Scenario
# Attributes of classes that Python makes: they describe the class, or differ in each process.
_GENERATED = {
    *("_abc_impl", "__abstractmethods__", "__annotations__", "__annotations_cache__", "__dict__"),
    *("__classcell__", "__dataclass_fields__", "__doc__", "__firstlineno__", "__hash__"),
    *("__module__", "__qualname__", "__slotnames__"),
    *("__slots__", "__static_attributes__", "__type_params__", "__weakref__"),
}
# Methods with which a class says how to copy its objects.
PICKLING = frozenset(
    {"__getstate__", "__setstate__", "__deepcopy__", "__reduce__", "__reduce_ex__"}
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


# The place of an object: in an object of the user's, in a function that such an object holds, in an
# object of a library, which knows how it is copied, in code, or in a class of FLEdge.
_Place: TypeAlias = Literal["object", "function", "library", "code", "fledge"]


class CopyError(ValueError):
    """An object and its copies would not behave alike."""


class SharedGeneratorError(ValueError):
    """Runs share a generator of random numbers."""


class Fingerprint:
    """Hashes objects, and collects the user's files in which their code is defined.

    Objects with equal values, of which the same parts are one object, have equal hashes. The
    code of functions and classes counts, with the values that they close over and the
    attributes of classes, unless they belong to a library: these count by name and by what they
    close over, such as the functions that they decorate. A user's function also counts with the
    global values that it uses and the user's loaded modules that it may import. A user's module
    counts with all its values, other modules by name. Paths in a module's folder count relative
    to it. Loggers do not count, nor do global values with names such as ``__file__`` and attributes
    with which Python describes a class, such as ``__doc__``.

    Attributes
    ----------
    files : dict of str to str
        The user's files that define the hashed classes, functions and modules, with their packages.
    users : bool
        Whether some of this code is the user's, which has no file in a notebook.
    lost : str
        What pickles of the objects may lose, or empty.
    shared : list of object
        The parts that both the object and its code hold, except for tuples and other plain values.

    Parameters
    ----------
    copied : bool
        Whether only copies of the objects are compared: `CopyError` if they would not behave alike,
        the order of sets counts, and texts in functions do not count as names of global values that
        these may use.
    """

    def __init__(self, *, copied: bool = False) -> None:
        self.files: dict[str, str] = {}
        self.users = False
        self.lost = ""
        self.shared: list[object] = []
        self._copied = copied
        # Hashes by `id`, with the objects, whose ids would otherwise be given to others.
        self._known: dict[int, tuple[object, str]] = {}
        # Numbers by `id` of objects that can change, so that it matters whether two are one.
        self._numbers: dict[int, int] = {}
        self._first: dict[int, _Place] = {}  # where objects were met first, by `id`
        self._place: _Place = "object"
        # Arrays that can change, each with the object of a library that holds it.
        self._arrays: list[tuple[np.ndarray, object]] = []
        self._open: dict[int, object] = {}  # objects that are being hashed, by `id`
        self._cycles = 0  # how often one of these was met again

    @property
    def parts(self) -> list[object]:
        """The objects with a hash, in the order in which these were made."""
        return [value for value, _ in self._known.values()]

    @property
    def held(self) -> list[object]:
        """The parts that were first met outside code."""
        known = self._known.items()
        return [one for key, (one, _) in known if self._first[key] in ("object", "library")]

    def of(self, value: object) -> str:
        """The hash of a value; raises any exception if it cannot be hashed, as a lock cannot."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        key = id(value)
        if key in self._open:
            self._cycles += 1
        places = {self._first.setdefault(key, self._place), self._place}
        if "code" in places and len(places) == 2 and type(value) not in (tuple, frozenset):
            self.shared.append(value)
        if key in self._numbers:
            shared = "function" in places and places & {"object", "library"}
            if self._copied and shared:
                raise CopyError(
                    f"it holds a function that uses its {type(value).__name__}, but the function "
                    "of a copy uses the original's: make the function a method"
                )
            return f"again {self._numbers[key]}"
        if key in self._open:
            return f"contains itself, {[*self._open].index(key)}"
        if key not in self._known:
            if not isinstance(value, (*_CODE, *_FIXED)):
                self._numbers[key] = len(self._numbers)
            self._open[key] = value
            place = self._place
            if isinstance(value, type | ModuleType):
                place = "fledge" if is_fledges(value) else "code"
            elif place != "code" and is_librarys(value):
                place = "library"
            with self._at(place):
                self._known[key] = value, _hash(*self._parts(value))
            del self._open[key]
        return self._known[key][1]

    @contextmanager
    def _at(self, place: _Place) -> Iterator[None]:
        """What is hashed in the block is at this place."""
        outer = self._place
        self._place = place
        try:
            yield
        finally:
            self._place = outer

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
            return ["set", *self._elements(value)]
        if isinstance(value, np.generic):
            return ["scalar", *self._each(kind, np.asarray(value))]
        if isinstance(value, np.ndarray) and value.dtype.names:
            # Not its bytes, as those between fields may have any value.
            fields = [value[name] for name in value.dtype.names]
            return ["fields", repr(value.dtype), *self._each(kind, *fields)]
        if isinstance(value, np.ndarray):
            holder = next(filter(is_librarys, self._open.values()), None)
            self._check_views(np.asarray(value), holder)
            if self._place not in ("code", "fledge") and not value.flags.forc:
                self.lost = "it holds a part of an array, which a pickle lays out anew: copy it"
        if kind is np.ndarray and not value.dtype.hasobject:
            layout = repr(value.dtype), repr(value.shape), repr(value.flags.fnc)
            return ["array", *layout, _hash(value.tobytes())]
        if isinstance(value, ModuleType):
            if not is_users(value) and sys.modules.get(value.__name__) is value:
                return ["module", value.__name__]
            return ["module", *self._globals(vars(value), vars(value).keys())]
        if isinstance(value, logging.Logger) or any(value is one for one in _SHARED):
            return [kind.__name__]
        if isinstance(value, type):
            return ["class", *self._class(value)]
        if isinstance(value, FunctionType):
            return ["function", *self._function(value)]
        if isinstance(value, MethodType):  # by its name it might be another function
            return ["method", *self._each(value.__func__, value.__self__)]
        if isinstance(value, BuiltinFunctionType) and not isinstance(
            value.__self__, ModuleType | type | None
        ):
            with self._at("function" if self._place == "object" else self._place):
                return ["method", value.__name__, self.of(value.__self__)]
        if isinstance(value, CodeType):
            names = value.co_names, value.co_varnames, value.co_freevars
            counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount
            form = repr((names, counts, value.co_flags, value.co_exceptiontable))
            return ["code", value.co_code.hex(), form, *self._each(*value.co_consts)]
        if kind in _WRAPPERS or kind.__module__.startswith("numba."):
            functions = wrapped(value)
            if not any(functions):
                raise TypeError(f"cannot tell objects of {kind.__qualname__} apart")
            if kind not in _WRAPPERS and any(map(_draws, functions)):
                raise SharedGeneratorError(
                    "its compiled functions share numba's random numbers between runs: make a "
                    "Generator in reset and give it to them"
                )
            return ["wrapper", *self._each(kind, *functions)]
        if isinstance(value, _GeneratorContextManager):  # of a function that it decorates
            return ["context", *self._each(kind, value.func, value.args, value.kwds)]
        torch = sys.modules.get("torch")
        generators = _GENERATORS if torch is None else (*_GENERATORS, torch.Generator)
        if isinstance(value, generators) and any(
            isinstance(one, _CODE) for one in self._open.values()
        ):
            raise SharedGeneratorError(
                f"its code shares a {kind.__name__} of random numbers between runs: make it in "
                "reset and keep it in the policy"
            )
        if torch is not None and isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            # NumPy has no bfloat16.
            bits = {1: torch.uint8, 2: torch.int16}.get(value.element_size(), value.dtype)
            self._check_views(value.detach().cpu().view(bits).numpy())
            shown = value.dtype, value.requires_grad, value.is_leaf, tuple(value.shape)
            gradient = value.grad if value.is_leaf else None
            return ["tensor", repr(shown), *self._each(kind, gradient), _hash(data.tobytes())]
        state = vars(value) if isinstance(value, Enum) else {}  # which pickle leaves out
        own = {name: item for name, item in state.items() if not name.startswith("_")}
        return ["object", *self._object(value), *self._named(own)]

    def _elements(self, values: AbstractSet[object]) -> list[str]:
        """The hashes of a set's elements, which do not depend on its order, except for copies."""
        if self._place in ("object", "function") and len(values) > 1:
            self.lost = "it holds a set, which a pickle may order differently: keep a list or dict"
            if any(hash(one) in (id(one), object.__hash__(one)) for one in values):
                raise TypeError(
                    "it holds a set of objects without an own hash, which each process orders "
                    "differently: keep a list or dict"
                )
        if self._copied:
            return self._each(*values)
        # First classes and functions, which may refer to themselves, but have names to sort them.
        code = {one if isinstance(one, type | FunctionType) else type(one) for one in values}
        self._each(*sorted(code, key=lambda one: one.__qualname__))
        before = self._cycles
        with suppress(RecursionError):  # of an object that refers to the set
            hashes = self._each(*sorted(values, key=lambda one: Fingerprint().of(one)))
            if self._cycles == before:
                return sorted(hashes)
        raise TypeError("the objects in a set refer to each other or to the set")

    def _globals(self, values: Mapping[str, Any], names: AbstractSet[str]) -> list[str]:
        """Some of the global values of a user's module, and the module's file."""
        self._note(values)
        file = values.get("__file__")
        folder = "" if file is None else str(Path(file).parent)
        used = {name: values[name] for name in names & values.keys() if not is_python_name(name)}
        return self._named({name: _without(folder, value) for name, value in used.items()})

    def _note(self, values: Mapping[str, Any]) -> None:
        """Remember the file of the module with these global values, if it is the user's."""
        file = values.get("__file__")
        if file is not None and is_user_file(file):
            self.files[file] = values.get("__package__") or ""
        self.users |= file in self.files or values.get("__name__") == "__main__"

    def _object(self, value: Any) -> list[str]:
        """The parts of an object that pickle would store."""
        hooks = [vars(kind).get(name) for kind in type(value).__mro__ for name in PICKLING]
        hooked = any(map(is_users, hooks))
        if self._place not in ("code", "fledge") and hooked:
            self.lost = "its classes define how they are pickled, which may lose values"
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return [self.of(type(value)), str(getattr(value, "__module__", None)), reduced]
        make, arguments, *more = reduced
        state, items, pairs = [*more, None, None, None][:3]
        if state is None and make is _NEW:  # `__getstate__` may return nothing
            state = getattr(value, "__dict__", None)
        plain = make is _NEW and type(value).__getstate__ is _GETSTATE
        if plain and isinstance(state, tuple):
            state = (state[0] or {}) | state[1]  # of `__slots__`, which some copies of classes lose
        parts = self._each(type(value), make, arguments, state)
        parts += self._each(list(items or ()), list(pairs or ()))
        if is_users(type(value)) and not hooked and not isinstance(value, Enum | Scenario):
            kept = state if isinstance(state, dict) else {}
            own = getattr(value, "__dict__", {})
            left = {name: item for name, item in own.items() if name not in kept}
            parts += self._named(left)
            if left and self._place not in ("code", "fledge"):
                self.lost = f"copies of its {type(value).__name__} lose {', '.join(left)}"
        return parts

    def _class(self, kind: type) -> list[str]:
        module = module_of(kind)
        values = {} if module is None else vars(module)
        file = values.get("__file__")
        compiled = module is not None and file is None
        library = compiled or (file is not None and is_library_file(file))
        if library and kind.__module__ != "__main__":  # in a worker, this is a module of joblib
            return [f"{kind.__module__}.{kind.__qualname__}"]
        self._note(values)
        own = {
            name: item
            for name, item in vars(kind).items()
            if name not in _GENERATED and not isinstance(item, MemberDescriptorType)
        }
        above = self._each(type(kind), *kind.__bases__)
        return [kind.__name__, *above, *self._named(own)]

    def _function(self, function: FunctionType) -> list[str]:
        code = function.__code__
        cells = [_content(cell) for cell in function.__closure__ or ()]
        values = function.__globals__
        file = values.get("__file__")
        # Copies of code in other processes do not know its file.
        librarys = is_library_file(code.co_filename) or is_library_file(file or "")
        held = self._place == "object" or (self._place == "library" and not librarys)
        if held and self._copied:
            _check_nonlocal(code)
        with self._at("function" if held else self._place):
            if librarys:
                name = f"{values.get('__name__')}.{code.co_qualname}"
                return [name, *self._named(dict(zip(code.co_freevars, cells, strict=True)))]
            parts = self._each(code, function.__defaults__, function.__kwdefaults__, *cells)
            parts += self._named(function.__dict__)
        # Not the file of `__module__`, which a decorator may have copied from another function.
        if file is None or is_user_file(file):
            names = {*_names(code, texts=not self._copied)}
            with self._at("code"):
                parts += self._globals(values, names)
                parts += self._named(_imported(values.get("__package__") or "", names))
        return [function.__qualname__, *parts]

    def _check_views(self, array: np.ndarray, holder: object = None) -> None:
        """Raise `CopyError` if an array shares memory with another holder's array."""
        root: Any = array
        while getattr(root, "base", None) is not None:
            root = root.base
        fixed = isinstance(root, bytes) or (
            isinstance(root, np.ndarray) and not root.flags.writeable
        )
        if not self._copied or self._place in ("code", "fledge") or fixed:
            return
        others = [other for other, its in self._arrays if holder is None or its is not holder]
        if any(np.may_share_memory(array, one) and np.shares_memory(array, one) for one in others):
            raise CopyError(
                "it holds two arrays that share memory, which its copies cannot keep: copy one of "
                "the arrays, or make the view when it is used"
            )
        self._arrays.append((array, holder))


def differing(one: object, other: object) -> list[str]:
    """The attributes in which two objects differ; raises any exception if one cannot be hashed."""
    hashes = [
        {name: Fingerprint(copied=True).of(value) for name, value in vars(each).items()}
        for each in (one, other)
    ]
    names = sorted(hashes[0].keys() | hashes[1].keys())
    return [name for name in names if hashes[0].get(name) != hashes[1].get(name)]


def _check_nonlocal(code: CodeType) -> None:
    """Raise `CopyError` if a function that an object holds assigns a nonlocal variable."""
    for step in dis.get_instructions(code):
        if step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
            raise CopyError(
                f"it holds a function that assigns the nonlocal {step.argval}, which its copies "
                "share: keep the value in the policy"
            )


def _draws(function: object) -> bool:
    """Whether a function uses a module ``random``, such as NumPy's."""
    steps = dis.get_instructions(function) if isinstance(function, FunctionType) else ()
    return any(
        one.opname == "LOAD_GLOBAL" and "random" in (one.argval, other.argval)
        for one, other in pairwise(steps)
    )


def wrapped(value: object) -> list[object]:
    """The functions that an object wraps."""
    return [getattr(value, name, None) for name in _WRAPPED]


def _imported(package: str, names: Iterable[str]) -> dict[str, object]:
    """The user's loaded modules that code with these names may import, within a package or not."""
    prefixes = ["", *(f"{above}." for above in with_packages(package))]
    possible = {f"{prefix}{name}" for prefix in prefixes for name in names} & sys.modules.keys()
    return {name: sys.modules[name] for name in possible if is_users(sys.modules[name])}


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


def _names(code: CodeType, *, texts: bool) -> Iterator[str]:
    """Names of variables and modules in a code and all functions in it, and, if asked, texts."""
    for step in dis.get_instructions(code):
        if step.opcode in dis.hasname and not step.opname.endswith(("ATTR", "METHOD")):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant, texts=texts)
        elif isinstance(constant, str) and texts:
            yield constant

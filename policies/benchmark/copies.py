"""Copies of policies, which share with their code what the policies share with it."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import cloudpickle

from fl_edge_env import Scenario
from policies import global_random
from policies.benchmark.fingerprint import Fingerprint

_Value = TypeVar("_Value")
_CODE = type, FunctionType, ModuleType
_SCRIPT = "__main__", "__mp_main__"  # one module by two names


def copied(policy: _Value) -> _Value:
    """A copy, of which the parts that the policy's code also uses are the policy's own.

    Such a part is a constant of a module, with which the policy compares its attribute by ``is``.
    """
    parts, _ = _shared(policy)
    parts |= {id(one): one for one in global_random.SHARED.values()}
    return copy.deepcopy(policy, parts)


def dumps(value: object, *holders: object) -> bytes:
    """Pickle a value that holds a policy or a task, for `loads` in any process."""
    with io.BytesIO() as file:
        Pickler(file, named(*holders)).dump(value)
        return file.getvalue()


def loads(content: bytes) -> Any:
    """The value of `dumps`, whose holders share their parts with the code of this process."""
    return Unpickler(io.BytesIO(content), {}).load()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles classes of a script or notebook by value, and given objects by their names."""

    def __init__(self, file: Any, given: Mapping[Any, object]) -> None:
        super().__init__(file)
        self._names = {id(value): name for name, value in given.items()}

    def reducer_override(self, obj: Any) -> Any:
        """Torch's tensors with their gradients, which torch leaves out, and others as they are."""
        torch = sys.modules.get("torch")
        gradient = obj.grad if torch and isinstance(obj, torch.Tensor) and obj.is_leaf else None
        if gradient is None:
            return super().reducer_override(obj)
        make, arguments, *_ = obj.__reduce_ex__(4)
        return _with_gradient, (make, arguments, gradient)

    def persistent_id(self, obj: object) -> Any:
        """The name of a given object, and None for others."""
        return self._names.get(id(obj))


class Unpickler(pickle.Unpickler):
    """Loads what `Pickler` has written; given are the objects whose names `named` does not make."""

    def __init__(self, file: Any, given: Mapping[Any, object]) -> None:
        super().__init__(file)
        self._given = given

    def persistent_load(self, pid: Any) -> object:
        """The object of a name."""
        if pid in self._given:
            return self._given[pid]
        module, name, number = pid
        parts = _parts(vars(importlib.import_module(module)).get(name))
        if number >= len(parts):
            raise ValueError(
                f"{module}.{name} has changed after its module was loaded, which other processes "
                "do not see: keep values in the policy"
            )
        return parts[number]


def named(*holders: object) -> dict[tuple[str, str, int], object]:
    """What objects share with all code, each with a module, a global name and its number in it.

    What they share with a script or notebook is left out: it is pickled by value with the classes.
    """
    parts, files = _shared(*holders)
    found = {(*name, 0): one for name, one in global_random.SHARED.items()}
    for module, content in [*sys.modules.items()] if parts else []:
        if getattr(content, "__file__", None) in files and module not in _SCRIPT:
            # First data, because more of what code refers to can differ in another process.
            values = sorted(vars(content).items(), key=lambda item: isinstance(item[1], _CODE))
            for name, value in values:
                for number, part in enumerate(_parts(value)):
                    if parts.pop(id(part), None) is not None:
                        found[module, name, number] = part
    return found


def _with_gradient(make: Any, arguments: Any, gradient: Any) -> Any:
    made = make(*arguments)
    made.grad = gradient
    return made


def _shared(*holders: object) -> tuple[dict[int, object], dict[str, str]]:
    """The parts of objects that their code also uses, by their `id`, and the files of this code.

    Not its scenario, so that a policy cannot change the environment's.
    """
    fingerprint = Fingerprint(copied=True)
    for holder in holders:
        with suppress(Exception):  # what cannot be hashed
            fingerprint.of(holder)
    whole = {id(holder) for holder in holders}
    own = {
        id(part): part
        for part in fingerprint.shared
        if id(part) not in whole and type(part) is not Scenario and not _has_name(part)
    }
    return own, fingerprint.files


def _has_name(part: object) -> bool:
    """Whether pickles refer to a function or class by its module and name."""
    if not isinstance(part, type | FunctionType):
        return False
    found: Any = sys.modules.get(part.__module__)
    for name in part.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is part


def _parts(value: object) -> list[object]:
    """The parts of a value, in an order that is the same in every process."""
    fingerprint = Fingerprint()
    with suppress(Exception):  # the parts before one that cannot be hashed
        fingerprint.of(value)
    return fingerprint.parts

"""Whose code is: the user's, a library's or FLEdge's."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

from policies.user_files import is_library_file, is_user_file


def is_users(code: object) -> bool:
    """Whether a function, class or module is the user's, whose packages need not have a file."""
    if isinstance(code, type):
        code = module_of(code)
    if isinstance(code, FunctionType):
        values = code.__globals__
    elif isinstance(code, ModuleType):
        values = vars(code)
    else:
        return False
    file = values.get("__file__")
    places = [file] if file is not None else values.get("__path__", [])
    return values.get("__name__") == "__main__" or any(is_user_file(place) for place in places)


def is_librarys(value: object) -> bool:
    """Whether the class of an object is a library's, but not an array's, tensor's or Python's."""
    package = type(value).__module__.partition(".")[0]
    if package in ("__main__", *sys.stdlib_module_names) or hasattr(type(value), "__array__"):
        return False
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return file is not None and is_library_file(file)


def is_fledges(code: type | ModuleType) -> bool:
    """Whether a class or module is FLEdge's."""
    module = module_of(code) if isinstance(code, type) else code
    file = getattr(module, "__file__", None)
    return file is not None and not is_user_file(file) and not is_library_file(file)


def module_of(kind: type) -> ModuleType | None:
    """The module of a class; None if the class was made by a call and bears its maker's name.

    A call such as ``type(name, (Policy,), values)`` makes a class of the module of its metaclass.
    """
    module = sys.modules.get(kind.__module__)
    makers = {"types", *(meta.__module__ for meta in type.mro(type(kind)) if meta is not type)}
    made = kind.__module__ in makers - {"builtins"}
    return None if made and getattr(module, kind.__name__, None) is not kind else module


def is_python_name(name: str) -> bool:
    """Whether Python gives a name its meaning, as ``__file__``."""
    return name.startswith("__") and name.endswith("__")

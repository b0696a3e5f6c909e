"""The user's source files: a policy's own and those that it imports."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

# The folders of FLEdge's packages.
PACKAGES = tuple(
    Path(__file__).parents[1] / name for name in ("fl_edge_env", "policies", "train_fl")
)
# Folders of FLEdge, Python and its libraries; site-packages may also be elsewhere.
_NOT_USERS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (
        *map(str, PACKAGES),
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
    )
)
_SITES = {"site-packages", "dist-packages"}
_KNOWN = {*sys.stdlib_module_names, *(package.name for package in PACKAGES)}


@cache
def is_user_file(file: str) -> bool:
    """Whether a source file is the user's, and not Python's, a library's or FLEdge's."""
    path = os.path.realpath(file)
    other = file.startswith("<") or path.startswith(_NOT_USERS)
    return not other and _SITES.isdisjoint(Path(path).parts)


def is_user_module(module: ModuleType) -> bool:
    """Whether a module is a user's file, or a notebook, which has no file."""
    file = getattr(module, "__file__", None)
    return module.__name__ == "__main__" if file is None else is_user_file(file)


def sources(module: ModuleType) -> dict[str, bytes | str]:
    """The code of a user's module: the content of its file and of all user files that it imports.

    Imports within functions count, because they can happen later. Imported libraries have their
    versions instead. Empty for a module of FLEdge.
    """
    found: dict[str, bytes | str] = {}
    waiting = [module.__name__]
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        library = name.partition(".")[0]
        if is_user_file(file):
            if file not in found:
                found[file] = Path(file).read_bytes()
                package = name if Path(file).stem == "__init__" else name.rpartition(".")[0]
                waiting += _imported(found[file], package)
        elif library not in _KNOWN and not is_user_file(_file_of(library)):
            found[library] = _version(library)
    return found


def _imported(content: bytes | str, package: str) -> Iterator[str]:
    """The modules that a source file may import, and the packages that contain them."""
    for node in ast.walk(ast.parse(content)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            while name:
                yield name
                name = name.rpartition(".")[0]


def _file_of(name: str) -> str:
    """The file of a module, which need not be loaded; ``<unknown>`` if there is none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is not None:
        return str(file)
    for folder in sys.path:
        place = Path(folder, *name.split("."))
        for each in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if each.is_file():
                return str(each)
    return "<unknown>"


@cache
def _version(package: str) -> str:
    """The version of the library that has a package; empty if it states none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # The library of sklearn is scikit-learn. To list all takes half a second.
        libraries = importlib.metadata.packages_distributions().get(package, [])
        return importlib.metadata.version(libraries[0]) if libraries else ""

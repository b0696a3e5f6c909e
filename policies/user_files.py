"""Which source files are the user's, and which of them a file imports."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NamedTuple

# The folders of FLEdge's packages.
PACKAGES = tuple(
    Path(__file__).parents[1] / name for name in ("fl_edge_env", "policies", "train_fl")
)
_FLEDGE = tuple(os.path.realpath(package) + os.sep for package in PACKAGES)
# Folders of Python and its libraries; site-packages may also be elsewhere.
_LIBRARIES = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)
_SITES = {"site-packages", "dist-packages"}
# Modules and functions with which a file can run code that cannot be known before.
_COMPUTING = {
    "__builtins__",
    "__import__",
    "__subclasses__",
    "builtins",
    "eval",
    "exec",
    "globals",
    "importlib",
    "inspect",
    "pkgutil",
    "pydoc",
    "runpy",
}
# User's packages that are installed next to libraries, and file contents at the first reading.
_CLAIMED: set[str] = set()
_CONTENTS: dict[str, bytes] = {}


class Imports(NamedTuple):
    """The user's files that some files import, and themselves.

    Attributes
    ----------
    files : dict of str to tuple
        The package and the content of each file, by its path.
    libraries : dict of str to str
        The versions of imported libraries that state one, by name.
    computing : list of str
        Files that can run code that cannot be known before, with the names that they use for it.
    """

    files: dict[str, tuple[str, bytes]]
    libraries: dict[str, str]
    computing: list[str]


def claim(file: str, package: str) -> None:
    """Let the package of a file count as the user's, although it is installed as a library."""
    folders = Path(file).parents
    _CLAIMED.add(str(folders[package.count(".")] if package else file))
    is_library_file.cache_clear()
    is_user_file.cache_clear()


@cache
def is_library_file(file: str) -> bool:
    """Whether a source file belongs to Python or a library, and not to FLEdge or the user."""
    path = os.path.realpath(file)
    if path.startswith(_FLEDGE):
        return False
    if any(file.startswith(claimed) for claimed in _CLAIMED):
        return False
    installed = path.startswith(_LIBRARIES) or not _SITES.isdisjoint(Path(path).parts)
    return installed or file.startswith("<frozen")


@cache
def is_user_file(file: str) -> bool:
    """Whether a source file is the user's, and not Python's, a library's or FLEdge's."""
    known = file.startswith("<") or os.path.realpath(file).startswith(_FLEDGE)
    return not known and not is_library_file(file)


def imports_of(files: Mapping[str, str]) -> Imports:
    """User's files, all user's files that they import, and the libraries.

    Contents are as first read, because the code is loaded only once. Imports within
    functions count, because they can happen later.

    Parameters
    ----------
    files : mapping of str to str
        Paths, with the packages to which they belong, or empty strings.

    Raises
    ------
    ValueError
        If a file means a neighbour by an import, but gets a file of the same name elsewhere.
    OSError
        If a file cannot be read.
    """
    found = Imports({}, {}, [])
    waiting = dict(files)
    while waiting:
        file, package = waiting.popitem()
        if file not in _CONTENTS:
            _CONTENTS[file] = Path(file).read_bytes()
        found.files[file] = package, _CONTENTS[file]
        for name in _imported_names(_CONTENTS[file], package):
            imported, its_package = _located(name)
            if name in _COMPUTING:
                found.computing.append(f"{file!r} uses {name}")
            elif not imported or not is_user_file(imported):
                version = _version(name)
                if version is not None:
                    found.libraries[name] = version
            elif imported not in found.files:
                _check_only(file, name, imported)
                waiting[imported] = its_package
    return found


def has_changed(file: str) -> bool:
    """Whether a file differs from what `imports_of` has read."""
    return file in _CONTENTS and differs(file, _CONTENTS[file])


def differs(file: str, content: bytes) -> bool:
    """Whether a file has another content, or cannot be read."""
    try:
        return Path(file).read_bytes() != content
    except OSError:
        return True


# The libraries that have a module, by its name, which can differ from theirs; takes long at first.
_distributions = cache(importlib.metadata.packages_distributions)


@cache
def _version(name: str) -> str | None:
    """The version of a library, which need not be loaded."""
    known = {*sys.stdlib_module_names, *(package.name for package in PACKAGES)}
    if "." in name or name in known:
        return None
    with suppress(PackageNotFoundError, ValueError):
        return importlib.metadata.version(name)
    titles = _distributions().get(name)
    if titles:
        return importlib.metadata.version(titles[0])
    version = vars(sys.modules[name]).get("__version__") if name in sys.modules else None
    return version if isinstance(version, str) else None


def _imported_names(content: bytes, package: str) -> list[str]:
    """The modules that a file may import, with the packages that contain them, and `_COMPUTING`."""
    names: set[str] = set()
    with suppress(SyntaxError, ValueError):  # for example in a compiled module
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                with suppress(ImportError):  # a relative import outside of a package
                    base = importlib.util.resolve_name(base, package)
                    names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Name):
                names |= {node.id} & _COMPUTING
            elif isinstance(node, ast.Attribute):
                names |= {node.attr} & {"__subclasses__"}
    return sorted({part for name in names for part in with_packages(name)})


def with_packages(name: str) -> Iterator[str]:
    """A module and the packages that contain it: a.b.c, a.b and a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _located(name: str) -> tuple[str, str]:
    """The file of a module, which need not be loaded, and its package; empty if there is none."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        file, package = (getattr(loaded, name, None) for name in ("__file__", "__package__"))
        return str(file or ""), str(package or "")
    spec = _spec(name)
    if spec is None or not spec.has_location:  # a module of Python itself has none
        return "", ""
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    return str(spec.origin), package


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing the packages that contain it."""
    parent = name.rpartition(".")[0]
    if not parent:
        return importlib.util.find_spec(name)
    spec = _spec(parent)
    if spec is None or spec.submodule_search_locations is None:
        return None
    # By its last name: the places of a package without a file would need those above it loaded.
    return PathFinder.find_spec(name.rpartition(".")[2], [*spec.submodule_search_locations])


def _check_only(file: str, name: str, imported: str) -> None:
    """Raise `ValueError` if a file that would import `imported` may mean another file of the user.

    It means its neighbour, if there is one, and otherwise the first in `sys.path`, which files that
    are loaded earlier or later may change.
    """
    own = str(Path(file).parent)
    found = _places(name, own) if own in sys.path else []
    for other in found or _places(name, *sys.path):
        if is_user_file(str(other)) and not other.samefile(imported):
            raise ValueError(
                f"{file!r} imports {name}, which is {str(other)!r} and also {imported!r}: "
                "rename one of them, because Python loads only one module of a name"
            )


def _places(name: str, *folders: str) -> list[Path]:
    """The existing files of a module or package in some folders."""
    places = [Path(folder).joinpath(*name.split(".")) for folder in folders]
    files = [(place / "__init__.py", place.with_name(f"{place.name}.py")) for place in places]
    return [file for both in files for file in both if file.exists()]

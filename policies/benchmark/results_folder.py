"""The folder of an experiment: its results, and the options and versions that made them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from fl_edge_env import Scenario
from fl_edge_env.files import (
    atomic_path,
    file_name,
    reason,
    remove_abandoned,
    writable_folder,
)
from policies.benchmark.stored import fledge_hash, installed

if TYPE_CHECKING:
    import pandas as pd

_CONFIG = "config.json"
_LONGEST_NAME = 100
# The models are the only results in a folder of their own.
_OURS = re.compile(r"[\w-]+\.\w+|models/[\w.+-]+-seed-\*\.pt")


@contextmanager
def claimed(
    folder: Path,
    experiment: str,
    results: Sequence[str],
    given: Mapping[str, Any],
    settings: Sequence[Mapping[str, Any]],
    *,
    overwrite: bool,
) -> Iterator[Path]:
    """Lock a folder for the block, if it is empty or holds the results of the same options.

    With `overwrite`, other results are replaced. `results` are the files that this kind of
    experiment writes, as patterns. They are removed, except for finished runs, so that the folder
    holds what the last command wrote. Yields the folder's absolute path, because a policy may
    change to a different one.

    A configuration file records how to repeat the experiment: the command, its options, the
    `settings` that they describe, and the versions of code and libraries.

    Raises
    ------
    ValueError
        If the folder holds other results that would be overwritten, cannot be written, or is in use
        by another command.
    """
    given = plain(given)
    path = folder / _CONFIG
    config = {
        "experiment": experiment,
        "command": ["python", *sys.argv],
        "options": given,
        "settings": list(settings),
        "results": list(results),
    } | made_with()
    lock = writable_folder(folder).resolve() / ".lock"
    known = lock.exists()
    with _locked(lock, folder):
        old = _stored(path)
        if not overwrite:
            try:
                _check(folder, experiment, results, old, given)
            except ValueError:
                if not known:  # leave a foreign folder as it was
                    lock.unlink()
                raise
        # The user's code may have changed, and finished runs are kept by their keys.
        _remove(folder, [*results, *old.get("results", ())])
        for each in (folder, folder / "prices", folder / "records", folder / "models"):
            remove_abandoned(each)
        write_text(path, json.dumps(config, indent=2, allow_nan=False) + "\n")
        yield lock.parent


def _locked(path: Path, folder: Path) -> AbstractContextManager[Any]:
    """Lock a file for a block, and name this process in it; warns if that is impossible.

    `ValueError` if another command has locked it. The system unlocks the file of a killed one.
    """
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        held = lock.acquire()
    except Timeout:
        holder = ""
        with suppress(OSError):  # Windows locks also reading
            holder = path.read_text(encoding="utf-8")
        raise ValueError(
            f"another command is using {str(folder)!r}{holder}: wait until it has finished, or "
            "give another folder with --out"
        ) from None
    except OSError as error:  # on some network file systems
        warnings.warn(
            f"the folder {str(folder)!r} cannot be locked ({reason(error)}): run no other command "
            "in it at the same time",
            stacklevel=1,
        )
        return nullcontext()
    with suppress(OSError):  # the file of a different user
        path.write_text(f" (process {os.getpid()} on {platform.node()})", encoding="utf-8")
    return held


def _remove(folder: Path, patterns: Iterable[str]) -> None:
    """Remove files by their names or patterns, but none outside of the folder."""
    for pattern in patterns:
        if _OURS.fullmatch(pattern):
            for path in folder.glob(pattern):
                path.unlink()


def _stored(path: Path) -> dict[str, Any]:
    """The stored configuration of an experiment, empty if there is none."""
    with suppress(OSError, ValueError):
        config = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(config, dict) and {"experiment", "options", "results"} <= config.keys():
            return config
    return {}


def _check(
    folder: Path,
    experiment: str,
    results: Sequence[str],
    old: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
    """Reject a folder that holds results of other options, or unrelated files of these names."""
    instead = "give another folder with --out, or replace its results with --overwrite"
    if not old:
        found = [path for pattern in (_CONFIG, *results) for path in folder.glob(pattern)]
        if found:
            name = found[0].relative_to(folder)
            raise ValueError(
                f"{str(folder)!r} holds {name}, which does not belong to a {experiment}: {instead}"
            )
    elif old["experiment"] != experiment:
        raise ValueError(f"{str(folder)!r} holds a {old['experiment']}: {instead}")
    elif other := [
        name for name in {**given, **old["options"]} if old["options"].get(name) != given.get(name)
    ]:
        raise ValueError(
            f"{str(folder)!r} holds a {experiment} with different {', '.join(other)}: {instead}"
        )


def made_with() -> dict[str, Any]:
    """The versions of code and libraries that make results, for JSON."""
    packages = ("fl-edge-env", "gymnasium", "numba", "numpy", "pandas", "scipy", "torch")
    return {
        "commit": _git_commit(),
        "code": fledge_hash(),
        "python": platform.python_version(),
        "versions": installed(packages),
    }


def described(scenario: Scenario) -> dict[str, Any]:
    """A system and the weights of its objective, for JSON."""
    fields = plain(scenario.saved_fields())
    return {"scenario": fields, "lambda": scenario.lambda_, "V": scenario.V}


def models_of(titles: Iterable[str]) -> list[str]:
    """The patterns of the files with the final models of policies."""
    return [f"models/{file_name(title)}-seed-*.pt" for title in titles]


def default_folder(scenario: str, given: Mapping[str, Any]) -> Path:
    """``runs/<scenario>``, followed by the options that change results and are not the default."""
    words = [Path(scenario).stem]
    for option, value in given.items():
        name = option.replace("_", "-")
        if isinstance(value, bool):
            words.append(name if value else f"no-{name}")
        else:
            words.append(f"{name} {value}")
    name = file_name(" ".join(words)).strip("-")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def plain(value: Any) -> Any:
    """A value as JSON returns it: without arrays, tuples, paths or infinity."""

    def writable(own: Any) -> Any:
        return own.tolist() if isinstance(own, np.ndarray) else str(own)

    return json.loads(json.dumps(value, default=writable), parse_constant=lambda _: "inf")


def _git_commit() -> str | None:
    """The commit of this checkout, marked ``-dirty`` if files differ; None outside git."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            describe, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL, text=True
        ).strip()
    return None


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table atomically."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False)

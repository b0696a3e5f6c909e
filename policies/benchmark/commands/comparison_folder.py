"""The folder of a comparison: its configuration, going on with it, room for its results."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from fl_edge_env import Scenario
from fl_edge_env.files import atomic_path, check_regular, reason
from fl_edge_env.scenario.toml import describe_channel
from policies.benchmark.commands.comparison_options import (
    HOW_TO_RUN,
    KINDS,
    Options,
    as_values,
    fits,
    from_values,
)
from policies.benchmark.figures import PLOTS
from policies.benchmark.jobs import code_hash
from policies.own import names_own, own_source
from policies.progress import track
from policies.registry import POLICIES

# Options that do not change the result, and with it not the folder.
_SAME_RESULT = (*HOW_TO_RUN, "download", "out", "resume")
# Of these, what a command asks to be left behind.
_WANTED = ("save_models", "tensorboard")
_LONGEST_NAME = 100
# Rows of a table that are written at a time.
_CSV_ROWS = 20_000

RESULTS = (*PLOTS, "bounds.csv", "partition.png", "rounds.csv", "summary.csv", "timing.csv")


def stored(given: Options) -> tuple[Options, dict[str, Any]]:
    """Options and configuration of the comparison that ``resume`` names.

    Parameters
    ----------
    given : comparison_options.Options
        Those of the command: `resume`, and of the others only how to run.

    Returns
    -------
    options : comparison_options.Options
        Those of the comparison, to be run as `given` says.
    settings : dict
        The configuration as it is in the folder.

    Raises
    ------
    ValueError
        If another option is given, or the folder holds no configuration that can be used.
    """
    assert given.resume is not None
    defaults = as_values(Options())
    for name, value in as_values(given).items():
        if value != defaults[name] and name not in (*HOW_TO_RUN, "resume"):
            raise ValueError(
                f"--resume takes the options from the folder: {name} cannot be given with "
                f"it, only {', '.join(HOW_TO_RUN)}"
            )
    path = given.resume / "config.json"
    if not given.resume.is_dir():
        found = "that is a file" if given.resume.exists() else "there is no such folder"
        raise ValueError(
            f"--resume names the folder of a comparison, got {str(given.resume)!r}: {found}"
        )
    try:
        check_regular(path)
        settings: dict[str, Any] = json.loads(path.read_text())
        if missing := {"command", "scenario", "code"} - settings.keys():
            raise KeyError(*missing)
        for name, value in settings["options"].items():
            if name in KINDS and not fits(value, KINDS[name]):
                raise ValueError(f"{name} cannot be {value!r}")
        options = from_values(settings["options"])
        options = dataclasses.replace(
            options,
            out=given.resume,
            **{name: getattr(given, name) for name in HOW_TO_RUN}
            # What was asked for once is still wanted.
            | {name: getattr(given, name) or getattr(options, name) for name in _WANTED},
        )
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"{str(given.resume)!r} is not the folder of a comparison that can go on: "
            f"cannot use {path.name} ({reason(error)})"
        ) from None
    return options, settings


def continued(old: dict[str, Any] | None, new: dict[str, Any], console: Console) -> dict[str, Any]:
    """The configuration of a comparison; of one that goes on, the new must fit the old.

    Parameters
    ----------
    old : dict or None
        What `stored` has found, None for a comparison that begins.
    new : dict
        What the same options give now.
    console : rich.console.Console
        Where to tell that the code has changed.

    Returns
    -------
    dict
        The new configuration, with the command with which the comparison began.

    Raises
    ------
    ValueError
        If the scenario, a trained agent or a policy of one's own has changed.
    """
    if old is None:
        return new
    if old["scenario"] != new["scenario"]:
        raise ValueError(
            f"the scenario {new['options']['scenario']!r} has changed since the comparison began: "
            "restore its file, or start anew in another folder"
        )
    if old.get("agents", {}) != new["agents"]:
        raise ValueError(
            "a trained agent or a file of one's own has changed since the comparison began: "
            "start anew in another folder"
        )
    if old["code"] != new["code"]:
        console.print(
            "The code or a library has changed since: runs and checkpoints of before are not used.",
            style="yellow",
        )
    return new | {"command": old["command"]}


def config(options: Options, scenario: Scenario) -> dict[str, Any]:
    """All that is needed to repeat the run.

    Parameters
    ----------
    options : comparison_options.Options
        Those of the comparison.
    scenario : Scenario
        The system, with training as it is fitted to the data.

    Returns
    -------
    dict
        What goes to ``config.json``.
    """
    return (
        {"command": ["python", *sys.argv], "options": plain(as_values(options))}
        | system(scenario)
        | versions()
        | {"agents": file_hashes([*options.policies, *named_files(options)])}
    )


def named_files(options: Options) -> list[str]:
    """What may stand in a file of one's own, beside the policies.

    Parameters
    ----------
    options : comparison_options.Options
        Those of a comparison.
    """
    return [name for name in (options.training.dataset, options.training.model) if name is not None]


def system(scenario: Scenario) -> dict[str, Any]:
    """A system and the weights of its objective, for JSON.

    Parameters
    ----------
    scenario : Scenario
        The system.
    """
    fields = scenario.saved_fields() | {"channel": describe_channel(scenario.channel)}
    return {"scenario": plain(fields), "lambda": scenario.lambda_, "V": scenario.V}


def versions() -> dict[str, Any]:
    """The code that runs here: its commit and hash, and the versions of Python and libraries."""
    packages = ("fl-edge-env", "gymnasium", "numba", "numpy", "pandas", "scipy", "torch")
    return {
        "commit": _git_commit(),
        "code": code_hash(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


def file_hashes(names: Sequence[str]) -> dict[str, str]:
    """Hashes of the files behind trained agents and what is one's own, which may change.

    Parameters
    ----------
    names : sequence of str
        Policies, as `policies.make_policy` takes them, data sets and networks.
    """
    files = []
    for name in names:
        path = Path(name)
        if name.partition(":")[0] in POLICIES:
            continue
        if (agent := path / "agent.pt").exists():
            files.append(agent)
        elif names_own(name) and (source := own_source(name)) is not None:
            files.append(source)
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def plain(value: Any) -> Any:
    """A value as it comes back from JSON, which knows no arrays, tuples, paths or infinity.

    Parameters
    ----------
    value : object
        Nested dictionaries, lists and numbers.
    """
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return "inf" if value == math.inf else value


def _version(package: str) -> str | None:
    """Installed version of a package, None where it is absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of this checkout, marked where files differ from it; None outside git."""
    here = Path(__file__)
    # An installed copy may lie in a checkout of something else, which does not know its files.
    known = ["git", "ls-files", "--error-unmatch", here.name]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        for command in (known, describe):
            result = subprocess.run(
                command, cwd=here.parent, capture_output=True, text=True, check=True
            )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    text : str
        Its content.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table whole or not at all, some rows at a time: as text it may not fit in memory.

    Parameters
    ----------
    path : Path
        The file.
    table : pandas.DataFrame
        The table, of which the index is left out.
    """
    starts = range(0, max(len(table), 1), _CSV_ROWS)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for start in track(starts, f"writing {path.name}"):
            rows = table.iloc[start : start + _CSV_ROWS]
            rows.to_csv(file, index=False, header=start == 0)


def default_folder(options: Options) -> Path:
    """The folder of a comparison that is not given one, named by what sets it apart from others.

    Parameters
    ----------
    options : comparison_options.Options
        Those of the comparison.

    Returns
    -------
    Path
        ``runs/<scenario>``, and every option that changes the result and is not the default.
    """
    words = [Path(options.scenario).stem]
    defaults = as_values(Options())
    for field, value in as_values(options).items():
        if value == defaults[field] or field in ("scenario", *_SAME_RESULT):
            continue
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(name if value else f"no-{name}")
        else:
            words += [name, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words))
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def check_room(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse a folder with results that are not those of this comparison.

    Parameters
    ----------
    folder : Path
        The folder of the results.
    settings : dict
        The configuration of this comparison.

    Raises
    ------
    ValueError
        If it holds another comparison, or files of the same names that no comparison has left.
    """
    present = [name for name in RESULTS if (folder / name).exists()]
    path = folder / "config.json"
    if not path.exists():
        if present:
            raise ValueError(
                f"{str(folder)!r} holds {present[0]}, which no comparison has left there, and "
                "which this one would overwrite: give another folder with --out"
            )
        return
    try:
        check_regular(path)
        old = json.loads(path.read_text())
        kept = (*_SAME_RESULT, "data_dir")
        other = [
            name
            for name, value in settings["options"].items()
            if name not in kept and old["options"][name] != value
        ]
        if old["scenario"] != settings["scenario"]:
            other.append("scenario")
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"{str(path)!r} is not the configuration of a comparison ({reason(error)}): "
            "give another folder with --out"
        ) from None
    if other:
        raise ValueError(
            f"{str(folder)!r} holds another comparison, with another "
            f"{', '.join(dict.fromkeys(other))}: give another folder with --out"
        )

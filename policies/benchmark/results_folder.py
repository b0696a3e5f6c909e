"""The folder of an experiment: whose results it holds, their configuration, and going on."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import numpy as np
from filelock import FileLock, Timeout
from rich.console import Console

from fl_edge_env import Scenario
from fl_edge_env.files import (
    as_value_error,
    atomic_path,
    check_regular,
    read_text,
    reason,
    writable_folder,
)
from fl_edge_env.scenario.toml import describe_channel
from policies.benchmark.jobs import code_hash
from policies.benchmark.options import (
    HOW_TO_RUN,
    LEFT_BEHIND,
    SAME_RESULT,
    RunOptions,
    fits,
    from_json,
)
from policies.benchmark.runner import check_runner
from policies.progress import track
from policies.registry import POLICIES, is_saved_agent, runs_code
from policies.user_code import names_own, own_source

if TYPE_CHECKING:
    import pandas as pd

_Options = TypeVar("_Options", bound=RunOptions)

# Experiments that leave a summary of their runs, and the commands that make them.
_SUMMARISED = {"comparison": "compare", "leaderboard": "leaderboard"}
_LONGEST_NAME = 100
# Rows of a table that are written at a time.
_CSV_ROWS = 20_000


@dataclass(frozen=True)
class Kind:
    """A kind of experiment, and what it leaves in a folder.

    The settings of some kinds may change between two commands, as those in a file of one's own:
    what has not changed is then not run again.
    """

    name: str
    results: tuple[str, ...]
    config: str = "config.json"
    settings_may_change: bool = False


def reopened(options: _Options, kind: Kind) -> _Options:
    """The options, or with ``--resume`` those of its folder, to be run as the new ones say.

    Raises
    ------
    ValueError
        If how to run is wrong, another option is given with ``--resume``, or its folder holds no
        configuration that can be used, or names code of one's own that is not trusted.
    """
    check_runner(options.workers, options.backend, options.checkpoint_every)
    folder = options.resume
    if folder is None:
        return options
    allowed = [
        field.name
        for field in dataclasses.fields(options)
        if field.name in (*HOW_TO_RUN, *LEFT_BEHIND) and field.name != "out"
    ]
    for field in dataclasses.fields(options):
        given = getattr(options, field.name) != field.default
        # What has no default names the experiment.
        if given and field.name not in allowed and field.default is not dataclasses.MISSING:
            raise ValueError(
                f"--resume takes the options from the folder: {field.name} cannot be given with "
                f"it, only {', '.join(allowed)}"
            )
    _check_folder(folder, f"--resume names the folder of a {kind.name}, got")
    try:
        stored = _read(folder / kind.config)
        if stored["experiment"] != kind.name:
            raise ValueError(f"it is that of a {stored['experiment']}")
        kinds = get_type_hints(type(options))
        for name, value in stored["options"].items():
            if name in HOW_TO_RUN or not fits(value, kinds[name]):
                raise ValueError(f"{name} cannot be {value!r}")
        values = {name: from_json(v, kinds[name]) for name, v in stored["options"].items()}
        # What was asked for once is still wanted.
        values |= {
            name: getattr(options, name) or values[name] for name in LEFT_BEHIND if name in values
        }
        if missing := {"settings", "code", "agents", "command"} - stored.keys():
            raise KeyError(*missing)
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"{str(folder)!r} is not the folder of a {kind.name} that can go on: "
            f"cannot use {kind.config} ({reason(error)})"
        ) from None
    check_trusted(options, folder, values)
    return dataclasses.replace(options, **values, out=folder)


def _check_folder(folder: Path, told: str) -> None:
    if not folder.is_dir():
        found = "that is a file" if folder.exists() else "there is no such folder"
        raise ValueError(f"{told} {str(folder)!r}: {found}")


def check_trusted(options: RunOptions, origin: Path, values: Any) -> None:
    """Raise `ValueError` if values that a folder or file holds name code, without ``--trust``."""
    if not options.trust and (named := dict.fromkeys(_code_in(values))):
        raise ValueError(
            f"{str(origin)!r} names code, which would be run here: {', '.join(named)}. If you know "
            "where it is from, give --trust, too"
        )


def _code_in(values: Any, *, of_policies: bool = False) -> Iterator[str]:
    """What would be run of the strings in values, such as ``my_file.py:MyPolicy``."""
    if isinstance(values, str) and of_policies:
        policy, _, compression = values.partition("@")
        if runs_code(policy):
            yield policy
        yield from _code_in(compression)
    elif isinstance(values, str):
        place, _, name = values.rpartition(":")
        # The second as the model of a policy "predict".
        if (place and name.isidentifier()) or values.endswith(".zip"):
            yield values
    elif isinstance(values, Mapping):
        for name, value in values.items():
            if name != "label":
                yield from _code_in(value, of_policies=name in ("policies", "policy"))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _code_in(value, of_policies=of_policies)


def _configuration(
    kind: Kind, options: RunOptions, settings: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> dict[str, Any]:
    given = {
        field.name: plain(getattr(options, field.name))
        for field in dataclasses.fields(options)
        if field.name not in HOW_TO_RUN
    }
    return {
        "experiment": kind.name,
        "command": ["python", *sys.argv],
        "options": given,
        "settings": list(settings),
        "agents": file_hashes(named),
    } | made_with()


def made_with() -> dict[str, Any]:
    """The code and the libraries with which results are made, for JSON."""
    packages = ("fl-edge-env", "gymnasium", "numba", "numpy", "pandas", "scipy", "torch")
    return {
        "commit": _git_commit(),
        "code": code_hash(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


def described(scenario: Scenario) -> dict[str, Any]:
    """A system and the weights of its objective, for JSON."""
    fields = scenario.saved_fields() | {"channel": describe_channel(scenario.channel)}
    return {"scenario": plain(fields), "lambda": scenario.lambda_, "V": scenario.V}


@contextmanager
def claimed(
    folder: Path,
    kind: Kind,
    options: RunOptions,
    settings: Sequence[Mapping[str, Any]],
    named: Sequence[str],
    console: Console,
) -> Iterator[bool]:
    """Keep a folder for the block, if it is empty or holds this experiment.

    Its configuration is what a repetition needs: the options, the `settings`, and the versions of
    code, libraries and files of one's own among the policies, data sets and networks `named`.
    Yields whether results can be written: a finished experiment may be read where they cannot.

    Raises
    ------
    ValueError
        If the folder holds another experiment or files of others, cannot be written, or another
        command is at work in it.
    """
    config, resumed = _configuration(kind, options, settings, named), options.resume is not None
    _check(folder, kind, config, resumed=resumed)
    try:
        writable_folder(folder)
    except ValueError:
        if not resumed:
            raise
        yield False
        return
    with _only_one(folder):
        old = _check(folder, kind, config, resumed=resumed)
        if old is not None and resumed:
            if old["code"] != config["code"]:
                console.print(
                    "The code or a library has changed since: runs and checkpoints of before are "
                    "not used.",
                    style="yellow",
                )
            config = config | {"command": old["command"]}
        if old is not None and any(old.get(n) != config[n] for n in ("settings", "code", "agents")):
            for name in kind.results:  # the new configuration is not theirs
                (folder / name).unlink(missing_ok=True)
        write_text(folder / kind.config, json.dumps(config, indent=2, allow_nan=False) + "\n")
        yield True


def _check(
    folder: Path, kind: Kind, config: dict[str, Any], *, resumed: bool
) -> dict[str, Any] | None:
    """The configuration that a folder holds, if it is one of this experiment."""
    elsewhere = "give another folder with --out"
    for path in folder.glob("*.json"):
        if path.name != kind.config and (name := _experiment_of(path)) not in (None, kind.name):
            raise ValueError(f"{str(folder)!r} holds a {name}: {elsewhere}")
    path = folder / kind.config
    if not path.exists():
        if present := [name for name in kind.results if (folder / name).exists()]:
            raise ValueError(
                f"{str(folder)!r} holds {present[0]}, which no {kind.name} has left there, and "
                f"which this one would overwrite: {elsewhere}"
            )
        return None
    try:
        old = _read(path)
        found = old["experiment"]
        other = [
            name
            for name, value in config["options"].items()
            if found == kind.name and name not in SAME_RESULT and old["options"][name] != value
        ]
        changed = found == kind.name and old["settings"] != config["settings"]
        agents_changed = old["agents"] != config["agents"]
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"{str(path)!r} is not the configuration of a {kind.name} ({reason(error)}): "
            f"{elsewhere}"
        ) from None
    if found != kind.name:
        raise ValueError(f"{str(folder)!r} holds a {found}: {elsewhere}")
    if resumed and (changed or agents_changed):
        what = "a system" if changed else "a trained agent or a file of one's own"
        raise ValueError(
            f"{what} has changed since the {kind.name} began: restore its file, or start anew in "
            "another folder"
        )
    if changed and not other and not kind.settings_may_change:
        other.append("scenario")
    if other:
        raise ValueError(
            f"{str(folder)!r} holds another {kind.name}, with another {', '.join(other)}: "
            f"{elsewhere}"
        )
    return old


def _read(path: Path) -> dict[str, Any]:
    value = json.loads(read_text(path))
    if not isinstance(value, dict):
        raise ValueError("it is not a table")
    return value


def _experiment_of(path: Path) -> str | None:
    with suppress(Exception):  # it may be anybody's
        return str(_read(path)["experiment"])
    return None


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Keep other commands out of a folder, by a lock that ends with the process, also if killed."""
    lock, note = FileLock(folder / ".lock"), folder / ".at-work"
    for path in (folder / ".lock", note):
        if path.is_symlink():  # a stranger's may lead to a file of one's own
            raise ValueError(f"cannot write {str(path)!r}: it is a link")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = note.read_text(encoding="utf-8") if note.exists() else "another process"
        raise ValueError(
            f"another command is at work in {str(folder)!r} ({who}): wait until it has ended, or "
            "give another folder with --out"
        ) from None
    except OSError as error:
        raise ValueError(f"cannot write {str(folder / '.lock')!r}: {error.strerror}") from None
    try:
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        with suppress(OSError):  # no room to say who it is
            note.write_text(f"process {os.getpid()} on {socket.gethostname()}, since {now}")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def default_folder(options: RunOptions, scenario: str) -> Path:
    """``runs/<scenario>``, and every option that changes the result and is not the default."""
    words = [Path(scenario).stem]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value == field.default or field.name in ("scenario", "file", *SAME_RESULT):
            continue
        name = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(name if value else f"no-{name}")
        else:
            words += [name, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words))
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def file_hashes(names: Sequence[str]) -> dict[str, str]:
    """Hashes of the files behind trained agents and what is one's own, which may change."""
    files = []
    for name in names:
        if is_saved_agent(name) and (saved := Path(name.removeprefix("predict:"))).is_file():
            files.append(saved)
        elif name.partition(":")[0] in POLICIES:
            continue
        elif (agent := Path(name) / "agent.pt").exists():
            files.append(agent)
        elif names_own(name) and (source := own_source(name)) is not None:
            files.append(source)
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def plain(value: Any) -> Any:
    """A value as it comes back from JSON, which knows no arrays, tuples, paths or infinity."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return "inf" if value == math.inf else value


def _version(package: str) -> str | None:
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


def read_runs(folder: Path, *, rounds: bool) -> pd.DataFrame:
    """The runs in a folder, which may be a stranger's; see `policies.benchmark.load`."""
    import pandas as pd

    _check_folder(folder, "load reads a folder of results, got")
    with as_value_error(f"{str(folder)!r} is no folder of results: cannot use config.json (", ")"):
        config = _read(folder / "config.json")
        kind, scenario = str(config["experiment"]), config["options"].get("scenario")
    path = folder / ("rounds.csv" if rounds else "summary.csv")
    if kind not in _SUMMARISED:
        kinds = ", ".join(_SUMMARISED)
        raise ValueError(f"{str(folder)!r} holds a {kind}, and load reads the runs of: {kinds}")
    if rounds and kind != "comparison":
        raise ValueError(f"{str(folder)!r} holds a {kind}, which keeps no rounds: leave them out")
    if not path.exists():
        raise ValueError(
            f"{str(folder)!r} is not finished, as there is no {path.name}: fl-edge "
            f"{_SUMMARISED[kind]} --resume {str(folder)!r} goes on"
        )
    with as_value_error(f"cannot read {str(path)!r}: "):
        check_regular(path)
        words = ("setting", "policy", "status", "status_reason")
        # A policy may be called NA.
        table = pd.read_csv(
            path, dtype=dict.fromkeys(words, str), keep_default_na=False, na_values=[""]
        )
        if "setting" not in table:
            table.insert(0, "setting", Path(str(scenario)).stem)
        if missing := {"setting", "policy", "seed"} - set(table):
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
    return table.fillna({"status_reason": ""}) if "status_reason" in table else table


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table whole or not at all, some rows at a time: as text it may not fit in memory."""
    starts = range(0, max(len(table), 1), _CSV_ROWS)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for start in track(starts, f"writing {path.name}"):
            rows = table.iloc[start : start + _CSV_ROWS]
            rows.to_csv(file, index=False, header=start == 0)

"""The file of a leaderboard: settings and schedulers in TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean, is_line
from fl_edge_env.files import as_value_error, read_text, user_path
from policies import benchmark
from train_fl.commands.options import (
    FIELDS,
    SCENARIO_FIELDS,
    TRAINING_FIELDS,
    CompareOptions,
    PolicyOptions,
    SystemOptions,
    TrainOptions,
)
from train_fl.commands.settings import PolicySpec

# Leaderboards of this package, each next to the stored runs of its schedulers.
SUITES = Path(benchmark.__file__).parent / "suites"

# The options of ``fl-edge compare``, by group, and the types of the keys that a setting may have.
_GROUPS: dict[str, Any] = {
    "system": SystemOptions,
    "policy": PolicyOptions,
    "training": TrainOptions,
}
_NO_KEYS = ("set", "fields_in_file", "policies", "data_dir", "save_models")
SETTING_KEYS: dict[str, Any] = {
    name: kind
    for options in _GROUPS.values()
    for name, kind in get_type_hints(options).items()
    if name not in _NO_KEYS
}
SETTING_KEYS |= FIELDS
SETTING_KEYS["channel"] = str | dict  # a table has the channel's parameters


@dataclass(frozen=True)
class FileSetting:
    """A setting as options of ``fl-edge compare``, and its policies."""

    name: str
    options: CompareOptions
    policies: tuple[PolicySpec, ...]


def find_leaderboard(file: Path) -> tuple[Path, pd.DataFrame | None]:
    """The path of a leaderboard, with its stored runs if `file` names one of this package.

    `ValueError` for a name without suffix that is neither a leaderboard nor a file.
    """
    names = sorted(path.stem for path in SUITES.glob("*.toml"))
    if str(file) in names:
        path = SUITES / f"{file}.toml"
        # A policy may be called NA or null.
        runs = pd.read_csv(path.with_suffix(".csv"), keep_default_na=False, na_values=[""])
        return path, runs.fillna({"status_reason": ""})
    file = user_path(file)
    if not file.suffix and not file.exists():
        raise ValueError(
            f"a leaderboard must be a TOML file or one of {', '.join(names)}, got {str(file)!r}"
            f"{did_you_mean(str(file), names)}"
        )
    return file, None


def read_leaderboard(path: Path, data_dir: Path = Path("data")) -> list[FileSetting]:
    """Read the file of a leaderboard.

    Each table ``[[settings]]`` has a `name` and any of `SETTING_KEYS`: options of ``fl-edge
    compare``, and the fields of its ``--set``. It trains only with ``train = true``. Its
    ``schedulers`` are names, or tables with a `name`, perhaps a `label`, and keywords of the
    policy. Keys above the settings are their defaults. `ValueError` if something is wrong.
    """
    with as_value_error(f"cannot read the leaderboard {str(path)!r}: "):
        values = tomllib.loads(read_text(path))
    where = path.name
    tables = values.pop("settings", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise ValueError(f"{where} needs one or more tables [[settings]]")
    defaults = _checked(values, (*SETTING_KEYS, "schedulers"), f"{where} above the settings")
    settings = [_setting(defaults, table, where, data_dir) for table in tables]
    names = [setting.name for setting in settings]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"settings must have distinct names, {twice[0]!r} occurs twice in {where}")
    return settings


def _setting(
    defaults: dict[str, Any], table: dict[str, Any], file: str, data_dir: Path
) -> FileSetting:
    name = table.get("name")
    if not is_line(name):
        raise ValueError(
            f"a setting of {file} needs a name in one line, without spaces around it, got {name!r}"
        )
    where = f"setting {name!r}"
    own = _checked(table, ("name", *SETTING_KEYS, "schedulers"), where)
    values = {"train": False} | defaults | own
    training = {*get_type_hints(TrainOptions)} | TRAINING_FIELDS.keys() - SCENARIO_FIELDS.keys()
    unused = [key for key in own if key in training - {"train"}]
    if unused and not values["train"]:
        raise ValueError(f"{where}: {unused[0]} needs training: give it train = true")
    entries = values.pop("schedulers", None)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{where} needs a list schedulers, its own or above the settings")
    policies = tuple(_policy_spec(entry, where) for entry in entries)
    values["fields_in_file"] = {key: value for key, value in values.items() if key in FIELDS}
    values["data_dir"] = data_dir
    groups = {
        group: options(**{key: values[key] for key in get_type_hints(options) if key in values})
        for group, options in _GROUPS.items()
    }
    return FileSetting(name, CompareOptions(**groups), policies)


def _checked(values: dict[str, Any], keys: tuple[str, ...], where: str) -> dict[str, Any]:
    """The values, if each has an allowed key and the type of the key."""
    for key, value in values.items():
        if key not in keys:
            nearest = did_you_mean(key, keys) or f": it may have {', '.join(keys)}"
            raise ValueError(f"{where} cannot have a key {key!r}{nearest}")
        kind = SETTING_KEYS.get(key, type(value))
        kinds = get_args(kind) or (kind,)
        number = float in kinds and type(value) is int
        for_each = key in Scenario.per_device_fields and type(value) is list
        if type(value) not in kinds and not number and not for_each:
            raise ValueError(f"{where}: {key} must be {_WORDS[kinds[0]]}, got {value!r}")
    return values


_WORDS = {bool: "true or false", float: "a number", int: "an integer", str: "a string"}


def _policy_spec(entry: object, where: str) -> PolicySpec:
    if isinstance(entry, str):
        return PolicySpec(entry)
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError(
            f"{where}: a scheduler must be a name or a table with a name, got {entry!r}"
        )
    options = {key: value for key, value in entry.items() if key not in ("name", "label")}
    return PolicySpec(entry["name"], options, entry.get("label"))

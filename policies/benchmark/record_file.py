"""The file of a record, with a checksum of its name and content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_edge_env.files import atomic_path
from policies.benchmark.accounts import DeviceAccounts
from policies.benchmark.fingerprint import Fingerprint
from policies.benchmark.records import Record, seed_column


def save_record(record: Record, path: Path, model: Path | None = None) -> None:
    """Write a record atomically, with the hash of the run's final model, if there is one."""
    rounds = record.rounds
    columns: dict[str, Any] = {f"rounds.{name}": rounds[name].to_numpy() for name in rounds}
    columns["rounds.seed"] = columns["rounds.seed"].astype(str)  # of any size
    if record.accounts is not None:
        columns |= {f"accounts.{n}": value for n, value in record.accounts._asdict().items()}
    if model is not None and model.exists():
        columns["model"] = _file_hash(model)
    columns = {name: np.asarray(value) for name, value in columns.items()}
    with atomic_path(path) as temporary:
        np.savez(temporary, checksum=np.array(_checksum(path, columns)), **columns)


def load_record(path: Path, model: Path | None = None) -> Record | None:
    """The record in a file, or None if the file is missing, damaged, edited or renamed.

    The same holds for the file of the run's final model, if it is given.
    """
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            columns = {name: file[name] for name in file.files}
        if columns.pop("checksum") != _checksum(path, columns):
            return None
        if model is not None and columns.get("model") != _file_hash(model):
            return None
        parts: dict[str, dict[str, Any]] = {}
        for name, values in columns.items():
            part, _, column = name.partition(".")
            parts.setdefault(part, {})[column] = values
        rounds = pd.DataFrame(parts["rounds"])
        rounds["seed"] = seed_column([int(seed) for seed in rounds["seed"]])
        accounts = DeviceAccounts(**parts["accounts"]) if "accounts" in parts else None
        return Record(rounds, accounts)
    except Exception:  # a damaged file can raise anything
        return None


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checksum(path: Path, columns: dict[str, Any]) -> str:
    return Fingerprint().of((path.name, columns))

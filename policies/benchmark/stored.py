"""Finished runs as files, named by everything that determines them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd

from fl_edge_env import Scenario
from fl_edge_env.files import atomic_path
from policies.base import Policy
from policies.benchmark.records import DeviceAccounts, Record
from policies.outcome import DualPrices, outcome_prices, remember_prices
from policies.user_code import is_reference, loaded
from policies.user_files import PACKAGES, is_user_module, sources

# Libraries of which another version can change a result.
_LIBRARIES = (
    "gymnasium",
    "numba",
    "numpy",
    "scikit-learn",
    "sb3-contrib",
    "scipy",
    "stable-baselines3",
    "torch",
    "torchvision",
)


class _Hasher(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles values in a way that is the same in every process; nothing reads the pickles."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            return str, (obj.dtype, obj.detach().cpu().numpy())
        if isinstance(obj, np.generic) or (type(obj) is np.ndarray and not obj.dtype.hasobject):
            # By its numbers: files return another layout in memory, and arrays that can be changed.
            # From a pickle, an equal dtype is another object.
            return str, (str(obj.dtype), obj.shape, obj.tobytes())
        if type(obj).__module__.startswith("fl_edge_env.channels."):
            # Without what it has computed; a recording counts by its content, not by its file.
            fields = {each.name: getattr(obj, each.name) for each in dataclasses.fields(obj)}
            recording = getattr(obj, "recording", None)
            if recording is not None:
                fields |= {"path": "", "recording": tuple(recording)}
            return type(obj), (fields,)
        return super().reducer_override(obj)


def values_hash(*values: object) -> str:
    """Hash of values; raises any exception if one of them cannot be pickled."""
    with io.BytesIO() as file:
        _Hasher(file).dump(values)
        return hashlib.sha256(file.getvalue()).hexdigest()


def own_code(policy: Policy) -> list[ModuleType]:
    """The user's modules that define a policy, its selector and the network of its agent."""
    agent = getattr(policy, "model", None)
    network = getattr(agent, "network", None)
    parts = [policy, *vars(policy).values(), *(() if network is None else network.modules())]
    modules = dict.fromkeys(sys.modules.get(type(part).__module__) for part in parts)
    return [module for module in modules if module is not None and is_user_module(module)]


def code_of_place(name: str) -> str:
    """Hash of the code that ``my_file.py:name`` names, which is loaded; empty for other texts."""
    return code_hash([loaded(name.rpartition(":")[0])]) if is_reference(name) else ""


def code_hash(modules: Iterable[ModuleType]) -> str:
    """Hash of the user's files that define and import modules, as they are now."""
    files = [(Path(file).name, code) for one in modules for file, code in sources(one).items()]
    return values_hash(sorted(files, key=str))


def key_of(*parts: object) -> str:
    """Key of a record that these parts, FLEdge and the libraries determine."""
    return values_hash([*map(values_hash, parts), fledge_hash()])


@cache
def fledge_hash() -> str:
    """Hash of FLEdge's sources and the libraries' versions, as this process first reads them."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(repr(installed(_LIBRARIES)).encode())
    return digest.hexdigest()


def installed(libraries: Iterable[str]) -> dict[str, str]:
    """The versions of those libraries that are installed."""
    versions = {}
    for library in libraries:
        with suppress(PackageNotFoundError):
            versions[library] = version(library)
    return versions


def save_record(record: Record, path: Path) -> None:
    """Write a record atomically."""
    columns: dict[str, Any] = {str(n): record.rounds[n].to_numpy() for n in record.rounds}
    if record.accounts is not None:
        columns |= {f"accounts.{n}": value for n, value in record.accounts._asdict().items()}
    with atomic_path(path) as temporary:
        np.savez(temporary, key=np.array(path.stem), **columns)


def load_record(path: Path, model: Path | None = None) -> Record | None:
    """The record in a file; None if it is missing, damaged or renamed, or its model is missing."""
    if model is not None and not model.exists():
        return None
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            columns = {name: file[name] for name in file.files}
        if columns.pop("key") != path.stem:
            return None
        names = [name for name in columns if name.startswith("accounts.")]
        accounts = {name.removeprefix("accounts."): columns.pop(name) for name in names}
        return Record(pd.DataFrame(columns), DeviceAccounts(**accounts) if accounts else None)
    except Exception:  # a damaged file can raise anything
        return None


def keep_prices(scenario: Scenario, folder: Path) -> None:
    """Search for the outcome prices of a system, unless a folder has them."""
    file = folder / f"{key_of(scenario)}.npz"
    kept = load_record(file)
    if kept is None:
        save_record(Record(pd.DataFrame(outcome_prices(scenario)._asdict())), file)
    else:
        remember_prices(scenario, DualPrices(*kept.rounds.to_numpy().T))

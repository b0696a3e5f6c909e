"""States of an unfinished run on disk, from which it goes on after a crash."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.files import atomic_path

# Everything that a run needs to go on, by name; numbers are arrays without axes.
State: TypeAlias = dict[str, NDArray[Any]]

_FORMAT = 1


@runtime_checkable
class Resumable(Protocol):
    """An environment whose episode can be saved and taken up again."""

    def state(self) -> State:
        """The state of the episode, apart from its seed."""

    def restore(self, seed: int, state: Mapping[str, NDArray[Any]]) -> Any:
        """Take up the episode of a seed again; returns the observation."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: the newest, and the one before in case it is damaged.

    They are NumPy's ``.npz`` files without pickled objects, which carry checksums.

    Parameters
    ----------
    folder : Path
        The folder, made where it is missing.
    key : str
        Identifies the run: a checkpoint of another is refused.
    every : int
        Rounds between two checkpoints.
    """

    folder: Path
    key: str
    every: int

    def save(self, num_rounds: int, state: State) -> None:
        """Write a checkpoint, whole or not at all, and remove all but the one before it.

        Parameters
        ----------
        num_rounds : int
            Rounds played.
        state : dict of ndarray
            What to save.
        """
        header = {"format": np.array(_FORMAT), "key": np.array(self.key)}
        self.folder.mkdir(exist_ok=True)
        with atomic_path(self.folder / f"{self.key}-{num_rounds}.npz") as temporary:
            np.savez(temporary, **header, **state)  # type: ignore[arg-type]
        for path in self._newest_first()[2:]:
            path.unlink()

    def load(self) -> State | None:
        """The newest checkpoint that is whole and of this run, or None.

        Warns of those that are refused, with the reason.
        """
        for leftover in self.folder.glob(f".{self.key}-*"):  # of a save that was cut short
            leftover.unlink()
        for path in self._newest_first():
            try:
                return self._read(path)
            except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
                warnings.warn(
                    f"the checkpoint {str(path)!r} is refused: {error}",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return None

    def clear(self) -> None:
        """Remove all checkpoints of the run."""
        for path in self._newest_first():
            path.unlink()

    def _newest_first(self) -> list[Path]:
        found = {
            int(match[1]): path
            for path in self.folder.glob(f"{self.key}-*.npz")
            if (match := re.fullmatch(r".*-(\d+)\.npz", path.name))
        }
        return [found[num_rounds] for num_rounds in sorted(found, reverse=True)]

    def _read(self, path: Path) -> State:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if int(file["format"]) != _FORMAT:
                raise ValueError(f"its format is {file['format']}, this version reads {_FORMAT}")
            if str(file["key"]) != self.key:
                raise ValueError("it belongs to a run with other settings, code or libraries")
            return {name: file[name] for name in file.files if name not in ("format", "key")}


def join(parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> State:
    """One state out of several, each name led by that of its part."""
    return {f"{name}.{key}": v for name, state in parts.items() for key, v in state.items()}


def part(name: str, state: Mapping[str, NDArray[Any]]) -> State:
    """The state that `join` was given under a name."""
    lead = f"{name}."
    return {key.removeprefix(lead): v for key, v in state.items() if key.startswith(lead)}

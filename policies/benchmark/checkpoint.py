"""States of an unfinished run on disk, from which it goes on after a crash."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.files import atomic_path, check_zip, in_bytes, reason

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


# Checkpoints of a run while it writes one: that, the newest, and the one before.
MOST_CHECKPOINTS = 3


@dataclass
class Checkpoints:
    """The checkpoints of one run: the newest, and the one before in case that is damaged.

    They are NumPy's ``.npz`` files without pickled objects, which carry checksums. In a run on
    several machines the folder must be one that they share. It is made where it is missing.
    """

    folder: Path
    key: str  # of the run: a checkpoint of another is refused
    every: int  # rounds between two checkpoints
    _failing: bool = field(default=False, init=False, repr=False)

    def save(self, num_rounds: int, state: State) -> None:
        """Write a checkpoint, whole or not at all, and keep of the others the one before it.

        Where it cannot be written, as on a full disk, the first of such failures one after the
        other is told as a `RuntimeWarning`, and the older ones are kept. `ValueError` for an array
        of objects, which only a pickle could save.
        """
        for name, values in state.items():
            if values.dtype.hasobject:
                raise ValueError(f"a state must be arrays of numbers or text, {name} holds objects")
        path = self.folder / f"{self.key}-{num_rounds}.npz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_state(path, self.key, state)
            found = self._found()
            before = max((number for number in found if number < num_rounds), default=num_rounds)
            for number, older in found.items():
                if number not in (num_rounds, before):
                    older.unlink(missing_ok=True)
        except (OSError, ValueError) as error:  # of the latter kind where no file can be made
            if not self._failing:
                size = in_bytes(sum(values.nbytes for values in state.values()))
                why = getattr(error, "strerror", None) or reason(error)
                warnings.warn(
                    f"cannot write the checkpoint {str(path)!r} of {size}: {why}. The run goes on, "
                    f"and tries again after round {num_rounds + self.every}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._failing = True
        else:
            self._failing = False

    def load(self) -> State | None:
        """The newest checkpoint that is whole and of this run, or None.

        Warns of those that are refused, with the reason.
        """
        for _, path in sorted(self._found().items(), reverse=True):
            try:
                return read_state(path, self.key)
            except Exception as error:  # what a damaged file can raise has no end
                warnings.warn(
                    f"the checkpoint {str(path)!r} is refused: {reason(error)}",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return None

    def stored_bytes(self) -> int:
        """Size of the checkpoints that there are."""
        return sum(path.stat().st_size for path in self._found().values())

    def clear(self) -> None:
        """Remove all checkpoints of the run, and what saves that were cut short have left."""
        for path in (*self._found().values(), *self._matches(r"\.{}-\d+-[0-9a-f]+\.npz")):
            path.unlink(missing_ok=True)

    def _found(self) -> dict[int, Path]:
        """The checkpoints by their number of rounds."""
        return {
            int(path.stem.rsplit("-")[-1]): path
            for path in self._matches(r"{}-\d+\.npz")
            if path.is_file()
        }

    def _matches(self, pattern: str) -> list[Path]:
        """The files of a name with the key in it, which may be part of another run's key."""
        name = re.compile(pattern.format(re.escape(self.key)))
        return [path for path in self.folder.glob("*.npz") if name.fullmatch(path.name)]


def write_state(path: Path, key: str, state: State) -> None:
    """Write arrays of numbers or text to a file of the run with this key, whole or not at all."""
    names = np.array(list(state))
    header = {"format": np.array(_FORMAT), "key": np.array(key), "names": names}
    with atomic_path(path) as temporary:
        np.savez(temporary, **header, **state)  # type: ignore[arg-type]


def read_state(path: Path, key: str) -> State:
    """Read what `write_state` wrote.

    `ValueError` if it is of another run or format, or damaged; there may be other errors, too.
    """
    check_zip(path)
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        if int(file["format"]) != _FORMAT:
            raise ValueError(f"its format is {file['format']}, this version reads {_FORMAT}")
        if str(file["key"]) != key:
            raise ValueError("it belongs to a run with other settings, code or libraries")
        return {name: file[name] for name in file["names"].tolist()}


def join(parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> State:
    """One state out of several, each name led by that of its part."""
    return {f"{name}.{key}": v for name, state in parts.items() for key, v in state.items()}


def part(name: str, state: Mapping[str, NDArray[Any]]) -> State:
    """The state that `join` was given under a name."""
    lead = f"{name}."
    return {key.removeprefix(lead): v for key, v in state.items() if key.startswith(lead)}

"""Checkpoints from which an interrupted training run resumes."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from fl_edge_env import Allocation
from fl_edge_env.files import atomic_path, reason, remove_abandoned, user_cache
from policies.global_random import get_states, set_states


@dataclass
class Checkpoint:
    """The checkpoint of a run: a pickle in the user's cache folder.

    It is written atomically, with a checksum and the states of the global random generators.

    Parameters
    ----------
    key : str
        The run's key, a hash of everything that determines its result.
    every : int
        Rounds between two checkpoints.
    """

    key: str
    every: int
    _works: bool | None = field(default=None, init=False)  # None before the first
    _next: Allocation | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        """The checkpoint's file."""
        return user_cache() / f"{self.key}.checkpoint"

    def save(self, run: tuple[Any, ...], given: Mapping[str, object]) -> None:
        """Replace the checkpoint. If that fails, warn, and save no more.

        Parameters
        ----------
        run : tuple
            Environment, policy, observation and recorder, which `load` returns.
        given : mapping
            Objects by name that `load` also gets. The checkpoint holds only their names.
        """
        if self._works is False:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (
                atomic_path(self.path) as temporary,
                zipfile.ZipFile(temporary, "w") as archive,
                archive.open("run", "w", force_zip64=True) as file,
            ):
                _Pickler(file, given).dump((run, get_states()))
            if self._works is None:
                self._next = self._decision_after_load(given)
            self._works = True
        except Exception as error:  # a user's object can raise anything
            self._give_up(f"cannot write the checkpoint {str(self.path)!r}: {reason(error)}")

    def check(self, decision: Allocation) -> None:
        """Compare the decision after the first checkpoint with the reloaded policy's decision.

        If they differ, because the policy's pickle loses something, warn, and save no more.
        """
        if self._next is not None and not _equal(decision, self._next):
            self._give_up("the policy decides differently after it was pickled and loaded")
        self._next = None

    def load(self, given: Mapping[str, object]) -> Any:
        """The saved run; None without a checkpoint, or, with a warning, if it is damaged.

        The global generators of random numbers continue as after `save`.

        Parameters
        ----------
        given : mapping
            The objects that were passed to `save`.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                if archive.testzip() is not None:
                    raise ValueError("it is damaged")
                run = self._read(archive, given)
            self._works = True
            return run
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # a damaged file can raise anything
            warnings.warn(
                f"cannot read the checkpoint {str(self.path)!r}: {reason(error)}. The run restarts "
                "from the beginning",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def remove(self) -> None:
        """Remove the file, if there is one, and the temporary files of killed processes."""
        with suppress(OSError):
            remove_abandoned(self.path.parent, self.path.stem)
            self.path.unlink()

    def _read(self, archive: zipfile.ZipFile, given: Mapping[str, object]) -> Any:
        with archive.open("run") as file:
            run, states = _Unpickler(file, given).load()
        set_states(states)
        return run

    def _decision_after_load(self, given: Mapping[str, object]) -> Allocation:
        states = get_states()
        try:
            with zipfile.ZipFile(self.path) as archive:
                _, policy, observation, _ = self._read(archive, given)
            decision: Allocation = policy.decide(observation)
            return decision
        finally:
            set_states(states)

    def _give_up(self, why: str) -> None:
        self._works = False
        self.remove()
        warnings.warn(
            f"{why}. The run continues, but restarts from the beginning if it is interrupted",
            RuntimeWarning,
            stacklevel=3,
        )


def _equal(one: Allocation, other: Allocation) -> bool:
    return all(
        np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles given objects by their names."""

    def __init__(self, file: Any, given: Mapping[str, object]) -> None:
        super().__init__(file)
        self._names = {id(value): name for name, value in given.items()}

    def persistent_id(self, obj: object) -> str | None:
        return self._names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    """Finds given objects by their names."""

    def __init__(self, file: Any, given: Mapping[str, object]) -> None:
        super().__init__(file)
        self._given = given

    def persistent_load(self, pid: str) -> object:
        return self._given[pid]

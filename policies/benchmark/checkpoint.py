"""Checkpoints from which an interrupted training run resumes."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

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
    _works: bool = field(default=True, init=False)

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
        if not self._works:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (
                atomic_path(self.path) as temporary,
                zipfile.ZipFile(temporary, "w") as archive,
                archive.open("run", "w", force_zip64=True) as file,
            ):
                _Pickler(file, given).dump((run, get_states()))
        except Exception as error:  # a user's object can raise anything
            self._works = False
            self.remove()
            warnings.warn(
                f"cannot write the checkpoint {str(self.path)!r}: {reason(error)}. The run "
                "continues, but restarts from the beginning if it is interrupted",
                RuntimeWarning,
                stacklevel=2,
            )

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
                with archive.open("run") as file:
                    run, states = _Unpickler(file, given).load()
            set_states(states)
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

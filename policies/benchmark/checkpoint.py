"""Checkpoints from which an interrupted training run resumes."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl_edge_env.files import atomic_path, reason, remove_abandoned, user_cache
from policies.benchmark.changes import NO_CODE, UserCode
from policies.benchmark.copies import Pickler, Unpickler, dumps, loads, named
from policies.benchmark.fingerprint import Fingerprint, differing
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
    code : UserCode
        The user's code that the key covers.
    """

    key: str
    every: int
    code: UserCode = field(default=NO_CODE, repr=False)
    _warned: bool = field(default=False, init=False, repr=False)

    @property
    def path(self) -> Path:
        """The file."""
        return user_cache() / f"{self.key}.checkpoint"

    def save(
        self,
        run: object,
        given: Mapping[str, object],
        policy: object = None,
        env: object = None,
    ) -> None:
        """Replace the checkpoint; warn once if that fails.

        Parameters
        ----------
        run : object
            The object that `load` returns.
        given : mapping
            Objects by name that `load` also gets. The checkpoint holds only their names.
        policy : object, optional
            A part of the run. Nothing is saved if its pickle would lose something of it.
        env : object, optional
            Another part of the run, which may share objects with its code.
        """
        try:
            if policy is not None:
                _check_pickle(policy)
            changed = self.code.changed_file() or self.code.changed_value()
            if changed:
                raise ValueError(f"{changed} has changed, and the checkpoint would not hold it")
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (
                atomic_path(self.path) as temporary,
                zipfile.ZipFile(temporary, "w") as archive,
                archive.open("run", "w", force_zip64=True) as file,
            ):
                Pickler(file, {**given, **named(policy, env)}).dump((run, get_states()))
        except Exception as error:  # a user's object can raise anything
            if not self._warned:
                warnings.warn(
                    f"cannot write the checkpoint {str(self.path)!r}: {reason(error)}. The run "
                    "continues, but restarts from the beginning if it is interrupted",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True

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
                    run, states = Unpickler(file, given).load()
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


def _check_pickle(policy: object) -> None:
    """Raise `ValueError` if what a policy gives to be pickled does not come back as it was."""
    fingerprint = Fingerprint(copied=True)
    before = fingerprint.of(policy)
    if fingerprint.lost:
        raise ValueError(fingerprint.lost)
    if type(policy).__module__ == "__main__":
        return  # to load it would replace the methods of its class
    restored = loads(dumps(policy, policy))
    if Fingerprint(copied=True).of(restored) != before:
        names = ", ".join(differing(restored, policy)) or "some of its values"
        raise ValueError(f"a pickle of the policy changes {names}")

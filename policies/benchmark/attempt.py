"""A run to play: its files, and whether its result is what its key says."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from fl_edge_env.files import reason, writable_folder
from policies.benchmark.changes import NO_CODE, UserCode, patches
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.fingerprint import Fingerprint, SharedGeneratorError
from policies.benchmark.record_file import load_record, save_record
from policies.benchmark.records import Record
from policies.benchmark.run import AnyRun, Run, code_hash, inputs_hash, key_and_code
from policies.benchmark.whose import is_users
from policies.user_code import used_files


@dataclass(frozen=True)
class Attempt:
    """A run to play: its index among all runs, and the files that it reads and writes."""

    index: int
    run: AnyRun
    file: Path | None  # of its record
    code: UserCode
    checkpoint: Checkpoint | None
    model: Path | None
    fledge: str = field(default_factory=code_hash)  # of FLEdge's code, in this process

    def stored(self) -> Record | None:
        """The record of an earlier command, if it is kept."""
        record = None if self.file is None else load_record(self.file, self.model)
        if record is not None and self.checkpoint is not None:
            self.checkpoint.remove()  # the earlier command may have been killed before this
        return record

    def inputs(self) -> str:
        """Its `inputs_hash` if it has code of the user, whose values may have changed, or empty."""
        with suppress(Exception):  # in another process something may have no hash
            return inputs_hash(self.run, Fingerprint()) if self.code.inputs else ""
        return ""

    def play(self) -> tuple[Record, str]:
        """Play the run; returns its record, and why it is not what its key says, or empty."""
        before = self.inputs()
        loaded = {*sys.modules}
        used_files()
        differs = self.code != NO_CODE and before not in ("", self.code.inputs)
        changed = self.code.changed_value()
        with _swallowed_signals():
            record = self.run.play(self.checkpoint, self.model)
        late = used_files() - self.code.files.keys()
        if code_hash() != self.fledge:
            return record, "FLEdge's code has changed since this command began: run it again"
        replaced = [] if self.code.inputs else [*patches()]  # which other policies may have done
        if replaced:
            return record, f"other code has replaced {replaced[0]} since this command began"
        if changed:
            return record, (
                f"{changed} changed after its module was loaded, which resumed runs and other "
                "processes do not see: keep it in the policy"
            )
        if late and self.file is not None:
            return record, f"it loads {min(late)!r} while it runs: do so when the policy is made"
        after = self.inputs()
        if after != self.inputs():
            return record, (
                "reset ends in another state each time: draw random numbers from its seed, and "
                "keep other values in the policy"
            )
        new = [name for name in sys.modules.keys() - loaded if is_users(sys.modules[name])]
        if after != before and new:
            return record, f"it imports {min(new)} while it runs: import it at the head of its file"
        if after != before:
            return (
                record,
                "its code or task keeps values for the next run: reset them when a run begins",
            )
        if differs:
            return record, (
                "its code was changed after it was loaded, which other processes do not see: do so "
                "in its file"
            )
        return record, ""

    def keep(self, record: Record, why: str) -> None:
        """Save the record, unless it is not what its key says; warns then.

        `why` says so if the run itself noticed it.
        """
        file = self.code.changed_file()
        if file:
            why = f"{file!r} has changed since this command read it: run it again"
        if why:
            fate = "may be wrong" if self.file is None else "are not kept"
            warnings.warn(
                f"the results of {self.run.name} {fate}, because {why}",
                RuntimeWarning,
                stacklevel=3,
            )
        elif self.file is not None:
            save_record(record, self.file, self.model)
        if self.checkpoint is not None:
            self.checkpoint.remove()


def attempts_of(
    runs: Sequence[AnyRun],
    folder: Path | None,
    workers: int,
    checkpoint_every: int,
    models: Path | None,
) -> list[Attempt]:
    """The runs with their files in a folder, which is made."""
    if folder is None:
        codes = [_code(run, workers) for run in runs]
        if workers == 1:  # values that changed before are here as they are
            codes = [code._replace(values={}) for code in codes]
        return [
            Attempt(index, run, None, codes[index], None, None) for index, run in enumerate(runs)
        ]
    folder = writable_folder(folder).resolve()
    keys = _keys(runs)
    attempts = []
    for index, run in enumerate(runs):
        key, code = keys.get(index, ("", NO_CODE))
        file = folder / f"{key}.npz" if key else None
        checkpoint = Checkpoint(key, checkpoint_every, code) if key and run.trains else None
        model = None
        if models is not None and run.trains:
            model = folder / f"{key or f'not-kept-{index}'}.pt"
        attempts.append(Attempt(index, run, file, code, checkpoint, model))
    return attempts


def _keys(runs: Sequence[AnyRun]) -> dict[int, tuple[str, UserCode]]:
    """The keys of runs by their indices, and the user's code that they cover.

    Those that have no key are left out, with a warning. `ValueError` if two runs have the same key,
    and so would share a record, unless they are of different settings.
    """
    keys: dict[int, tuple[str, UserCode]] = {}
    unkept: dict[str, str] = {}
    owners: dict[str, AnyRun] = {}
    for index, run in enumerate(runs):
        try:
            key, code = key_and_code(run)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # code of the user can raise anything, `SystemExit` included
            unkept[run.name] = f"{type(error).__name__}: {reason(error)}"
            if run.trains:
                unkept[run.name] += ". FLEdge cannot check whether they depend on other runs"
            continue
        other = owners.setdefault(key, run)
        own = isinstance(run, Run) and isinstance(other, Run) and run.setting == other.setting
        if other is not run and own:
            raise ValueError(
                f"{other.name}, and {run.name}, are the same run: their policies, scenarios and "
                "training are equal. Leave one out"
            )
        keys[index] = key, code
    for name, why in unkept.items():
        warnings.warn(
            f"the results of {name} are not kept, because they have no key: {why}",
            RuntimeWarning,
            stacklevel=3,
        )
    return keys


def _code(run: AnyRun, workers: int) -> UserCode:
    """The user's code of a run that is not kept, to see whether it changes."""
    try:
        return key_and_code(run)[1]
    except (Exception, SystemExit) as error:
        # Without training, one process tries seeds again.
        if run.trains or workers > 1 or isinstance(error, SharedGeneratorError):
            warnings.warn(
                f"FLEdge cannot check whether the results of {run.name} depend on other runs or "
                f"processes: {type(error).__name__}: {reason(error)}",
                RuntimeWarning,
                stacklevel=3,
            )
    return NO_CODE


@contextmanager
def _swallowed_signals() -> Iterator[None]:
    """Raise `KeyboardInterrupt` after the block if code in it has swallowed one.

    A bare ``except:`` of the user does, and what it computes instead is no result.
    """
    noticed: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.append(number)
        before[signal.Signals(number)](number, frame)

    if threading.current_thread() is threading.main_thread():
        handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
        before = {one: handler for one, handler in handlers.items() if callable(handler)}
    for one in before:
        signal.signal(one, notice)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if noticed:
        raise KeyboardInterrupt

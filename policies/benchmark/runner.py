"""Plays runs in parallel; finished runs are files, so the same command resumes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import cloudpickle
import joblib
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import file_name, one_line, reason, writable_folder
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.records import Record
from policies.benchmark.run import AnyRun, Run
from policies.benchmark.stored import fledge_hash, load_record, save_record
from policies.user_code import load_places, loaded_places, place_of


@dataclass(frozen=True)
class PlannedRun:
    """A run to play: its index among all runs, its key, and the files that it reads and writes.

    A run that is not kept has neither key nor files.
    """

    index: int
    run: AnyRun
    key: str = ""
    file: Path | None = None
    checkpoint: Checkpoint | None = None
    model: Path | None = None

    def stored(self) -> Record | None:
        """The record of an earlier command, if it is kept."""
        record = None if self.file is None else load_record(self.file, self.model)
        if record is not None and self.checkpoint is not None:
            self.checkpoint.remove()  # the earlier command may have been killed before this
        return record

    def play(self) -> tuple[Record, bool]:
        """Play the run; returns its record, and whether that is what the key says."""
        policy: Any = self.run.make_policy()
        values = self.run.hash_of_values(policy) if self.key else ""
        record = self.run.play(policy, self.checkpoint, self.model)
        return record, not self.key or self.run.key(policy, values) == self.key

    def keep(self, record: Record, *, fits: bool) -> None:
        """Save the record if it fits the key, and remove the checkpoint."""
        if not fits:
            warnings.warn(
                f"FLEdge does not store the results of {self.run.name}: its files, its data or "
                "its initial values have changed since the command began. If no file has changed, "
                "seed its random generators",
                RuntimeWarning,
                stacklevel=3,
            )
        elif self.file is not None:
            save_record(record, self.file)
        if self.checkpoint is not None:
            self.checkpoint.remove()


class RunsFailedError(RuntimeError):
    """Some runs failed, with their tracebacks in `failures`; the message has at most ten.

    `records` has the records of the other runs.
    """

    def __init__(
        self, failures: list[tuple[AnyRun, Failure]], records: dict[AnyRun, Record]
    ) -> None:
        self.failures = [(run, failure.traceback) for run, failure in failures]
        self.records = records
        lines = [f"{run.name}: {failure.summary}" for run, failure in failures[:10]]
        lines += [f"and {len(failures) - 10} more"] if len(failures) > 10 else []
        number = "1 run" if len(failures) == 1 else f"{len(failures)} runs"
        super().__init__(f"{number} failed:\n" + "\n".join(lines))


class Failure(NamedTuple):
    """The error of a run: one line with its place in the user's code, and the full traceback."""

    summary: str
    traceback: str


class WorkerKilledError(RuntimeError):
    """The operating system has killed a worker process."""

    def __init__(self, workers: int) -> None:
        super().__init__(
            "the system has killed a worker process, usually because memory ran out: finished runs "
            "are kept. Rerun the command to resume; to use less memory, add "
            f"--workers {max(workers // 2, 1)}"
        )


# The index of a run, its record or error, and whether the record fits the run's key.
_Outcome: TypeAlias = tuple[int, Record | Failure, bool]


def play_runs(
    runs: Sequence[AnyRun],
    *,
    folder: Path | None = None,
    workers: int = 1,
    backend: str = "processes",
    checkpoint_every: int = 50,
    models: Path | None = None,
    console: Console | None = None,
) -> list[Record]:
    """Play runs and return their records, in the order of the runs.

    With a folder, the record of each run that is made from a text is a file in it, named by the
    run's key, and the run is not played again. Every `checkpoint_every` rounds such a run also
    saves a checkpoint in the user's cache folder if it trains, from which it resumes after a kill.
    With `models`, its final global model is copied there. On a cluster, the folder and the cache
    must be shared. A `console` shows a progress bar, which disappears at the end without a folder.

    Raises
    ------
    ValueError
        If `workers` or `checkpoint_every` is wrong, the folder cannot be written, or a
        given policy cannot be sent to another process.
    ModuleNotFoundError
        If `backend` is ``"ray"`` and Ray is not installed.
    RunsFailedError
        If a run failed, after all others have finished.
    WorkerKilledError
        If the operating system killed a worker; finished runs are kept.
    """
    check_runner(workers, checkpoint_every)
    if folder is not None:
        folder = writable_folder(folder).resolve()
    planned = [
        _planned(index, run, folder, checkpoint_every, models is not None)
        for index, run in enumerate(runs)
    ]
    first: dict[str | int, int] = {}  # equal runs of several settings are played once
    played = [first.setdefault(each.key or each.index, each.index) for each in planned]
    records: dict[int, Record] = {}
    left: list[PlannedRun] = []
    for index in dict.fromkeys(played):
        record = planned[index].stored()
        if record is None:
            left.append(planned[index])
        else:
            records[index] = record
    reused = _count(planned[index] for index in records)
    total = reused + _count(left)
    if console is not None and reused:
        console.print(f"{reused} of {total} results reused", highlight=False)
    failures: list[tuple[AnyRun, Failure]] = []
    if workers > 1 or backend == "ray":
        _check_sent(left)
    with (
        _bar(console, total, reused, transient=folder is None) as bar,
        closing(_outcomes(left, workers, backend)) as outcomes,
    ):
        for index, outcome, fits in outcomes:
            if isinstance(outcome, Failure):
                failures.append((runs[index], outcome))
            else:
                records[index] = outcome
                planned[index].keep(outcome, fits=fits)
            bar.advance(bar.task_ids[0], _count([planned[index]]))
    if models is not None:
        _copy_models(planned, models)
    if failures:
        by_run = zip(runs, map(records.get, played), strict=True)
        raise RunsFailedError(
            failures, {run: record for run, record in by_run if record is not None}
        )
    return [records[index] for index in played]


def _planned(
    index: int, run: AnyRun, folder: Path | None, checkpoint_every: int, save_model: bool
) -> PlannedRun:
    """A run with its key and files in a folder, if it can be kept; warns if it cannot."""
    if folder is None or (isinstance(run, Run) and run.text is None):
        return PlannedRun(index, run)
    policy: Any = run.policy
    try:
        values = run.hash_of_values(policy)
    except Exception as error:  # values of the user can raise anything
        warnings.warn(
            f"FLEdge does not store the results of {run.name} (a rerun repeats them): its policy "
            f"cannot be pickled: {reason(error)}",
            RuntimeWarning,
            stacklevel=3,
        )
        return PlannedRun(index, run)
    key = run.key(policy, values)
    checkpoint = Checkpoint(key, checkpoint_every) if run.trains else None
    model = folder / f"{key}.pt" if save_model and run.trains else None
    return PlannedRun(index, run, key, folder / f"{key}.npz", checkpoint, model)


def _check_sent(planned: Sequence[PlannedRun]) -> None:
    """Raise `ValueError` for a given policy that other processes cannot get."""
    runs = [each.run for each in planned if isinstance(each.run, Run) and each.run.text is None]
    for policy in {id(run.policy): run.policy for run in runs}.values():
        try:
            cloudpickle.dumps(policy)
        except Exception as error:  # values of the user can raise anything
            raise ValueError(
                f"the policy {policy.name} cannot be sent to other processes: {reason(error)}. "
                "Use workers=1, or make locks, open files and generators in reset"
            ) from None


def _copy_models(planned: Sequence[PlannedRun], models: Path) -> None:
    """Copy the final models of runs to a folder, under the policies' names."""
    for each in planned:
        run = each.run
        model = each.model
        if model is None or not isinstance(run, Run) or not model.exists():
            continue
        models.mkdir(exist_ok=True)
        shutil.copyfile(model, models / f"{file_name(run.title)}-seed-{run.seeds[0]}.pt")


def check_runner(workers: int, checkpoint_every: int) -> None:
    """Raise `ValueError` if `play_runs` would reject one of these."""
    integer_at_least(1, "workers", workers)
    integer_at_least(1, "checkpoint_every", checkpoint_every)


def _count(planned: Iterable[PlannedRun]) -> int:
    """The number of runs, a seed each, and of bounds."""
    return sum(len(each.run.seeds) for each in planned)


def _bar(console: Console | None, total: int, finished: int, *, transient: bool) -> Progress:
    """A progress bar with one task; hidden without a console, or if transient on no terminal."""
    hidden = console is None or (transient and not console.is_terminal)
    columns = (
        TextColumn("runs and bounds"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=transient, disable=hidden)
    bar.add_task("runs", total=total, completed=finished)
    return bar


def _outcomes(
    planned: list[PlannedRun], workers: int, backend: str
) -> Generator[_Outcome, None, None]:
    if not planned:
        return
    workers = min(workers, len(planned))
    if backend == "ray":
        yield from _on_ray(planned, workers)
        return
    if workers == 1:
        yield from map(_play, planned)
        return
    parallel = joblib.Parallel(
        n_jobs=workers,
        return_as="generator_unordered",
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    try:
        with _signals_of_workers():
            outcomes = parallel(joblib.delayed(_play_sent)(*call) for call in _sent(planned))
        with warnings.catch_warnings():
            # joblib replaces a process that has grown by 300 MB, as with torch.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
            yield from outcomes
    except BrokenProcessPool:
        time.sleep(0.5)  # a signal that killed the whole process group will arrive here
        raise WorkerKilledError(workers) from None


@contextmanager
def _signals_of_workers() -> Iterator[None]:
    """Let processes that start in the block ignore Ctrl-C, which a terminal sends to all.

    The handlers of this process, which stops the others, are restored after the block.
    """
    if threading.current_thread() is not threading.main_thread():  # others cannot set handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_ray(planned: list[PlannedRun], workers: int) -> Iterator[_Outcome]:
    # joblib's backend for Ray returns no result before all runs have finished.
    import ray
    from ray.exceptions import OutOfMemoryError, WorkerCrashedError

    with _signals_of_workers():
        address = os.environ.get("RAY_ADDRESS")
        if address:
            ray.init(address=address, log_to_driver=False)
        else:
            # "local": never join a cluster that already runs on this machine.
            ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote: Any = ray.remote  # its type stubs lack keywords
    variables = {
        "NUMBA_NUM_THREADS": "1",  # as with joblib, one core a run
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "random"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),  # for the user's imports
    }
    play = remote(max_retries=0, runtime_env={"env_vars": variables})(_play_sent)
    coming = _sent(planned)
    running = [play.remote(*call) for call in islice(coming, workers)]
    try:
        while running:
            (done,), running = ray.wait(running)
            try:
                outcome = ray.get(done)
            except (OutOfMemoryError, WorkerCrashedError):
                raise WorkerKilledError(workers) from None
            yield outcome
            running += [play.remote(*call) for call in islice(coming, 1)]
    finally:
        ray.shutdown()


def _sent(planned: Sequence[PlannedRun]) -> Iterator[tuple[int, bytes, list[str]]]:
    """The arguments of `_play_sent` for each run."""
    for each in planned:
        yield each.index, cloudpickle.dumps(each), loaded_places()


def _play_sent(index: int, sent: bytes, places: list[str]) -> _Outcome:
    """Play a pickled run, in a process that loads the user's files first."""
    try:
        load_places(places)
        planned = cloudpickle.loads(sent)
    except Exception as error:
        return index, _failure_of(error), False
    return _play(planned)


def _play(planned: PlannedRun) -> _Outcome:
    """Play a run."""
    try:
        return planned.index, *planned.play()
    except BaseException as error:  # code of the user can raise anything, `SystemExit` included
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        return planned.index, _failure_of(error), False


def _failure_of(error: BaseException) -> Failure:
    """The failure of a run that raised an error, which may have the round as a note."""
    lines = traceback.format_exception_only(error)
    firsts = [line.splitlines()[0] for line in lines if not line.startswith(" ")]
    place = place_of(error)
    # Errors of `user_errors` already have the place.
    words = [one_line(part.replace(place, "")) for part in firsts]
    return Failure(" ".join(words) + place, "".join(traceback.format_exception(error)))


def _start_worker(parent: int) -> None:
    """End a worker soon after the main process was killed, and read FLEdge's code as it is now."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # A handler, because processes that a policy starts would inherit that signals are ignored.
    signal.signal(signal.SIGINT, lambda *_: None)
    if os.name == "posix":
        default = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        os.register_at_fork(after_in_child=default)
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # as commands show them
    fledge_hash()


def is_interrupt(error: BaseException | None) -> bool:
    """True if an error comes from Ctrl-C, which compiled functions turn into a `SystemError`."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None

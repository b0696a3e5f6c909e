"""Plays runs in parallel; finished runs are files, so the same command resumes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import joblib
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fl_edge_env.checks import integer_at_least, one_of
from fl_edge_env.files import file_name, reason
from policies.benchmark.attempt import Attempt, attempts_of
from policies.benchmark.changes import NO_CODE
from policies.benchmark.copies import dumps, loads
from policies.benchmark.failures import Failure, RunsFailedError, failure_of
from policies.benchmark.records import Record
from policies.benchmark.run import AnyRun, Run, code_hash
from policies.user_code import load_places, loaded_places

BACKENDS = "processes", "ray"


class WorkerKilledError(RuntimeError):
    """The operating system has killed a worker process."""

    def __init__(self, workers: int) -> None:
        super().__init__(
            "the system has killed a worker process, usually because memory ran out: finished runs "
            "are kept. Rerun the command to resume; to use less memory, add "
            f"--workers {max(workers // 2, 1)}"
        )


# The index of a run, its record or error, and why the record is not kept, or an empty string.
_Outcome: TypeAlias = tuple[int, Record | Failure, str]


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

    With a folder, each record is a file in it, named by the run's key, and the run is not played
    again. Every `checkpoint_every` rounds a training run also saves a checkpoint in the user's
    cache folder, from which it resumes after a kill. With `models`, the final global model of each
    training run is copied there. On a cluster, both folders must be shared. A `console`
    shows a progress bar, which disappears at the end if there is no folder.

    Raises
    ------
    ValueError
        If `workers`, `backend` or `checkpoint_every` is wrong, or the folder cannot be written.
    ModuleNotFoundError
        If `backend` is ``"ray"`` and Ray is not installed.
    RunsFailedError
        If a run failed, after all others have finished.
    WorkerKilledError
        If the operating system killed a worker; finished runs are kept.
    """
    check_runner(workers, backend, checkpoint_every)
    attempts = attempts_of(runs, folder, workers, checkpoint_every, models)
    first: dict[Path | int, int] = {}  # equal runs of several settings are played once
    played = [first.setdefault(each.file or each.index, each.index) for each in attempts]
    records: dict[int, Record] = {}
    left: list[Attempt] = []
    for index in dict.fromkeys(played):
        record = attempts[index].stored()
        if record is None:
            left.append(attempts[index])
        else:
            records[index] = record
    failures: list[tuple[AnyRun, Failure]] = []
    with (
        _bar(console, len(left), len(records), transient=folder is None) as bar,
        closing(_outcomes(left, workers, backend)) as outcomes,
    ):
        for index, outcome, why in outcomes:
            if isinstance(outcome, Failure):
                failures.append((runs[index], outcome))
            else:
                records[index] = outcome
                attempts[index].keep(outcome, why)
            bar.advance(bar.task_ids[0])
    if models is not None:
        _copy_models([one for one in attempts if played[one.index] in records], models)
    if failures:
        raise RunsFailedError([_alone(*failure) for failure in failures])
    return [records[index] for index in played]


def _copy_models(attempts: Sequence[Attempt], models: Path) -> None:
    """Copy the final models of runs to a folder, under the policies' names."""
    titles: dict[str, str] = {}  # by their names as files
    for attempt in attempts:
        run = attempt.run
        model = attempt.model
        if model is None or not isinstance(run, Run) or not model.exists():
            continue
        models.mkdir(exist_ok=True)
        name = file_name(run.title)
        if titles.setdefault(name, run.title) != run.title:
            name += f"-{hashlib.sha256(run.title.encode()).hexdigest()[:8]}"
        shutil.copyfile(model, models / f"{name}-seed-{run.seeds[0]}.pt")
        if attempt.file is None:
            model.unlink()


def check_runner(workers: int, backend: str, checkpoint_every: int) -> None:
    """Raise `ValueError` if `play_runs` would reject one of these."""
    integer_at_least(1, "workers", workers)
    one_of("backend", backend, BACKENDS)
    integer_at_least(1, "checkpoint_every", checkpoint_every)


def _bar(console: Console | None, runs: int, finished: int, *, transient: bool) -> Progress:
    """A progress bar with one task; hidden without a console, or if transient on no terminal."""
    hidden = console is None or (transient and not console.is_terminal)
    columns = (
        TextColumn("runs"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=transient, disable=hidden)
    bar.add_task("runs", total=runs + finished, completed=finished)
    return bar


def _outcomes(
    attempts: list[Attempt], workers: int, backend: str
) -> Generator[_Outcome, None, None]:
    if not attempts:
        return
    workers = min(workers, len(attempts))
    if backend == "ray":
        yield from _on_ray(attempts, workers)
        return
    begin: dict[str, Any] = {}
    if workers > 1:
        begin = {"initializer": _begin, "initargs": (os.getpid(),)}
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", **begin)
    try:
        with _signals_of_workers() if workers > 1 else nullcontext():
            if workers > 1:
                calls = (joblib.delayed(_play_sent)(*call) for call in _sent(attempts))
            else:
                calls = (joblib.delayed(_play)(attempt) for attempt in attempts)
            outcomes = parallel(calls)
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


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Let processes that start in the block never get SIGTERM, which some systems send to all.

    Ray ends this process as soon as it misses one of its own, before a word can be said.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_ray(attempts: list[Attempt], workers: int) -> Iterator[_Outcome]:
    # joblib's backend for Ray returns no result before all runs have finished.
    if find_spec("ray") is None:
        raise ModuleNotFoundError(
            "backend 'ray' needs the package ray: install the extra `cluster`, "
            'for example by pip install -e ".[cluster]"'
        )
    import ray
    from ray.exceptions import OutOfMemoryError, RayError, WorkerCrashedError

    with _signals_of_workers(), _sigterm_blocked():
        address = os.environ.get("RAY_ADDRESS")
        if not address:
            # "local": never join a cluster that already runs on this machine.
            ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        else:
            try:
                ray.init(address=address, log_to_driver=False)
            except (ConnectionError, ValueError, RayError) as error:
                raise ConnectionError(
                    f"cannot join the Ray cluster at RAY_ADDRESS={address}: {reason(error)}. If it "
                    "wants a token, set RAY_AUTH_MODE=token here and on each of its machines"
                ) from None
    remote: Any = ray.remote  # its type stubs lack keywords
    variables = {
        "NUMBA_NUM_THREADS": "1",  # as with joblib, one core a run
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "random"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),  # for the user's imports
    }
    play = remote(max_retries=0, runtime_env={"env_vars": variables})(_play_sent)
    coming = _sent(attempts)
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


def _sent(attempts: Sequence[Attempt]) -> Iterator[tuple[int, bytes, list[str]]]:
    """The arguments of `_play_sent` for each run."""
    for attempt in attempts:
        run = attempt.run
        holders = [run.policy, run.make_env] if isinstance(run, Run) else []
        yield attempt.index, dumps(attempt, *holders), loaded_places()


def _play_sent(index: int, sent: bytes, places: list[str]) -> _Outcome:
    """Play a pickled run, in a process that loads the user's files first."""
    failed = load_places(places)
    try:
        attempt = loads(sent)
    except Exception as error:
        return index, failure_of(failed or error), ""
    return _play(attempt)


def _play(attempt: Attempt) -> _Outcome:
    """Play a run."""
    try:
        return attempt.index, *attempt.play()
    except BaseException as error:  # code of the user can raise anything, `SystemExit` included
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        return attempt.index, failure_of(error), ""


def _alone(run: AnyRun, failure: Failure) -> tuple[AnyRun, Failure]:
    """A failed run with a single seed that fails alike, found by halving, and its failure.

    If neither half of some seeds fails alike, these seeds are left.
    """
    if not isinstance(run, Run) or len(run.seeds) == 1:
        return run, failure
    middle = len(run.seeds) // 2
    for seeds in (run.seeds[:middle], run.seeds[middle:]):
        half = replace(run, seeds=seeds)
        outcome = _play(Attempt(0, half, None, NO_CODE, None, None))[1]
        if isinstance(outcome, Failure) and outcome.kind == failure.kind:
            return _alone(half, outcome)
    return run, failure._replace(summary=f"{failure.summary}; fewer seeds do not fail alike")


def _begin(parent: int) -> None:
    """Begin a worker: end it soon after the main process was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    code_hash()  # of the code that this process has just imported


def is_interrupt(error: BaseException | None) -> bool:
    """True if an error comes from Ctrl-C, which compiled functions turn into a `SystemError`."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None

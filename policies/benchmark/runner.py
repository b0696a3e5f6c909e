"""Many runs: in parallel, on disk as they finish, and not run again.

The one runner under `evaluate` and the examples. A job that is finished is a file; a killed
experiment that is started again runs what is missing and ends in the same result.
"""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import re
import shutil
import signal
import sysconfig
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import joblib
import numpy as np
import pandas as pd
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import atomic_path, writable_folder
from policies.benchmark.board import JobsBoard, watched
from policies.benchmark.checkpoint import Checkpoint, join, part, read_state, write_state
from policies.benchmark.episode import Episodes
from policies.benchmark.jobs import PACKAGES, Job, Work
from policies.benchmark.live import Recorder
from policies.benchmark.options import Backend
from policies.benchmark.status import DeviceAccounts
from policies.progress import listening
from policies.solvers.compiled import solver_threads
from policies.user_code import own_modules

# Time between two looks of a worker at its parent [s].
_LOOK_EVERY = 0.5


class JobsFailedError(RuntimeError):
    """Some jobs raised, with their tracebacks in `failures`; the others are finished."""

    def __init__(self, failures: list[tuple[Work, _Failure]]) -> None:
        self.failures = [(job, failure.traceback) for job, failure in failures]
        lines = [f"{job.label}: {failure.summary}" for job, failure in failures]
        number = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
        super().__init__(f"{number} failed:\n" + "\n".join(lines))


class WorkerKilledError(RuntimeError):
    """The system has ended one of so many worker processes."""

    def __init__(self, workers: int) -> None:
        super().__init__(
            "the system has killed a worker process, as it does where memory runs out: what is "
            "finished is kept, and the same command goes on from there, with less memory by "
            f"--workers {max(workers // 2, 1)}"
        )


class _Failure(NamedTuple):
    """The error of a job: in one line with the place in the user's own code, and in full."""

    summary: str
    traceback: str


def _failure(error: Exception) -> _Failure:
    told = []
    for one in (error, *getattr(error, "exceptions", ())):
        lines = traceback.format_exception_only(one)
        told.append(next(line for line in lines if not line.startswith(" ")).splitlines()[0])
    message = "; ".join(told)
    places = [place for one in _chain(error) for place in traceback.extract_tb(one.__traceback__)]
    ours = [f"{package}{os.sep}" for package in PACKAGES]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    own = [one for one in places if not one.filename.startswith((*ours, *libraries, "<"))]
    if own:
        message += f" ({own[-1].filename}:{own[-1].lineno} in {own[-1].name})"
    return _Failure(message, "".join(traceback.format_exception(error)))


def _chain(error: BaseException) -> list[BaseException]:
    """An error after those that it came from, and before those that it holds as a group."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    chain = [] if before is None else _chain(before)
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [*chain, error, *(one for part in parts for one in _chain(part))]


def run_jobs(
    jobs: Sequence[Work],
    *,
    folder: Path | None = None,
    workers: int = 1,
    backend: Backend = "processes",
    address: str | None = None,
    checkpoint_every: int = 50,
    record: Callable[[str], Sequence[Recorder]] = lambda _: (),
    models: Path | None = None,
    on_finish: Callable[[Work], None] = lambda _: None,
    on_progress: Callable[[float], None] | None = None,
) -> list[Episodes]:
    """Run jobs and give what was played in the order of the jobs.

    Jobs that `folder` has are not run again. A training run leaves a checkpoint in the user's
    cache folder every so many rounds, from which it continues after a kill, and its last global
    model in `models`, where one that is finished without is run again; on a cluster the folder must
    be a shared one. `record` gives the recorders of a training run, by a name for files that no
    other job has. `on_finish` is called with each job that is finished, has failed or is found on
    disk, and `on_progress`, from another thread some times in a second, with how much is done of
    the jobs that run here, in jobs.

    Raises
    ------
    ValueError
        If `workers`, `backend` or `checkpoint_every` is wrong, or the folder cannot be written.
    ModuleNotFoundError
        If the Ray backend is asked for and Ray is not installed.
    JobsFailedError
        If a job raised, after all others are finished.
    WorkerKilledError
        If the system ended a worker; what is finished is kept.
    """
    check_runner(workers, backend, checkpoint_every)
    found = finished(jobs, folder, with_models=models is not None)
    if folder is not None:  # one that holds all that is asked for may be read-only
        folder = (folder if len(found) == len(jobs) else writable_folder(folder)).resolve()
    saves = [
        Checkpoint(job.key, checkpoint_every) if folder is not None and job.saves else None
        for job in jobs
    ]
    names = _file_names(jobs)
    recorders = [record(names[i]) if i in names else () for i in range(len(jobs))]
    kept: dict[int, Path] = {}
    if models is not None and folder is not None:
        kept = {index: folder / f"{jobs[index].key}.pt" for index in names}
    for index in found:
        on_finish(jobs[index])
    results: dict[int, Episodes] = {}
    failures: list[tuple[Work, _Failure]] = []
    absent = sorted(set(range(len(jobs))) - set(found))
    for indices in (absent, found):  # those found too, where the file turns out to be damaged
        if folder is not None:
            whole = [i for i in indices if i not in kept or kept[i].exists()]
            read = {index: _load(folder, jobs[index]) for index in whole}
            results |= {index: played for index, played in read.items() if played is not None}
            for index in results.keys() & indices:  # the last kill may have come before this
                if (checkpoint := saves[index]) is not None:
                    checkpoint.remove()
        missing = [index for index in indices if index not in results]
        workers = min(workers, max(len(missing), 1))
        parent = os.getpid() if backend == "processes" else None
        with watched(len(jobs), on_progress) as board:
            attempts = [
                _Attempt(i, jobs[i], saves[i], recorders[i], kept.get(i), board, workers, parent)
                for i in missing
            ]
            for index, outcome in _outcomes(attempts, workers, backend, address):
                job = jobs[index]
                if isinstance(outcome, _Failure):
                    failures.append((job, outcome))
                else:
                    if folder is not None:
                        _save(outcome, folder, job)
                    if (checkpoint := saves[index]) is not None:
                        checkpoint.remove()
                    results[index] = outcome
                board.clear(index)
                if indices is absent:
                    on_finish(job)
    if models is not None:
        models.mkdir(parents=True, exist_ok=True)
        for index, path in kept.items():
            if index in results and path.exists():
                with atomic_path(models / f"{names[index]}.pt") as temporary:
                    shutil.copyfile(path, temporary)
    if failures:
        raise JobsFailedError(failures)
    return [results[index] for index in range(len(jobs))]


def finished(jobs: Sequence[Work], folder: Path | None, *, with_models: bool = False) -> list[int]:
    """The places of those jobs of which a folder has a result, whole or damaged.

    With models a training run must also have left its model.
    """
    if folder is None or not folder.is_dir():
        return []
    present = {path.name for path in folder.iterdir()}
    return [
        index
        for index, job in enumerate(jobs)
        if present  # a key takes its time
        and f"{job.key}.npz" in present
        and not (with_models and job.saves and f"{job.key}.pt" not in present)
    ]


def check_runner(workers: int, backend: str = "processes", checkpoint_every: int = 50) -> None:
    """Raise `ValueError` where `run_jobs` would refuse one of these."""
    integer_at_least(1, "workers", workers)
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be 'processes' or 'ray', got {backend!r}")
    integer_at_least(1, "checkpoint_every", checkpoint_every)


class _Attempt(NamedTuple):
    """A job that is to be run: its place, and what it writes to on the way."""

    place: int
    job: Work
    checkpoint: Checkpoint | None
    recorders: Sequence[Recorder]
    model: Path | None
    board: JobsBoard
    workers: int
    parent: int | None  # the process that gives out the work, if it is on this machine


_Outcome: TypeAlias = tuple[int, Episodes | _Failure]


def _outcomes(
    attempts: list[_Attempt], workers: int, backend: Backend, address: str | None
) -> Iterator[_Outcome]:
    if not attempts:
        return
    if backend == "ray":
        yield from _on_ray(attempts, workers, address)
        return
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    try:
        with _signals_held() if workers > 1 else nullcontext():
            outcomes = parallel(joblib.delayed(_run)(attempt) for attempt in attempts)
        yield from outcomes
    except BrokenProcessPool:
        raise WorkerKilledError(workers) from None


@contextmanager
def _signals_held() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM, which a terminal or a scheduler sends to all, for after the block.

    Processes that it starts never see them: this one ends those. Where there are no such masks
    nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    for tracker in (multiprocessing.resource_tracker, loky_tracker):
        tracker.ensure_running()  # which they would do in the block, and end the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_ray(attempts: list[_Attempt], workers: int, address: str | None) -> Iterator[_Outcome]:
    if find_spec("ray") is None:
        raise ModuleNotFoundError(
            "backend 'ray' needs the package ray: install the extra `cluster`, "
            'for example by pip install -e ".[cluster]"'
        )
    import ray
    from ray import cloudpickle
    from ray.exceptions import OutOfMemoryError, RayActorError
    from ray.util.multiprocessing import Pool

    for module in own_modules():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    with _signals_held(), _handler_kept(signal.SIGTERM):
        if address is None:
            # "local": without it a cluster that someone started on this machine would be joined.
            ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
    try:
        with Pool(workers) as pool:
            for outcome in pool.imap_unordered(_run, attempts, chunksize=1):
                if isinstance(outcome, (OutOfMemoryError, RayActorError)):
                    raise WorkerKilledError(workers)
                yield outcome
    finally:
        ray.shutdown()


@contextmanager
def _handler_kept(number: signal.Signals) -> Iterator[None]:
    """What the block does at a signal is undone after it; only a main thread can do either."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, before)


def is_interrupt(error: BaseException | None) -> bool:
    """True if an error comes from Ctrl-C, of which compiled functions make a `SystemError`."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@lru_cache(maxsize=1)  # one thread in each process is enough
def _end_with(parent: int | None) -> None:
    """End this process soon after its parent, also where that was killed.

    A worker would otherwise go on for hours. What it was writing is then left under its temporary
    name.
    """

    def watch() -> None:
        while os.getppid() == parent:  # an orphan is given another parent
            time.sleep(_LOOK_EVERY)
        os._exit(1)  # from a thread nothing else ends the others

    threading.Thread(target=watch, daemon=True).start()


def _run(attempt: _Attempt) -> _Outcome:
    """Run a job; one thread each where several run at a time, so that they do not compete."""
    index, job, checkpoint, recorders, model, board, workers, parent = attempt
    if parent not in (None, os.getpid()):
        _end_with(parent)
    threads = solver_threads(1) if workers > 1 else nullcontext()
    try:
        with threads, listening(board.listener(index, job.parts)):
            return index, job.run(checkpoint, recorders, model)
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        return index, _failure(error)


_LONGEST_TITLE = 80


def _file_names(jobs: Sequence[Work]) -> dict[int, str]:
    """Names for files of training runs by their place, with the key where two would be the same."""
    names = {}
    for index, job in enumerate(jobs):
        if isinstance(job, Job) and job.saves:
            title = re.sub(r"[^\w.+-]+", "-", job.title or job.policy.name)
            names[index] = f"{title[:_LONGEST_TITLE]}-seed-{job.seeds[0]}"
    number = Counter(names.values())
    return {
        index: name if number[name] == 1 else f"{name}-{jobs[index].key[:8]}"
        for index, name in names.items()
    }


def _save(played: Episodes, folder: Path, job: Work) -> None:
    rounds, devices = played
    columns: dict[str, Any] = {str(name): rounds[name].to_numpy() for name in rounds}
    columns["policy"] = np.array(rounds["policy"].iloc[0])
    parts = {"rounds": columns}
    if devices is not None:
        parts["devices"] = {name: np.array(value) for name, value in devices._asdict().items()}
    write_state(folder / f"{job.key}.npz", job.key, join(parts))


def _load(folder: Path, job: Work) -> Episodes | None:
    """What a finished job has left, or None where the file is missing, damaged or another's."""
    try:
        state = read_state(folder / f"{job.key}.npz", job.key)
        columns: dict[str, Any] = part("rounds", state)
        rounds = pd.DataFrame(columns | {"policy": str(columns["policy"])})
        devices: dict[str, Any] = part("devices", state)
        return Episodes(rounds, DeviceAccounts(**devices) if isinstance(job, Job) else None)
    except Exception:  # what a damaged file can raise has no end
        return None

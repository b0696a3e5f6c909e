"""Runs jobs in parallel; finished jobs are files, so the same command resumes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import joblib
import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import atomic_path, reason, writable_folder
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.episode import Episodes, seed_column
from policies.benchmark.fingerprint import Fingerprint
from policies.benchmark.jobs import Job, Work, job_key
from policies.benchmark.options import Backend
from policies.benchmark.status import DeviceAccounts, Milestones
from policies.user_code import own_modules
from policies.user_files import is_own_file


class JobsFailedError(RuntimeError):
    """Some jobs failed, with their tracebacks in `failures`; the message has at most ten."""

    def __init__(self, failures: list[tuple[Work, _Failure]]) -> None:
        self.failures = [(job, failure.traceback) for job, failure in failures]
        lines = [f"{job.label}: {failure.summary}" for job, failure in failures[:10]]
        lines += [f"and {len(failures) - 10} more"] if len(failures) > 10 else []
        number = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
        super().__init__(f"{number} failed:\n" + "\n".join(lines))


class WorkerKilledError(RuntimeError):
    """The operating system has killed a worker process."""

    def __init__(self, workers: int) -> None:
        super().__init__(
            "the system has killed a worker process, usually because memory ran out: finished runs "
            "are kept. Rerun the command to resume; to use less memory, add "
            f"--workers {max(workers // 2, 1)}"
        )


class _Failure(NamedTuple):
    """The error of a job: one line with its place in the user's code, and the full traceback."""

    summary: str
    traceback: str


class _Attempt(NamedTuple):
    """A job to run: its index among all jobs, the files it writes, and the main process's id."""

    place: int
    job: Work
    checkpoint: Checkpoint | None
    model: Path | None
    parent: int


_Outcome: TypeAlias = tuple[int, Episodes | _Failure]


def run_jobs(
    jobs: Sequence[Work],
    *,
    folder: Path | None = None,
    workers: int = 1,
    backend: Backend = "processes",
    checkpoint_every: int = 50,
    models: Path | None = None,
    console: Console | None = None,
) -> list[Episodes]:
    """Run jobs and return their episodes, in the order of the jobs.

    With a folder, each finished job is a file in it, named by its key, and is not run again. Every
    `checkpoint_every` rounds a training run also saves a checkpoint in the user's cache folder,
    from which it resumes after a kill. With `models`, the final global model of each training run
    is copied there. On a cluster, both folders must be shared. A `console` shows a progress bar,
    which disappears at the end if there is no folder.

    Raises
    ------
    ValueError
        If `workers`, `backend` or `checkpoint_every` is wrong, or the folder cannot be written.
    ModuleNotFoundError
        If `backend` is ``"ray"`` and Ray is not installed.
    JobsFailedError
        If a job failed, after all others have finished.
    WorkerKilledError
        If the operating system killed a worker; finished jobs are kept.
    """
    check_runner(workers, backend, checkpoint_every)
    results: dict[int, Episodes] = {}
    files: dict[int, Path] = {}
    if folder is not None:
        folder = writable_folder(folder).resolve()
        files = {index: folder / f"{key}.npz" for index, key in _keys(jobs).items()}
    models_of: dict[int, Path] = {}
    attempts: list[_Attempt] = []
    for index, job in enumerate(jobs):
        checkpoint = model = None
        if index in files and job.trains:
            checkpoint = Checkpoint(files[index].stem, checkpoint_every)
        if folder is not None and models is not None and job.trains:
            model = files.get(index, folder / f"not-kept-{index}").with_suffix(".pt")
            models_of[index] = model
        kept = index in files and (model is None or model.exists())
        if kept and (found := _load(files[index])) is not None:
            results[index] = found
            if checkpoint is not None:  # an earlier run may have been killed before this
                checkpoint.remove()
        else:
            attempts.append(_Attempt(index, job, checkpoint, model, os.getpid()))
    left = {attempt.place: attempt for attempt in attempts}
    failures: list[tuple[Work, _Failure]] = []
    with (
        _bar(console, len(jobs), len(results), transient=folder is None) as bar,
        closing(_outcomes(attempts, min(workers, len(attempts)), backend)) as outcomes,
    ):
        for index, outcome in outcomes:
            if isinstance(outcome, _Failure):
                failures.append((jobs[index], outcome))
            else:
                results[index] = outcome
                if index in files:
                    _save(outcome, files[index])
                checkpoint = left[index].checkpoint
                if checkpoint is not None:
                    checkpoint.remove()
            bar.advance(bar.task_ids[0])
    for index, model in models_of.items():
        job = jobs[index]
        if models is not None and isinstance(job, Job) and index in results and model.exists():
            models.mkdir(exist_ok=True)
            name = re.sub(r"[^\w.+-]+", "-", job.title or job.policy.name)
            shutil.copyfile(model, models / f"{name}-seed-{job.seeds[0]}.pt")
        if index not in files:
            model.unlink(missing_ok=True)
    if failures:
        raise JobsFailedError(failures)
    return [results[index] for index in range(len(jobs))]


def _keys(jobs: Sequence[Work]) -> dict[int, str]:
    """The keys of jobs by their indices, without those that have no key, with a warning.

    `ValueError` if two jobs have the same key, and so would share a result.
    """
    keys: dict[int, str] = {}
    unkept: dict[str, str] = {}
    owners: dict[str, Work] = {}
    for index, job in enumerate(jobs):
        try:
            key = job_key(job)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # code of the user can raise anything, `SystemExit` included
            unkept[job.label] = f"{type(error).__name__}: {reason(error)}"
            continue
        other = owners.setdefault(key, job)
        if other is not job and isinstance(job, Job):
            raise ValueError(
                f"{other.label}, and {job.label}, are the same run: their policies, scenarios and "
                "training are equal. Leave one out"
            )
        keys[index] = key
    for label, why in unkept.items():
        warnings.warn(
            f"the results of {label} are not kept, because they have no key: {why}",
            RuntimeWarning,
            stacklevel=3,
        )
    return keys


def check_runner(workers: int, backend: str = "processes", checkpoint_every: int = 50) -> None:
    """Raise `ValueError` if `run_jobs` would reject one of these."""
    integer_at_least(1, "workers", workers)
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be 'processes' or 'ray', got {backend!r}")
    integer_at_least(1, "checkpoint_every", checkpoint_every)


def _bar(console: Console | None, jobs: int, finished: int, *, transient: bool) -> Progress:
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
    bar.add_task("runs", total=jobs, completed=finished)
    return bar


def _outcomes(
    attempts: list[_Attempt], workers: int, backend: Backend
) -> Generator[_Outcome, None, None]:
    if not attempts:
        return
    if backend == "ray":
        yield from _on_ray(attempts, workers)
        return
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    try:
        with _signals_of_workers() if workers > 1 else nullcontext():
            outcomes = parallel(joblib.delayed(_run)(attempt) for attempt in attempts)
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


def _on_ray(attempts: list[_Attempt], workers: int) -> Iterator[_Outcome]:
    # joblib's backend for Ray returns no result before all jobs have finished.
    if find_spec("ray") is None:
        raise ModuleNotFoundError(
            "backend 'ray' needs the package ray: install the extra `cluster`, "
            'for example by pip install -e ".[cluster]"'
        )
    import ray
    from ray.exceptions import OutOfMemoryError, WorkerCrashedError

    for module in own_modules():
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    with _signals_of_workers():
        address = os.environ.get("RAY_ADDRESS")
        if not address:
            # "local": never join a cluster that already runs on this machine.
            ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
    remote: Any = ray.remote  # its type stubs lack keywords
    variables = {
        "NUMBA_NUM_THREADS": "1",  # as with joblib, one core a job
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),  # for the user's imports
    }
    run = remote(max_retries=0, runtime_env={"env_vars": variables})(_run)
    coming = iter(attempts)
    running = [run.remote(attempt) for attempt in islice(coming, workers)]
    try:
        while running:
            (done,), running = ray.wait(running)
            try:
                outcome = ray.get(done)
            except (OutOfMemoryError, WorkerCrashedError):
                raise WorkerKilledError(workers) from None
            yield outcome
            running += [run.remote(attempt) for attempt in islice(coming, 1)]
    finally:
        ray.shutdown()


def _run(attempt: _Attempt) -> _Outcome:
    """Run a job."""
    if os.getppid() == attempt.parent:
        _end_with(attempt.parent)
    try:
        return attempt.place, attempt.job.run(attempt.checkpoint, attempt.model)
    except BaseException as error:  # code of the user can raise anything, `SystemExit` included
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        return attempt.place, _failure(error)


@cache
def _end_with(parent: int) -> None:
    """End this worker soon after the main process has been killed, which cannot stop it then."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def is_interrupt(error: BaseException | None) -> bool:
    """True if an error comes from Ctrl-C, which compiled functions turn into a `SystemError`."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _failure(error: BaseException) -> _Failure:
    lines = traceback.format_exception_only(error)
    summary = next(line for line in lines if not line.startswith(" ")).splitlines()[0]
    place = ""
    part: BaseException | None = error
    while part is not None and not place:
        for frame, line in traceback.walk_tb(part.__traceback__):
            # Functions that cloudpickle has sent know their file only by their globals.
            file = frame.f_globals.get("__file__", frame.f_code.co_filename)
            if is_own_file(file):
                place = f" ({file}:{line} in {frame.f_code.co_name})"
        part = part.__cause__
    return _Failure(summary + place, "".join(traceback.format_exception(error)))


def _save(played: Episodes, path: Path) -> None:
    rounds, devices, milestones = played
    columns: dict[str, Any] = {f"rounds.{name}": rounds[name].to_numpy() for name in rounds}
    columns["rounds.policy"] = np.array(rounds["policy"].iloc[0])
    columns["rounds.seed"] = columns["rounds.seed"].astype(str)  # of any size
    if devices is not None:
        columns |= {f"devices.{name}": value for name, value in devices._asdict().items()}
    if milestones is not None:
        columns["milestones.accuracy"] = milestones.accuracy
        accounts = milestones.devices._asdict().items()
        columns |= {f"until.{name}": value for name, value in accounts}
    columns = {name: np.asarray(value) for name, value in columns.items()}
    with atomic_path(path) as temporary:
        np.savez(temporary, checksum=np.array(_checksum(path, columns)), **columns)


def _checksum(path: Path, columns: dict[str, Any]) -> str:
    """Hash of a result's name and content, which an edited or renamed file does not have."""
    return Fingerprint().of((path.name, columns))


def _load(path: Path) -> Episodes | None:
    """The result of a finished job, or None if the file is missing, damaged or edited."""
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            columns = {name: file[name] for name in file.files}
        if columns.pop("checksum") != _checksum(path, columns):
            return None
        names = "rounds", "devices", "milestones", "until"
        parts: dict[str, dict[str, Any]] = {name: {} for name in names}
        for name, values in columns.items():
            part, _, column = name.partition(".")
            parts[part][column] = values
        parts["rounds"]["policy"] = str(parts["rounds"]["policy"])
        parts["rounds"]["seed"] = seed_column([int(seed) for seed in parts["rounds"]["seed"]])
        rounds = pd.DataFrame(parts["rounds"])
        devices = DeviceAccounts(**parts["devices"]) if parts["devices"] else None
        milestones = None
        if parts["until"]:
            until = DeviceAccounts(**parts["until"])
            milestones = Milestones(parts["milestones"]["accuracy"], until)
        return Episodes(rounds, devices, milestones)
    except Exception:  # a damaged file can raise anything
        return None

"""Many runs: in parallel, on disk as they finish, and not run again.

The one runner under `evaluate` and the examples. A job that is finished is a file; a killed
experiment that is started again runs what is missing and ends in the same result.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import signal
import sysconfig
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import gymnasium as gym
import joblib
import numba
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeVectorEnv, Scenario
from fl_edge_env.checks import integer_at_least, is_integer
from fl_edge_env.files import writable_folder
from fl_edge_env.scenario import REPORT_FIELDS
from policies.base import Policy, check_scenario
from policies.benchmark.board import JobsBoard, watched
from policies.benchmark.bound import Prices, outcome_path_bound, path_bound
from policies.benchmark.checkpoint import Checkpoints, read_state, write_state
from policies.benchmark.live import Recorder
from policies.benchmark.orphans import end_with
from policies.benchmark.rollout import run_episode
from policies.own import own_modules
from policies.progress import listening
from policies.reports import system_of

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]


@runtime_checkable
class TellsSize(Protocol):
    """Such a factory that knows how large the checkpoints of a run are."""

    def checkpoint_bytes(self, policy: Policy) -> int:
        """Size of a checkpoint of a policy's run."""


Backend = Literal["processes", "ray"]

# Stands for the policy in the table of a `BoundJob`.
BOUND_NAME = "bound"


@dataclass(frozen=True, eq=False)
class Job:
    """A policy on a scenario under some seeds.

    Attributes
    ----------
    policy : Policy
        As it is before its first episode.
    scenario : Scenario
        The system.
    seeds : tuple of int
        Run as one batch; a single seed where models are trained.
    make_env : callable, optional
        Makes the training environment; without it no models are trained.
    prices : Prices, optional
        Prices of both bounds, at which the rounds are counted too.
    title : str, optional
        What it is called beside its seeds, by default as the policy.
    """

    policy: Policy
    scenario: Scenario
    seeds: tuple[int, ...]
    make_env: EnvFactory | None = None
    prices: Prices | None = None
    title: str | None = None
    parts = 1

    @property
    def label(self) -> str:
        """What it is, for messages."""
        return f"{self.title or self.policy.name}, seeds {list(self.seeds)}"

    @property
    def saves(self) -> bool:
        """Whether it is saved on the way; runs without training are over in seconds."""
        return self.make_env is not None

    @property
    def checkpoint_bytes(self) -> int:
        """Size of a checkpoint, zero where none is written or nobody knows it."""
        maker: object = self.make_env
        if isinstance(maker, TellsSize) and self.policy.resumable:
            return maker.checkpoint_bytes(self.policy)
        return 0

    @cached_property
    def key(self) -> str:
        """Hash of all that determines the result, the code included.

        Of a class or function of one's own that is the module it stands in, but not what that
        module imports, and of a data set not the content of its files.
        """
        kind = type(self.policy)
        self.policy.reset(self._seed)  # as `run_episode` does: an earlier episode leaves no trace
        state: Any = self.policy.__getstate__() or {}
        parts: list[Any] = []
        if isinstance(state, dict):
            # The classes of what it is made of, such as a selector of the user's own.
            parts = [part for value in state.values() for part in type(value).__mro__]
            # And functions, such as resources of the user's own; pickled they are but names.
            functions = {n: value for n, value in state.items() if inspect.isfunction(value)}
            parts += functions.values()
            state = state | {n: f"{f.__module__}.{f.__qualname__}" for n, f in functions.items()}
            # What the policy has beside the job's scenario, which would be hashed twice.
            state = {
                name: value
                for name, value in state.items()
                if not (isinstance(value, Scenario) and value == self.scenario)
            }
        # Classes by name and code: joblib cannot hash one that is defined in a function.
        maker: Any = self.make_env if inspect.isfunction(self.make_env) else type(self.make_env)
        code = "".join(map(_source, (*kind.__mro__, *parts, maker)))
        inputs = (
            kind.__qualname__,
            code,
            state,
            self.scenario,
            self.seeds,
            self.make_env,
            getattr(self.make_env, "own_code", ""),
            self.prices,
        )
        # One by one: a pickle of all would also tell which of them share objects.
        return str(joblib.hash([joblib.hash(value) for value in inputs] + [code_hash()]))

    @property
    def _seed(self) -> Any:
        return list(self.seeds) if self.make_env is None else self.seeds[0]

    def run(
        self, checkpoints: Checkpoints | None = None, recorders: Sequence[Recorder] = ()
    ) -> pd.DataFrame:
        """The rounds of the job; see `run_episode`."""
        if self.make_env is not None:
            env: Any = self.make_env(self.policy)
            _check_reports(env, self)
        else:
            env = FLEdgeVectorEnv(
                len(self.seeds), self.scenario, autoreset_mode=AutoresetMode.DISABLED
            )
        return run_episode(
            self.policy, env, self.scenario, self.seeds, checkpoints, self.prices, recorders
        )


@dataclass(frozen=True, eq=False)
class BoundJob:
    """Both bounds along the path of a seed, at some prices.

    Attributes
    ----------
    scenario : Scenario
        The system.
    seed : int
        The path.
    prices : Prices
        Those of both bounds.
    """

    scenario: Scenario
    seed: int
    prices: Prices
    saves = False
    parts = 2
    checkpoint_bytes = 0

    @property
    def label(self) -> str:
        """What it is, for messages."""
        return f"{BOUND_NAME}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """Hash of all that determines the result, the code included."""
        inputs = (self.scenario, self.seed, self.prices)
        return str(joblib.hash([joblib.hash(value) for value in inputs] + [code_hash()]))

    def run(self, *_: object) -> pd.DataFrame:
        """A row per round with `policy`, which is `BOUND_NAME`, `seed`, `round` and the bounds.

        They are `bound`, for policies that sample, and `outcome_bound`, for all [s].
        """
        columns = {
            "round": np.arange(1, self.scenario.num_rounds + 1),
            "bound": path_bound(self.scenario, self.seed, self.prices.energy),
            "outcome_bound": outcome_path_bound(self.scenario, self.seed, self.prices.outcome),
        }
        return pd.DataFrame({"policy": BOUND_NAME, "seed": self.seed} | columns)


# Anything that `run_jobs` runs. Its `parts` are the pieces of work of which a run tells one after
# the other how far it has come.
Work: TypeAlias = Job | BoundJob


@lru_cache(maxsize=64)
def _source(what: Any) -> str:
    """Code of a class or function with its module's, empty where there is no file."""
    code = ""
    for part in (what, inspect.getmodule(what)):
        with suppress(OSError, TypeError):
            code += inspect.getsource(part)  # type: ignore[arg-type]
    return code


# Those whose version can change a number.
_LIBRARIES = (
    "gymnasium",
    "numba",
    "numpy",
    "pillow",
    "scikit-learn",
    "scipy",
    "stable-baselines3",
    "torch",
    "torchvision",
)


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash of the packages' sources and the libraries' versions.

    Results of other code are not taken for these, nor is a run taken up that began with it.
    """
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode() + path.read_bytes())
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()


_ROOT = Path(__file__).parents[2]
_PACKAGES = ("fl_edge_env", "policies", "train_fl")


def _sources() -> list[Path]:
    return sorted(path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py"))


# Numbers in an array of a batch, one for each seed and device.
_BATCH_NUMBERS = 1 << 20


def make_jobs(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    make_env: EnvFactory | None = None,
    prices: Prices | None = None,
    title: str | None = None,
) -> list[Job]:
    """The jobs of a comparison: all seeds in a batch, or one by one where models are trained.

    Of very many devices or seeds there are several batches, so that memory suffices.

    Parameters
    ----------
    policies, scenario, seeds, make_env
        As in `policies.evaluate`. What reports cost a policy is as in the scenario it was made
        with; see `policies.reports.system_of`.
    prices, title
        As for `Job`.

    Raises
    ------
    ValueError
        If names or seeds repeat or are missing, or are of another type.
    """
    check_scenario(scenario)
    if wrong := [policy for policy in policies if not isinstance(policy, Policy)]:
        raise ValueError(f"policies must be instances of Policy, got {wrong[0]!r}")
    names = [policy.name for policy in policies]
    if not names:
        raise ValueError("policies must be one or more, got none")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"policies must have distinct names, as their results are told apart by them: "
            f"{twice[0]!r} comes {names.count(twice[0])} times. Set the attribute `name` of one"
        )
    systems = {policy.name: system_of(policy, scenario) for policy in policies}
    for policy in policies:
        _check_system(policy, systems[policy.name])
        if make_env is None and policy.needs_training:
            raise ValueError(
                f"{policy.name} decides by what training reports, and no models are trained here: "
                "leave it out, or train"
            )
    seeds = check_seeds(seeds)
    size = 1 if make_env is not None else max(1, _BATCH_NUMBERS // scenario.num_devices)
    batches = [tuple(seeds[start : start + size]) for start in range(0, len(seeds), size)]
    return [
        Job(policy, systems[policy.name], batch, make_env, prices, title)
        for policy in policies
        for batch in batches
    ]


def check_seeds(seeds: object) -> list[int]:
    """`seeds` as a list, if they are one or more distinct integers of at least zero."""
    if is_integer(seeds):
        raise ValueError(f"seeds must be a sequence, got {seeds!r}: use range({seeds!r}) or [...]")
    given: list[Any] = list(seeds) if isinstance(seeds, Iterable) else [seeds]
    whole = all(is_integer(seed) and seed >= 0 for seed in given)
    if not whole or not 0 < len(given) == len(set(given)):
        raise ValueError(f"seeds must be one or more distinct integers >= 0, got {given}")
    return [int(seed) for seed in given]


# What a policy may take otherwise than the scenario it is run in: how it weighs the objective,
# and for how long it is made.
_OWN_FIELDS = ("mu", "nu", "lambda_", "V", "num_rounds")


def _check_system(policy: Policy, scenario: Scenario) -> None:
    """Refuse a policy that was made for another system than it is to control."""
    own = getattr(policy, "scenario", scenario)
    if own is scenario:
        return
    theirs, ours = own.to_dict(), scenario.to_dict()
    other = [
        name
        for name in ours
        if name not in _OWN_FIELDS and not np.array_equal(ours[name], theirs[name])
    ]
    if other:
        raise ValueError(
            f"the policy {policy.name} was made for a scenario with another {', '.join(other)}: "
            "make it with the scenario that it is run in"
        )


def _check_reports(env: gym.Env[Any, Any], job: Job) -> None:
    """Refuse an environment in which reports cost a policy something else than its accounts say."""
    made = getattr(env.unwrapped, "scenario", job.scenario)
    if any(getattr(made, name) != getattr(job.scenario, name) for name in REPORT_FIELDS):
        raise ValueError(
            f"make_env must make an environment in which reports cost {job.policy.name} what they "
            "do in its own scenario: make it with policies.reports.system_of(policy, scenario)"
        )


class JobsFailedError(RuntimeError):
    """Some jobs raised; the others are finished.

    Attributes
    ----------
    failures : list of (Job, str)
        The jobs and their tracebacks.
    """

    def __init__(self, failures: list[tuple[Work, str]]) -> None:
        self.failures = failures
        lines = [f"{job.label}: {_summary(text)}" for job, text in failures]
        number = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
        super().__init__(f"{number} failed:\n" + "\n".join(lines))


def _summary(text: str) -> str:
    """What a traceback says in one line, and where in the user's own code it was raised."""
    lines = text.strip().splitlines()
    frame = max(index for index, line in enumerate(lines) if line.startswith("  File "))
    message = next(line for line in lines[frame + 1 :] if not line.startswith("    "))
    places = re.findall(r'^  File "(.+)", line (\d+), in (.+)$', text, re.MULTILINE)
    ours = [f"{_ROOT / package}{os.sep}" for package in _PACKAGES]
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    own = [place for place in places if not place[0].startswith((*ours, *libraries, "<"))]
    if not own:
        return message
    path, line, function = own[-1]
    return f"{message} ({path}:{line} in {function})"


def run_jobs(
    jobs: Sequence[Work],
    *,
    folder: Path | None = None,
    workers: int = 1,
    backend: Backend = "processes",
    address: str | None = None,
    checkpoint_every: int = 50,
    record: Callable[[str], Sequence[Recorder]] = lambda _: (),
    on_finish: Callable[[Work], None] = lambda _: None,
    on_progress: Callable[[float], None] | None = None,
) -> list[pd.DataFrame]:
    """Run jobs and give their rounds in the order of the jobs.

    Parameters
    ----------
    jobs : sequence of Job
        What to run.
    folder : Path, optional
        Folder for finished jobs, made where it is missing; those it has are not run again.
    workers : int
        Processes.
    backend : {"processes", "ray"}
        Processes of this machine, or of a Ray cluster.
    address : str, optional
        Address of the Ray cluster; a local one is started by default.
    checkpoint_every : int
        Rounds between two checkpoints of a training run, in the subfolder ``checkpoints``: a
        killed run goes on from the last one. On a cluster the folder must be a shared one.
    record : callable
        Gives the recorders of a training run, by a name for files that no other job has.
    on_finish : callable
        Called with each job when it is finished, has failed or is found on disk.
    on_progress : callable, optional
        Called from another thread, some times in a second, with how much is done of the jobs that
        run: a number of jobs, of which a half may be half a job. Of those on other machines
        nothing is known.

    Returns
    -------
    list of pandas.DataFrame

    Raises
    ------
    ValueError
        If `workers`, `backend` or `checkpoint_every` is wrong, or the folder cannot be written.
    ModuleNotFoundError
        If the Ray backend is asked for and Ray is not installed.
    JobsFailedError
        If a job raised, after all others are finished.
    """
    check_runner(workers, backend, checkpoint_every)
    found = finished(jobs, folder)
    if folder is not None:  # one that holds all that is asked for may be read-only
        folder = (folder if len(found) == len(jobs) else writable_folder(folder)).resolve()
    saves = [checkpoints_of(job, folder, checkpoint_every) for job in jobs]
    names = _file_names(jobs)
    recorders = [record(names[i]) if i in names else () for i in range(len(jobs))]
    for index in found:
        on_finish(jobs[index])
    results: dict[int, pd.DataFrame] = {}
    failures = []
    absent = sorted(set(range(len(jobs))) - set(found))
    for indices in (absent, found):  # those found too, where the file turns out to be damaged
        if folder is not None:
            read = {index: _load(folder, jobs[index]) for index in indices}
            results |= {index: rounds for index, rounds in read.items() if rounds is not None}
            for index in results.keys() & indices:  # the last kill may have come before this
                if (checkpoints := saves[index]) is not None:
                    checkpoints.clear()
        missing = [(i, jobs[i], saves[i], recorders[i]) for i in indices if i not in results]
        with watched(len(jobs), on_progress) as board:
            for index, outcome in _outcomes(missing, board, workers, backend, address):
                job = jobs[index]
                if isinstance(outcome, str):
                    failures.append((job, outcome))
                else:
                    if folder is not None:
                        _save(outcome, folder, job)
                    if (checkpoints := saves[index]) is not None:
                        checkpoints.clear()
                    results[index] = outcome
                board.clear(index)
                if indices is absent:
                    on_finish(job)
    if folder is not None:
        with suppress(OSError):  # failed runs keep theirs
            (folder / "checkpoints").rmdir()
    if failures:
        raise JobsFailedError(failures)
    return [results[index] for index in range(len(jobs))]


def finished(jobs: Sequence[Work], folder: Path | None) -> list[int]:
    """The places of those jobs of which a folder has a result, whole or damaged.

    Parameters
    ----------
    jobs : sequence of Job
        Some jobs.
    folder : Path or None
        The folder that `run_jobs` is given.
    """
    if folder is None or not folder.is_dir():
        return []
    present = {path.name for path in folder.iterdir()}
    return [index for index, job in enumerate(jobs) if present and _name(job) in present]


def checkpoints_of(job: Work, folder: Path | None, every: int = 1) -> Checkpoints | None:
    """Where a run is saved on the way, if it is.

    Parameters
    ----------
    job : Job
        The run.
    folder : Path or None
        The folder that `run_jobs` is given.
    every : int
        Rounds between two checkpoints.
    """
    if folder is None or not job.saves:
        return None
    return Checkpoints(folder / "checkpoints", job.key, every)


def check_runner(workers: int, backend: str = "processes", checkpoint_every: int = 50) -> None:
    """Raise `ValueError` where `run_jobs` would refuse one of these."""
    integer_at_least(1, "workers", workers)
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be 'processes' or 'ray', got {backend!r}")
    integer_at_least(1, "checkpoint_every", checkpoint_every)


_Missing: TypeAlias = tuple[int, Work, Checkpoints | None, Sequence[Recorder]]
_Outcome: TypeAlias = tuple[int, pd.DataFrame | str]


def _outcomes(
    jobs: list[_Missing], board: JobsBoard, workers: int, backend: Backend, address: str | None
) -> Iterator[_Outcome]:
    if not jobs:
        return
    workers = min(workers, len(jobs))
    if backend == "ray":
        yield from _on_ray(jobs, board, workers, address)
    else:
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        with _interrupts_ignored():  # by the workers, which inherit it: the parent ends them
            attempt = joblib.delayed(_attempt_of)
            outcomes = parallel(attempt(os.getpid(), (job, board, workers)) for job in jobs)
        yield from outcomes


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C in the block and in processes that it starts; only a main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _on_ray(
    jobs: list[_Missing], board: JobsBoard, workers: int, address: str | None
) -> Iterator[_Outcome]:
    if find_spec("ray") is None:
        raise ModuleNotFoundError(
            "backend 'ray' needs the package ray: install the extra `cluster`, "
            'for example by pip install -e ".[cluster]"'
        )
    import ray
    from ray import cloudpickle
    from ray.util.multiprocessing import Pool

    for module in own_modules():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    if address is None:
        # "local": without it a cluster that someone has started on this machine would be joined.
        ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=address, log_to_driver=False)
    try:
        with Pool(workers) as pool:
            calls = [(job, board, workers) for job in jobs]
            yield from pool.imap_unordered(_attempt_call, calls, chunksize=1)
    finally:
        ray.shutdown()


def is_interrupt(error: BaseException | None) -> bool:
    """Whether it comes from Ctrl-C, of which compiled functions make an error of the system.

    Parameters
    ----------
    error : BaseException or None
        What was raised.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


_Call: TypeAlias = tuple[_Missing, JobsBoard, int]


def _attempt_call(call: _Call) -> _Outcome:
    return _attempt(*call)


def _attempt_of(parent: int, call: _Call) -> _Outcome:
    """Run a job in a worker of this machine."""
    end_with(parent)
    return _attempt(*call)


def _attempt(missing: _Missing, board: JobsBoard, workers: int) -> _Outcome:
    """Run a job; one thread each where several run at a time, so that they do not compete."""
    index, job, checkpoints, recorders = missing
    threads = numba.get_num_threads()
    try:
        if workers > 1:
            numba.set_num_threads(1)
        with listening(board.listener(index, job.parts)):
            return index, job.run(checkpoints, recorders)
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        return index, traceback.format_exc()
    finally:
        numba.set_num_threads(threads)


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


def _name(job: Work) -> str:
    return f"{job.key}.npz"


def _save(rounds: pd.DataFrame, folder: Path, job: Work) -> None:
    columns: dict[str, Any] = {str(name): rounds[name].to_numpy() for name in rounds}
    columns["policy"] = np.array(rounds["policy"].iloc[0])
    write_state(folder / _name(job), job.key, columns)


def _load(folder: Path, job: Work) -> pd.DataFrame | None:
    """The rounds of a finished job, or None where the file is missing, damaged or another's."""
    try:
        columns: dict[str, Any] = read_state(folder / _name(job), job.key)
        return pd.DataFrame(columns | {"policy": str(columns["policy"])})
    except Exception:  # what a damaged file can raise has no end
        return None

"""Many runs: in parallel, on disk as they finish, and not run again.

The one runner under `evaluate` and the examples. A job that is finished is a file; a killed
experiment that is started again runs what is missing and ends in the same result.
"""

from __future__ import annotations

import hashlib
import inspect
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import joblib
import numba
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeVectorEnv, Scenario
from fl_edge_env.checks import is_integer
from fl_edge_env.files import atomic_path, writable_folder
from policies.base import Policy
from policies.rollout import run_episode

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]

Backend = Literal["processes", "ray"]


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
    """

    policy: Policy
    scenario: Scenario
    seeds: tuple[int, ...]
    make_env: EnvFactory | None = None

    @cached_property
    def key(self) -> str:
        """Hash of all that determines the result, the code included."""
        try:
            policy_code = inspect.getsource(type(self.policy))
        except (OSError, TypeError):  # defined where there is no file
            policy_code = ""
        # The class by its name and code: joblib cannot hash one that is defined in a function.
        policy = (type(self.policy).__qualname__, policy_code, vars(self.policy))
        inputs = (*policy, self.scenario, self.seeds, self.make_env)
        # One by one: a pickle of all would also tell which of them share objects.
        return str(joblib.hash([joblib.hash(value) for value in inputs] + [_code_hash()]))

    def run(self) -> pd.DataFrame:
        """The rounds of the job; see `run_episode`."""
        if self.make_env is not None:
            env: Any = self.make_env(self.policy)
        else:
            env = FLEdgeVectorEnv(
                len(self.seeds), self.scenario, autoreset_mode=AutoresetMode.DISABLED
            )
        return run_episode(self.policy, env, self.scenario, self.seeds)


@lru_cache(maxsize=1)
def _code_hash() -> str:
    """Hash of the packages' sources, so that results of other code are not taken for these."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].glob("*/*.py")):
        if path.parent.name in ("fl_edge_env", "policies", "train_fl"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def make_jobs(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    make_env: EnvFactory | None = None,
) -> list[Job]:
    """The jobs of a comparison: all seeds in a batch, or one by one where models are trained.

    Parameters
    ----------
    policies : sequence of Policy
        With distinct names.
    scenario : Scenario
        The system.
    seeds : sequence of int
        The channel of a seed is the same for every policy.
    make_env : callable, optional
        Makes the training environment for a policy.

    Raises
    ------
    ValueError
        If names or seeds repeat or are missing.
    """
    names = [policy.name for policy in policies]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"policies must be one or more with distinct names, got {names}")
    whole = all(is_integer(seed) and seed >= 0 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be one or more distinct integers >= 0, got {list(seeds)}")
    seeds = [int(seed) for seed in seeds]
    batches = [tuple(seeds)] if make_env is None else [(seed,) for seed in seeds]
    return [Job(policy, scenario, batch, make_env) for policy in policies for batch in batches]


class JobsFailedError(RuntimeError):
    """Some jobs raised; the others are finished.

    Attributes
    ----------
    failures : list of (Job, str)
        The jobs and their tracebacks.
    """

    def __init__(self, failures: list[tuple[Job, str]]) -> None:
        self.failures = failures
        lines = [
            f"{job.policy.name}, seeds {list(job.seeds)}: {text.strip().splitlines()[-1]}"
            for job, text in failures
        ]
        super().__init__(f"{len(failures)} jobs failed:\n" + "\n".join(lines))


def run_jobs(
    jobs: Sequence[Job],
    *,
    folder: Path | None = None,
    workers: int = 1,
    backend: Backend = "processes",
    address: str | None = None,
    on_finish: Callable[[Job], None] = lambda _: None,
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
    on_finish : callable
        Called with each job when it is finished or found on disk.

    Returns
    -------
    list of pandas.DataFrame

    Raises
    ------
    ValueError
        If `workers` or `backend` is wrong.
    ModuleNotFoundError
        If the Ray backend is asked for and Ray is not installed.
    JobsFailedError
        If a job raised, after all others are finished.
    """
    if not is_integer(workers) or workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers!r}")
    if backend not in ("processes", "ray"):
        raise ValueError(f"backend must be 'processes' or 'ray', got {backend!r}")
    if folder is not None:
        writable_folder(folder)
    results: dict[int, pd.DataFrame] = {}
    for index, job in enumerate(jobs):
        rounds = None if folder is None else _load(_path(folder, job))
        if rounds is not None:
            results[index] = rounds
            on_finish(job)
    missing = [(index, jobs[index]) for index in range(len(jobs)) if index not in results]
    workers = min(workers, len(missing))
    failures = []
    if backend == "processes":
        outcomes = _on_processes(missing, workers)
    else:
        outcomes = _on_ray(missing, workers, address)
    for index, outcome in outcomes:
        job = jobs[index]
        if isinstance(outcome, str):
            failures.append((job, outcome))
        else:
            if folder is not None:
                _save(outcome, _path(folder, job))
            results[index] = outcome
        on_finish(job)
    if failures:
        raise JobsFailedError(failures)
    return [results[index] for index in range(len(jobs))]


_Outcome: TypeAlias = tuple[int, pd.DataFrame | str]


def _on_processes(jobs: list[tuple[int, Job]], workers: int) -> Iterator[_Outcome]:
    if jobs:
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from parallel(joblib.delayed(_attempt)(*job, workers) for job in jobs)


def _on_ray(jobs: list[tuple[int, Job]], workers: int, address: str | None) -> Iterator[_Outcome]:
    if not jobs:
        return
    if find_spec("ray") is None:
        raise ModuleNotFoundError(
            "backend 'ray' needs the package ray: install the extra `cluster`, "
            'for example by pip install -e ".[cluster]"'
        )
    import ray
    from ray.util.multiprocessing import Pool

    if address is None:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=address, log_to_driver=False)
    try:
        with Pool(workers) as pool:
            calls = [(index, job, workers) for index, job in jobs]
            yield from pool.imap_unordered(_attempt_call, calls, chunksize=1)
    finally:
        ray.shutdown()


def _attempt_call(call: tuple[int, Job, int]) -> _Outcome:
    return _attempt(*call)


def _attempt(index: int, job: Job, workers: int) -> _Outcome:
    """Run a job; one thread each where several run at a time, so that they do not compete."""
    threads = numba.get_num_threads()
    try:
        if workers > 1:
            numba.set_num_threads(1)
        return index, job.run()
    except Exception:
        return index, traceback.format_exc()
    finally:
        numba.set_num_threads(threads)


def _path(folder: Path, job: Job) -> Path:
    return folder / f"{job.key}.npz"


def _save(rounds: pd.DataFrame, path: Path) -> None:
    columns: dict[str, Any] = {str(name): rounds[name].to_numpy() for name in rounds}
    with atomic_path(path) as temporary:
        np.savez(temporary, **columns | {"policy": np.array(rounds["policy"].iloc[0])})


def _load(path: Path) -> pd.DataFrame | None:
    """The rounds of a finished job, or None where the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            policy = str(columns["policy"])
            return pd.DataFrame(
                {"policy": policy} | {n: columns[n] for n in columns.files if n != "policy"}
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None

"""Run policies on a scenario under many seeds, and condense the rounds to one row a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode, VectorEnv
from joblib import Parallel, delayed

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies.base import Policy
from policies.bound import LowerBound

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]

_SCALARS = ("round_time", "elapsed_time", "latency", "sampling_error", "penalty")
_TRAINING = ("train_loss", "test_loss", "test_accuracy")


def evaluate(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    make_env: EnvFactory | None = None,
    target_accuracy: float | None = None,
    bound: LowerBound | None = None,
    workers: int = 1,
) -> pd.DataFrame:
    """Evaluate policies under common random numbers.

    Parameters
    ----------
    policies : sequence of Policy
        With distinct names.
    scenario : Scenario
        The system.
    seeds : sequence of int
        The channel of a seed is the same for every policy.
    make_env : callable, optional
        Makes the training environment for a policy; without it no models are trained and all
        seeds of a policy run as one batch.
    target_accuracy : float, optional
        Adds `time_to_target` where models are trained.
    bound : LowerBound, optional
        Adds `bound_gap` and `within_budget`.
    workers : int
        Processes.

    Returns
    -------
    pandas.DataFrame
        A row per policy and seed; see `summarise` for the columns.

    Raises
    ------
    ValueError
        If an argument is wrong.
    """
    jobs = run(policies, scenario, seeds, make_env=make_env, workers=workers)
    return summarise(pd.concat(jobs, ignore_index=True), target_accuracy, bound)


def run(
    policies: Sequence[Policy],
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    make_env: EnvFactory | None = None,
    workers: int = 1,
) -> Iterator[pd.DataFrame]:
    """Run the policies and yield the rounds of each job, in order, as it finishes.

    A job is one policy with all seeds, or, where models are trained, one policy with one seed.

    Parameters
    ----------
    policies, scenario, seeds, make_env, workers
        As in `evaluate`.

    Yields
    ------
    pandas.DataFrame
        A row per round and seed; see `run_episode` for the columns.
    """
    names = [policy.name for policy in policies]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"policies must be one or more with distinct names, got {names}")
    seeds = [int(seed) for seed in seeds]
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be one or more distinct integers >= 0, got {seeds}")
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers!r}")
    batches = [seeds] if make_env is None else [[seed] for seed in seeds]
    jobs = [(policy, scenario, batch, make_env) for policy in policies for batch in batches]
    parallel = Parallel(n_jobs=min(workers, len(jobs)), return_as="generator")
    yield from parallel(delayed(_run_job)(*job) for job in jobs)


def _run_job(
    policy: Policy, scenario: Scenario, seeds: list[int], make_env: EnvFactory | None
) -> pd.DataFrame:
    if make_env is not None:
        return run_episode(policy, make_env(policy), scenario, seeds)
    env = FLEdgeVectorEnv(len(seeds), scenario, autoreset_mode=AutoresetMode.DISABLED)
    return run_episode(policy, env, scenario, seeds)


def run_episode(
    policy: Policy,
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    scenario: Scenario,
    seeds: Sequence[int],
) -> pd.DataFrame:
    """Run a policy for one episode.

    Parameters
    ----------
    policy : Policy
        The policy.
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        A single environment, or a batch of as many as there are seeds.
    scenario : Scenario
        The environment's scenario.
    seeds : sequence of int
        One seed for a single environment.

    Returns
    -------
    pandas.DataFrame
        A row per round and seed with `policy`, `seed`, `round`, the round's scalars, `reward`,
        `energy_ratio` (mean over devices of expected energy over budget in this round),
        `spent_ratio` (the same of the energy really spent), `worst_energy_ratio` (largest over
        devices of the time average so far), `mean_queue`, and what training adds.
    """
    seed: Any = list(seeds) if isinstance(env, VectorEnv) else seeds[0]
    observation, info = env.reset(seed=seed)
    policy.reset(seed)
    policy.feedback(info)
    budget = scenario.energy_budget_j
    consumed = np.zeros((len(seeds), scenario.num_devices))
    columns: dict[str, list[Any]] = {}

    def record(name: str, value: object) -> None:
        columns.setdefault(name, []).append(np.atleast_1d(np.asarray(value, dtype=np.float64)))

    for index in range(scenario.num_rounds):
        observation, reward, _, _, info = env.step(policy.decide(observation))
        policy.feedback(info)
        consumed += info["energy_expected"]
        for name in _SCALARS:
            record(name, info[name])
        record("reward", reward)
        record("energy_ratio", np.mean(info["energy_expected"] / budget, axis=-1))
        record("spent_ratio", np.mean(info["energy_spent"] / budget, axis=-1))
        record("worst_energy_ratio", np.max(consumed / budget, axis=-1) / (index + 1))
        record("mean_queue", np.mean(observation["queue"], axis=-1))
        for name in _TRAINING:
            if name in info:
                record(name, info[name])
    rounds = pd.DataFrame(
        {
            "policy": policy.name,
            "seed": np.repeat(np.asarray(seeds, dtype=np.int64), scenario.num_rounds),
            "round": np.tile(np.arange(1, scenario.num_rounds + 1), len(seeds)),
        }
    )
    return rounds.assign(**{name: np.stack(v, axis=1).ravel() for name, v in columns.items()})


def summarise(
    rounds: pd.DataFrame,
    target_accuracy: float | None = None,
    bound: LowerBound | None = None,
) -> pd.DataFrame:
    """Condense rounds to a row per policy and seed, policies in order of appearance.

    Parameters
    ----------
    rounds : pandas.DataFrame
        As `run_episode` returns it.
    target_accuracy : float, optional
        Accuracy whose first arrival `time_to_target` tells.
    bound : LowerBound, optional
        Lower bound on the penalty.

    Returns
    -------
    pandas.DataFrame
        `policy`, `seed`, `total_time` [s], `mean_objective` (time-average penalty [s]),
        `mean_reward`, `energy_ratio`, `worst_energy_ratio`, `sampling_error`; where models were
        trained `final_accuracy` and, with a target, `time_to_target` [s], NaN where it was not
        reached; with a bound `bound_gap`, the objective's relative distance to it, and
        `within_budget`, whether every device met its budget, without which the bound does not
        apply.
    """
    groups = rounds.groupby(["policy", "seed"], sort=False)
    table = groups.agg(
        total_time=("elapsed_time", "last"),
        mean_objective=("penalty", "mean"),
        mean_reward=("reward", "mean"),
        energy_ratio=("energy_ratio", "mean"),
        worst_energy_ratio=("worst_energy_ratio", "last"),
        sampling_error=("sampling_error", "mean"),
    )
    if "test_accuracy" in rounds:
        table["final_accuracy"] = groups["test_accuracy"].last()
        if target_accuracy is not None:
            reached = rounds[rounds["test_accuracy"] >= target_accuracy]
            first = reached.groupby(["policy", "seed"], sort=False)["elapsed_time"].first()
            table["time_to_target"] = first
    if bound is not None:
        table["bound_gap"] = table["mean_objective"] / bound.value - 1.0
        table["within_budget"] = table["worst_energy_ratio"] <= 1.0 + 1e-9
    return table.reset_index()

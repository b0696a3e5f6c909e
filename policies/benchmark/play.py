"""Plays an episode of a policy."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from fl_edge_env import Scenario
from fl_edge_env.files import reason
from fl_edge_env.streams import policy_seed
from policies.base import Policy, checked_decision
from policies.benchmark.bounds import Prices, price_round
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.records import Record, Recorder


def play(
    policy: Policy,
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    scenario: Scenario,
    seeds: Sequence[int],
    checkpoint: Checkpoint | None = None,
    prices: Prices | None = None,
    model: Path | None = None,
) -> Record:
    """Run a policy for one episode.

    The environment is a batch with a system for each seed, or a single system. A run with a
    checkpoint resumes from it. `model` is a file for the final global model. A round is recorded
    before the policy's feedback, and the policy's seed does not reveal the environment's.

    Returns
    -------
    Record
        Its rounds, a row for each round and seed, with `seed`, `round`, the round's scalars,
        `reward`, `energy_ratio` (mean over devices of expected energy over budget in this round),
        `spent_ratio` (the same for realised energy), `mean_queue` and `max_queue` [J]. Over the
        rounds so far: `worst_energy_ratio` and `worst_spent_ratio` (time average of the worst
        device), `over_budget` (fraction of devices whose expected energy exceeds the budget),
        `influence` and `least_participation` (minima over devices, see
        `policies.benchmark.status.DeviceAccounts`) and `never_seen` (number of devices that never
        participated). `aggregate_noise` is the sum of squared weights of the round's aggregate. For
        sampled decisions with no late devices, its expectation is the sampling error over K plus
        ``(1 - 1/K) sum w^2``, as a device drawn twice counts twice; both divided by ``1 -
        upload_failure``. With prices: `priced_objective`, the penalty plus the priced energy beyond
        the budget [s], and `priced_outcome`, the round's cost to a user [s]. With training:
        `train_loss`, `test_loss`, `test_accuracy`, `mean_device_accuracy`, `worst_tenth_accuracy`
        (mean of the worst tenth of devices), and `real_time`, the round's duration on this machine
        [s].

    Raises
    ------
    ValueError
        If a decision is not a valid `Allocation`.
    """
    batch = isinstance(env, VectorEnv)
    given = _given(env) if checkpoint else {}
    interrupted = checkpoint.load(given) if checkpoint else None
    recorder: Recorder
    if interrupted is not None:
        env, policy, observation, recorder = interrupted
    else:
        recorder = Recorder(scenario, seeds)
        own_seeds = [policy_seed(seed) for seed in seeds]
        policy.reset(own_seeds if batch else own_seeds[0])
        first: Any = list(seeds) if batch else seeds[0]
        observation, info = env.reset(seed=first)
        policy.feedback(info)
    try:
        for number in range(recorder.num_rounds + 1, scenario.num_rounds + 1):
            start = time.perf_counter()
            decision = checked_decision(policy, policy.decide(observation))
            # Made anew, because its cached participants may be others than its cohort.
            decision = replace(decision).of_shape(observation["queue"].shape)
            observation, reward, terminated, truncated, info = env.step(decision)
            if not batch:
                decision = env.unwrapped.last_decision  # type: ignore[union-attr]  # of wrappers
                if (terminated or truncated) and number < scenario.num_rounds:
                    raise ValueError(
                        f"an episode of make_env's environment ended after {number} of "
                        f"{scenario.num_rounds} rounds: give the scenario as many rounds instead"
                    )
            account = info
            if scenario.csi == "participants":  # status needs more than the server knows
                account = info | env.unwrapped.last_round.account()  # type: ignore[union-attr]
            priced = {} if prices is None else price_round(decision, account, prices, scenario)
            recorder.add(decision, observation, reward, account, start, priced)
            policy.feedback(info)
            if checkpoint and number % checkpoint.every == 0:
                checkpoint.save((env, policy, observation, recorder), given)
    except BaseException as error:
        error.add_note(f"in round {number}")
        raise
    if model is not None:
        _save_model(env, model)
    return recorder.record()


def _given(env: Any) -> dict[str, object]:
    """The data set, which checkpoints omit because a resumed run loads it anyway."""
    task: Any = env.get_wrapper_attr("task") if env.has_wrapper_attr("task") else None
    return {"dataset": task.dataset} if hasattr(task, "dataset") else {}


def _save_model(env: Any, path: Path) -> None:
    try:
        env.save_model(path)
    except (OSError, ValueError) as error:  # `ValueError` if no file can be created
        warnings.warn(
            f"the last model is lost, but the rounds are kept: {reason(error)}. Rerunning the "
            "command repeats the run to save the model",
            RuntimeWarning,
            stacklevel=2,
        )

"""One episode of a policy, as a table of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium.vector import VectorEnv

from fl_edge_env import Scenario
from policies.base import Policy

_SCALARS = ("round_time", "elapsed_time", "latency", "sampling_error", "penalty")
_TRAINING = ("train_loss", "test_loss", "test_accuracy")


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

"""The jobs of a comparison, and the keys under which their results are kept."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import joblib
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies.base import Policy
from policies.benchmark.bounds import Prices, outcome_path_bound, path_bound
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.episode import Episodes, run_episode, seed_column
from policies.user_code import PACKAGES, loaded_code

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]

# Stands for the policy in the table of a `BoundJob`.
BOUND_NAME = "bound"


@dataclass(frozen=True, eq=False)
class Job:
    """A policy on a scenario under some seeds.

    The policy is in its state before the first episode. The seeds run as one batch; with
    `make_env`, which makes an environment that trains models, there is one seed. With `prices` the
    rounds are also counted at the prices of both bounds. `title` replaces the policy's name in
    messages and file names.
    """

    policy: Policy
    scenario: Scenario
    seeds: tuple[int, ...]
    make_env: EnvFactory | None = None
    prices: Prices | None = None
    title: str | None = None

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.title or self.policy.name}, seeds {list(self.seeds)}"

    @property
    def trains(self) -> bool:
        """True if it trains models, so that it has checkpoints and a last model."""
        return self.make_env is not None

    def inputs(self) -> tuple[Any, ...]:
        """All that determines the result, apart from the code; resets the policy."""
        self.policy.reset(self.seeds[0])  # an earlier episode leaves no trace
        state: Any = self.policy.__getstate__() or {}
        if isinstance(state, dict):
            # Without the job's scenario, which would be hashed twice. Functions, such as
            # user-defined resources, are their source: pickled they are but names.
            state = {
                name: _source(value) if inspect.isfunction(value) else value
                for name, value in state.items()
                if not (isinstance(value, Scenario) and value == self.scenario)
            }
        maker: Any = self.make_env
        maker = _source(maker) if inspect.isfunction(maker) else getattr(maker, "identity", maker)
        kind = type(self.policy).__qualname__
        return kind, state, self.scenario, self.seeds, maker, self.prices

    def run(self, checkpoint: Checkpoint | None = None, model: Path | None = None) -> Episodes:
        """Play the job; see `run_episode`. `model` is a file for the last global model."""
        if self.make_env is not None:
            env: Any = self.make_env(self.policy)
        else:
            env = FLEdgeVectorEnv(
                len(self.seeds), self.scenario, autoreset_mode=AutoresetMode.DISABLED
            )
        # A copy, which shares no scenario with the environment and the accounts.
        policy = copy.deepcopy(self.policy)
        return run_episode(policy, env, self.scenario, self.seeds, checkpoint, self.prices, model)


@dataclass(frozen=True, eq=False)
class BoundJob:
    """Both bounds along the path of a seed, at some prices."""

    scenario: Scenario
    seed: int
    prices: Prices
    trains = False

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{BOUND_NAME}, seed {self.seed}"

    def inputs(self) -> tuple[Any, ...]:
        """All that determines the result, apart from the code."""
        return self.scenario, self.seed, self.prices

    def run(self, *_: object) -> Episodes:
        """A row per round with `policy`, which is `BOUND_NAME`, `seed`, `round` and the bounds.

        They are `bound`, for policies that sample, and `outcome_bound`, for all [s].
        """
        rounds = self.scenario.num_rounds
        columns = {
            "seed": seed_column([self.seed] * rounds),
            "round": np.arange(1, rounds + 1),
            "bound": path_bound(self.scenario, self.seed, self.prices.energy),
            "outcome_bound": outcome_path_bound(self.scenario, self.seed, self.prices.outcome),
        }
        return Episodes(pd.DataFrame({"policy": BOUND_NAME} | columns))


Work: TypeAlias = Job | BoundJob


def job_keys(jobs: Sequence[Work]) -> list[str]:
    """Hashes of all that determines the results: inputs, FLEdge's code and the user's.

    The user's code is what is loaded now, so policies and tasks must have been loaded before.
    """
    code = [code_hash(), loaded_code()]
    # One by one: a pickle of all would also depend on the objects that they share.
    return [str(joblib.hash([joblib.hash(value) for value in job.inputs()] + code)) for job in jobs]


def _source(function: Any) -> str:
    """Name and source of a function; the name alone where there is no file."""
    source = f"{function.__module__}.{function.__qualname__}"
    with suppress(OSError, TypeError):
        source += inspect.getsource(function)
    return source


# The libraries whose version can change a number.
_LIBRARIES = (
    "gymnasium",
    "numba",
    "numpy",
    "scikit-learn",
    "scipy",
    "stable-baselines3",
    "torch",
    "torchvision",
)


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash of the packages' sources and the libraries' versions."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()

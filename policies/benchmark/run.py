"""The runs of a comparison, and the keys under which their records are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeEnv, FLEdgeVectorEnv, Scenario
from fl_edge_env.streams import policy_seed
from policies.base import Policy
from policies.benchmark.bounds import Prices, outcome_path_bound, path_bound
from policies.benchmark.changes import UserCode, module_values, patches
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.copies import copied
from policies.benchmark.fingerprint import Fingerprint
from policies.benchmark.play import play
from policies.benchmark.records import Record, seed_column
from policies.global_random import seeded
from policies.solvers.waits import announced
from policies.user_files import PACKAGES, imports_of

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]


@dataclass(frozen=True, eq=False)
class Run:
    """A policy in a system, under some seeds.

    The policy is in its state before the first episode. Without training, the seeds run as one
    batch; with `make_env`, which makes the environment that trains models, there is one seed. With
    `prices`, rounds are also evaluated at these prices. `label` is the policy's name in tables, and
    `setting` is named in messages if there are several.
    """

    label: str
    policy: Policy
    scenario: Scenario
    seeds: tuple[int, ...] = ()  # none until a setting gives them
    make_env: EnvFactory | None = None
    prices: Prices | None = None
    setting: str = ""
    made_of: str = ""  # the name of a policy that a command line gives

    @property
    def title(self) -> str:
        """Its label, after the setting's name if there are several settings."""
        return f"{self.setting}, {self.label}" if self.setting else self.label

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.title}, seeds {list(self.seeds)}"

    @property
    def trains(self) -> bool:
        """True if it trains models and so has checkpoints and a final model."""
        return self.make_env is not None

    def inputs(self) -> tuple[Any, ...]:
        """Everything that determines the record, except for code that the objects do not hold."""
        policy = copied(self.policy)
        seeds = [policy_seed(seed) for seed in self.seeds]
        with seeded(*self.seeds):
            policy.reset(seeds[0] if self.trains else seeds)  # an earlier episode leaves no trace
        maker: Any = self.make_env
        if hasattr(maker, "identity"):  # which leaves out what a class below adds
            own = "identity" in vars(type(maker))
            maker = maker.identity, None if own else maker
        return policy, self.scenario, self.seeds, maker, self.prices

    def new_env(self, policy: Policy) -> Any:
        """An environment of its system for the policy or a copy of it.

        `ValueError` if `make_env` makes one of another system.
        """
        if self.make_env is None:
            return FLEdgeVectorEnv(
                len(self.seeds), self.scenario, autoreset_mode=AutoresetMode.DISABLED
            )
        env = self.make_env(policy)
        if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, FLEdgeEnv):
            raise ValueError(f"make_env must make environments of FLEdge, got {env!r}")
        other = differences(env.unwrapped.scenario, self.scenario, ())
        if other:
            raise ValueError(
                f"the environment of make_env has a scenario with different {', '.join(other)}: "
                "give evaluate and the policies the scenario of the environment, which is "
                "factory.scenario for a TrainingEnvFactory"
            )
        return env

    def play(self, checkpoint: Checkpoint | None = None, model: Path | None = None) -> Record:
        """Play the run with a copy of the policy; see `policies.benchmark.play`.

        `model` is a file for the final model.
        """
        # A copy also shares no scenario with the environment and the accounts.
        policy = copied(self.policy)
        with seeded(*self.seeds):
            env = self.new_env(policy)
            record = play(policy, env, self.scenario, self.seeds, checkpoint, self.prices, model)
        if self.trains and "train_loss" not in record.rounds:
            raise ValueError(
                "make_env must make environments that train models, such as TrainingEnvFactory, "
                f"but the infos of {env} have no client_updates"
            )
        return record


@dataclass(frozen=True, eq=False)
class BoundRun:
    """Both bounds along a seed's sample path, at given prices."""

    scenario: Scenario
    seed: int
    prices: Prices
    trains = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"bound, seed {self.seed}"

    def inputs(self) -> tuple[Any, ...]:
        """Everything that determines the record."""
        return self.scenario, self.seed, self.prices

    def play(self, *_: object) -> Record:
        """A row for each round with `seed`, `round` and both bounds [s].

        `bound` holds for policies that sample, `outcome_bound` for all policies.
        """
        rounds = self.scenario.num_rounds
        energy = self.prices.energy
        assert energy is not None  # as the setting has bounds
        with announced("computing the bounds of an episode", self.scenario):
            columns = {
                "seed": seed_column([self.seed] * rounds),
                "round": np.arange(1, rounds + 1),
                "bound": path_bound(self.scenario, self.seed, energy),
                "outcome_bound": outcome_path_bound(self.scenario, self.seed, self.prices.outcome),
            }
        return Record(pd.DataFrame(columns))


def differences(one: Scenario, other: Scenario, ignored: Sequence[str]) -> list[str]:
    """The fields in which two systems differ."""
    theirs = one.to_dict()
    ours = other.to_dict()
    return [
        name
        for name in ours
        if name not in ignored and not np.array_equal(ours[name], theirs[name])
    ]


AnyRun: TypeAlias = Run | BoundRun


def run_key(run: AnyRun) -> str:
    """Hash of everything that determines a record: inputs, FLEdge's code and the user's.

    Of the user's code, it covers the files that define the run's classes, functions and modules,
    all user's files that these import, the versions of the libraries that they import, and what
    replaces functions and classes of FLEdge. Of global values, it covers those that `Fingerprint`
    does. It does not cover data files and environment variables that this code reads, global values
    of FLEdge and libraries that it changes, such as torch's default type, code that data files and
    texts name, such as pickles and entry points, libraries that change without a new version,
    functions that numba has cached on disk, results that `functools.cache` keeps, attributes of
    tensors and arrays, clocks, and random numbers of the operating system.

    Raises any exception if the run has no key: if it holds something that cannot be hashed, such as
    a lock, shares a generator of random numbers with other runs, or its code may import or run code
    that cannot be known before.
    """
    return key_and_code(run)[0]


def key_and_code(run: AnyRun) -> tuple[str, UserCode]:
    """The `run_key` of a run, and the user's code that it covers."""
    fingerprint = Fingerprint()
    inputs = inputs_hash(run, fingerprint)
    files, libraries, computing = imports_of(fingerprint.files)
    if computing:
        raise ValueError(f"{computing[0]}, which can run code that no key would cover")
    code = [(package, Path(file).name, text) for file, (package, text) in files.items()]
    key = fingerprint.of((inputs, code_hash(), sorted(code), sorted(libraries.items())))
    contents = {file: content for file, (_, content) in files.items()}
    return key, UserCode(contents, module_values(contents), inputs if fingerprint.users else "")


def inputs_hash(run: AnyRun, fingerprint: Fingerprint) -> str:
    """Hash by a fingerprint of a run's inputs and of what replaces code of FLEdge."""
    return fingerprint.of((run.inputs(), patches()))


# Libraries whose version can change a result.
_LIBRARIES = (
    "gymnasium",
    "numba",
    "numpy",
    "scikit-learn",
    "sb3-contrib",
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

"""A piece of work that `run_jobs` runs, and the key under which its result is kept."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import joblib
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeVectorEnv, Scenario
from fl_edge_env.checks import is_integer
from policies.base import Policy, check_scenario
from policies.benchmark.bounds import Prices, outcome_path_bound, path_bound
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.episode import Episodes, run_episode, seed_column
from policies.benchmark.live import Recorder

# The folders of the packages.
PACKAGES = tuple(
    Path(__file__).parents[2] / name for name in ("fl_edge_env", "policies", "train_fl")
)

# Makes the environment in which a policy trains real models.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]


# Stands for the policy in the table of a `BoundJob`.
BOUND_NAME = "bound"


@dataclass(frozen=True, eq=False)
class Job:
    """A policy on a scenario under some seeds.

    The policy is as it is before its first episode. The seeds run as one batch; where `make_env`
    makes an environment that trains models, there is one. At the `prices`, those of both bounds,
    the rounds are counted too. `title` stands beside the seeds, in place of the policy's name.
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
        """Its name in messages."""
        return f"{self.title or self.policy.name}, seeds {list(self.seeds)}"

    @property
    def saves(self) -> bool:
        """True if it is saved on the way; runs without training are over in seconds."""
        return self.make_env is not None

    @cached_property
    def key(self) -> str:
        """Hash of all that determines the result, the code included.

        Of a class or function of one's own that is the module it stands in, but not what that
        module imports, and of a data set not the content of its files. A task that is given as
        itself, not by names, has another hash in each process.
        """
        kind = type(self.policy)
        self.policy.reset(self.seeds[0])  # an earlier episode leaves no trace
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
            getattr(self.make_env, "identity", self.make_env),
            self.prices,
        )
        # One by one: a pickle of all would also tell which of them share objects.
        return str(joblib.hash([joblib.hash(value) for value in inputs] + [code_hash()]))

    def run(
        self,
        checkpoint: Checkpoint | None = None,
        recorders: Sequence[Recorder] = (),
        model: Path | None = None,
    ) -> Episodes:
        """Play the job; see `run_episode`. `model` is a file for the last global model."""
        if self.make_env is not None:
            env: Any = self.make_env(self.policy)
        else:
            env = FLEdgeVectorEnv(
                len(self.seeds), self.scenario, autoreset_mode=AutoresetMode.DISABLED
            )
        # A copy, which shares no scenario with the environment and the accounts.
        policy = copy.deepcopy(self.policy)
        return run_episode(
            policy,
            env,
            self.scenario,
            self.seeds,
            checkpoint,
            self.prices,
            recorders,
            model,
        )


@dataclass(frozen=True, eq=False)
class BoundJob:
    """Both bounds along the path of a seed, at some prices."""

    scenario: Scenario
    seed: int
    prices: Prices
    saves = False
    parts = 2

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{BOUND_NAME}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """Hash of all that determines the result, the code included."""
        inputs = (self.scenario, self.seed, self.prices)
        return str(joblib.hash([joblib.hash(value) for value in inputs] + [code_hash()]))

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
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()


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

    Of very many devices or seeds there are several batches, so that memory suffices. Raises
    `ValueError` if names or seeds repeat or are missing, or are of another type.
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
    for policy in policies:
        _check_system(policy, scenario)
        if make_env is None and policy.needs_training:
            raise ValueError(
                f"{policy.name} decides by what training reports, and no models are trained here: "
                "leave it out, or train"
            )
    seeds = check_seeds(seeds)
    size = 1 if make_env is not None else max(1, _BATCH_NUMBERS // scenario.num_devices)
    batches = [tuple(seeds[start : start + size]) for start in range(0, len(seeds), size)]
    return [
        Job(policy, scenario, batch, make_env, prices, title)
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

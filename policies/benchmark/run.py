"""The runs of a comparison."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
import pandas as pd
from gymnasium.vector import AutoresetMode

from fl_edge_env import FLEdgeEnv, FLEdgeVectorEnv, Scenario
from policies.base import Policy
from policies.benchmark.bounds import Prices, outcome_path_bound, path_bound
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.play import play
from policies.benchmark.records import Record
from policies.benchmark.stored import code_hash, key_of, own_code, values_hash
from policies.global_random import seeded
from policies.outcome import remember_prices
from policies.registry import POLICIES, make_policy
from policies.solvers.waits import announced

# Makes the environment in which a policy trains real models. Commands need its `identity`.
EnvFactory: TypeAlias = Callable[[Policy], gym.Env[Any, Any]]


class PolicyText(NamedTuple):
    """A policy as commands name it, with which each process makes its own."""

    name: str  # for `make_policy`
    options: Mapping[str, Any]

    @property
    def is_known(self) -> bool:
        """Whether it is one of FLEdge's policies, and not a file."""
        return self.name.partition(":")[0] in POLICIES

    def make(self, scenario: Scenario) -> Policy:
        """Make the policy, with a scenario of its own."""
        return make_policy(self.name, copy.deepcopy(scenario), **self.options)


@dataclass(frozen=True, eq=False)
class Run:
    """A policy in a system, under some seeds.

    Without training, the seeds run as one batch; with `make_env`, which makes the environment that
    trains models, there is one seed. With `prices`, rounds are also evaluated at these prices.
    `label` is the policy's name in tables, and `setting` is named in messages if there are several.

    With a `text`, `policy` is only for checks, and the process that plays the run makes its own.
    """

    label: str
    policy: Policy
    scenario: Scenario
    seeds: tuple[int, ...] = ()  # none until a setting gives them
    make_env: EnvFactory | None = None
    prices: Prices | None = None
    setting: str = ""
    text: PolicyText | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The attributes that other processes need."""
        return vars(self) if self.text is None else vars(self) | {"policy": None}

    @property
    def title(self) -> str:
        """The label, after the setting's name if there are several settings."""
        return f"{self.setting}, {self.label}" if self.setting else self.label

    @property
    def name(self) -> str:
        """The run's name in messages."""
        return f"{self.title}, seeds {list(self.seeds)}"

    @property
    def trains(self) -> bool:
        """True if it trains models and so has checkpoints and a final model."""
        return self.make_env is not None

    def make_policy(self) -> Policy:
        """The policy to play: made from its text, or the given one."""
        if self.text is None:
            return self.policy
        if self.prices is not None:  # which Opportunistic would search for again
            remember_prices(self.prices.system, self.prices.outcome)
        return self.text.make(self.scenario)

    def hash_of_values(self, policy: Policy) -> str:
        """Hash of the values that its policy holds when it is made, such as a network's weights.

        Raises any exception if they cannot be pickled. FLEdge's policies follow from their text.
        """
        known = self.text is not None and self.text.is_known
        return "" if known else values_hash(policy)

    def key(self, policy: Policy, values: str) -> str:
        """Hash of everything that determines the record, with the user's files as they are now.

        `values` are those that the policy had when it was made.
        """
        maker: Any = self.make_env
        training = None if maker is None else maker.identity
        system = self.scenario, self.prices, self.seeds
        return key_of(*system, self.text, training, values, code_hash(own_code(policy)))

    def new_env(self, policy: Policy) -> Any:
        """An environment of its system for the policy.

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

    def play(
        self, policy: Policy, checkpoint: Checkpoint | None = None, model: Path | None = None
    ) -> Record:
        """Play the run with its policy; see `policies.benchmark.play`.

        `model` is a file for the final model.
        """
        with chdir("."), seeded(*self.seeds):  # a policy may change the folder
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
    def seeds(self) -> tuple[int]:
        """Its only seed."""
        return (self.seed,)

    @property
    def name(self) -> str:
        """The run's name in messages."""
        return f"bound, seed {self.seed}"

    policy = None

    def make_policy(self) -> None:
        """No policy."""

    def hash_of_values(self, _: None) -> str:
        """No values of a policy."""
        return ""

    def key(self, *_: object) -> str:
        """Hash of everything that determines the record."""
        return key_of(self.scenario, self.prices, self.seed)

    def play(self, *_: object) -> Record:
        """A row for each round with `seed`, `round` and both bounds [s].

        `bound` holds for policies that sample, `outcome_bound` for all policies.
        """
        rounds = self.scenario.num_rounds
        energy = self.prices.energy
        assert energy is not None  # as the setting has bounds
        with announced("computing the bounds of an episode", self.scenario):
            columns = {
                "seed": np.full(rounds, self.seed),
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

"""The outcome bound where the band is shared out: no policy is below it in any round."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fl_edge_env import FLEdgeVectorEnv, Scenario
from fl_edge_env.typing import FloatArray
from policies import Opportunistic, Policy, make_policy
from policies.benchmark.bound import outcome_path_bound, priced_outcome
from policies.outcome import DualPrices
from policies.registry import POLICIES

SEEDS = [3, 4]
ROUNDS = 24
BASE = Scenario.cifar10(
    num_devices=8,
    num_rounds=ROUNDS,
    num_samples=400 * np.linspace(0.4, 1.6, 8),
    energy_budget_j=200.0,
)
AWAY = {"availability": 0.6, "availability_persistence": 0.5}
SYSTEMS = {
    "two places": {"cohort_size": 2},
    "three places": {"cohort_size": 3, "compression": "qsgd:4"},
    "deadline": {"cohort_size": 3, "deadline_s": 2500.0} | AWAY,
    "failures": {"cohort_size": 3, "upload_failure": 0.2},
    "all": {"cohort_size": 2, "deadline_s": 1500.0, "upload_failure": 0.2}
    | {"compression": "qsgd:4"}
    | AWAY,
}
# Any prices bound: those of energy small and large, of participation alike and of both signs.
PRICES = [
    DualPrices(np.full(8, 0.5), np.full(8, 1500.0)),
    DualPrices(np.linspace(0.0, 6.0, 8), np.random.default_rng(0).normal(0.0, 3000.0, 8)),
]
RESOURCES = {
    "equal": ["static", "dynamic"],
    "shared": ["static", "dynamic", "static-shared", "dynamic-shared"],
}


def system_of(name: str, split: str) -> Scenario:
    return BASE.replace(**SYSTEMS[name], bandwidth_split=split)


def names(split: str) -> list[str]:
    """Policies that need no training, and some selectors with all resources that there are."""
    selectors = ["random", "over-selection", "best-channel"]
    named = [f"{selector}:{rule}" for selector in selectors for rule in RESOURCES[split]]
    scenario = system_of("two places", split)
    others = [name for name in POLICIES if name != "opportunistic"]  # it would look for prices
    return [n for n in [*others, *named] if not make_policy(n, scenario).needs_training]


@cache
def shared_bounds(name: str) -> FloatArray:
    """Bounds of the rounds of a shared system, of shape (rounds, prices, seeds)."""
    scenario = system_of(name, "shared")
    paths = [[outcome_path_bound(scenario, seed, p) for seed in SEEDS] for p in PRICES]
    return np.moveaxis(np.array(paths), -1, 0)


def above(policy: Policy, system: str) -> FloatArray:
    """How far the rounds of a policy are above the bounds of a shared system [s]."""
    env = FLEdgeVectorEnv(len(SEEDS), policy.scenario)
    observation, info = env.reset(seed=SEEDS)
    policy.reset(SEEDS)
    policy.feedback(info)
    priced = []
    for _ in range(ROUNDS):
        observation, *_, info = env.step(policy.decide(observation))
        policy.feedback(info)
        priced.append([priced_outcome(info, prices, policy.scenario) for prices in PRICES])
    return np.array(priced) - shared_bounds(system)


@pytest.mark.parametrize("split", ["equal", "shared"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_shared_bound__is_below_every_policy_in_every_round(system, split):
    policies = [Opportunistic(system_of(system, split), prices=p, start="cold") for p in PRICES]
    policies += [make_policy(name, system_of(system, split)) for name in names(split)]
    for policy in policies:
        assert above(policy, system).min() >= -1e-6, policy.name


@pytest.mark.parametrize("system", SYSTEMS)
def test_shared_bound__is_hardly_below_who_decides_at_its_prices(system):
    for row, prices in enumerate(PRICES):
        scenario = system_of(system, "shared")
        policy = Opportunistic(scenario, prices=prices, step_scale=0.0)
        over = above(policy, system)
        assert over.min() >= -1e-6
        # Without a certificate, or with a deadline that nobody meets, a round is far above.
        assert np.median(over[:, row]) < 0.1

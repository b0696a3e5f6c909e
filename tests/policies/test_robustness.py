"""Every policy decides validly in every scenario, and names what is no observation."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, Scenario, allocation
from policies import LROA, DivFL, Policy, UniD, UniS
from policies.p2 import kernel
from tests.support import SMALL, assert_round, field_values, layouts

MAKERS: dict[str, Callable[..., Policy]] = {
    "LROA": LROA,
    "exact LROA": lambda scenario: LROA(scenario, exact=True),
    "printed LROA": lambda scenario: LROA(scenario, variant="paper"),
    "Uni-D": UniD,
    "Uni-S": UniS,
    "DivFL": DivFL,
}


def assert_same(decision: Allocation, wanted: Allocation) -> None:
    for part in ("f", "p", "q", "cohort"):
        np.testing.assert_array_equal(getattr(decision, part), getattr(wanted, part))


def assert_finite_episodes(scenario: Scenario, seed: int) -> None:
    env = FLEdgeEnv(scenario)
    for name, make in MAKERS.items():
        if name == "DivFL" and scenario.cohort_size > scenario.num_devices:
            continue
        policy = make(scenario)
        observation, _ = env.reset(seed=seed)
        for _ in range(scenario.num_rounds):
            decision = policy.decide(observation)
            decision.validate(scenario)
            result = env.step(decision)
            assert_round(env, result)
            observation = result[0]
            if isinstance(policy, LROA):
                solution = policy.solution
                assert solution is not None
                assert math.isfinite(solution.objective)
                assert math.isfinite(solution.lower_bound)


@given(field_values(8), st.integers(0, 2**32 - 1))
def test_policies__decide_validly_around_the_defaults(fields, seed):
    assert_finite_episodes(Scenario(**fields), seed)


def test_lroa__may_give_a_device_as_little_as_a_decision_may():
    assert kernel.LEAST_Q == allocation._LEAST_Q


def observe(*batch: int, num_devices: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shape = (*batch, num_devices)
    return {"channel_gain": rng.uniform(0.01, 0.5, shape), "queue": rng.uniform(0, 300, shape)}


@pytest.mark.parametrize("batch", [(), (4,)])
def test_decide__the_layout_of_an_observation_changes_nothing(batch):
    policy = LROA(SMALL)
    observation = observe(*batch)
    wanted = policy.decide(observation)
    for name in layouts(observation["queue"]):
        other = {key: layouts(value)[name] for key, value in observation.items()}
        assert_same(policy.decide(other), wanted)


@pytest.mark.parametrize("name", MAKERS)
def test_decide__a_copied_policy_decides_alike_and_on_its_own(name):
    policy = MAKERS[name](SMALL)
    env = FLEdgeVectorEnv(2, SMALL)
    observation, info = env.reset(seed=0)
    policy.reset([0, 1])
    policy.feedback(info)
    for _ in range(2):
        observation, *_, info = env.step(policy.decide(observation))
        policy.feedback(info)
    copies = [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    if isinstance(policy, DivFL):  # moves the original only
        policy.feedback({"gradient_distance": np.ones((1, 5)), "gradient_devices": np.array([0])})
        assert [other.description for other in copies] == ["label histogram"] * 2
        policy.reset(0)
    for other in copies:
        assert_same(other.decide(observation), policy.decide(observation))

"""Every policy decides validly in every scenario, and names what is no observation."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, Scenario, allocation
from policies import LROA, DivFL, Policy, UniD, UniS, lower_bound
from policies.outcome import outcome_prices
from policies.p2 import best_resources, kernel, solve_p2
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


# Observations


def observe(*batch: int, num_devices: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shape = (*batch, num_devices)
    return {"channel_gain": rng.uniform(0.01, 0.5, shape), "queue": rng.uniform(0, 300, shape)}


NO_NUMBERS: list[Any] = [None, ["0.1"] * 5, [[0.1], [0.1, 0.2]], np.full(5, True), np.full(5, 1j)]
MAPPING = "observation must be a mapping with channel_gain and queue, got "
WRONG: list[tuple[Any, str]] = [
    (None, f"{MAPPING}NoneType"),
    ({"channel_gain": np.ones(5)}, rf"{MAPPING}\['channel_gain'\]"),
    *(
        (observe() | {name: value}, f"{name} must hold real numbers")
        for name in ("channel_gain", "queue")
        for value in NO_NUMBERS
    ),
    (observe(num_devices=4), r"channel_gain must have shape .*N = 5, got \(4,\)"),
    (observe(2, 2), r"channel_gain must have shape .*got \(2, 2, 5\)"),
    (observe(0), r"channel_gain must hold at least one row, got shape \(0, 5\)"),
    (observe() | {"channel_gain": 0.1}, r"channel_gain must have shape .*got \(\)"),
    (observe(3) | {"queue": np.ones(5)}, r"queue must have the shape .*\(3, 5\), got \(5,\)"),
    *(
        (observe() | {name: [0.1, 0.1, value, 0.1, 0.1]}, f"{name} must be {allowed}")
        for name, allowed, values in (
            ("channel_gain", "positive and finite", (math.nan, math.inf, 0.0, -0.1)),
            ("queue", "finite and not negative", (math.nan, math.inf, -0.1)),
        )
        for value in values
    ),
]


# The others check at the same place: one example tells whether they do.
@pytest.mark.parametrize("name", ["LROA", "Uni-D", "Uni-S", "DivFL"])
def test_decide__names_what_is_no_observation(name):
    policy = MAKERS[name](SMALL)
    for observation, message in WRONG if name == "LROA" else (WRONG[0], WRONG[2], WRONG[-1]):
        with pytest.raises(ValueError, match=f"^{message}") as raised:
            policy.decide(observation)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


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


# Options


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("exact", (None, 1)),
        ("variant", (None, np.array(["paper"]))),
        ("tolerance", ("1", math.nan, 0, -1, True, np.ones(2))),
        ("max_iterations", ("1", math.nan, 0, True, np.ones(2))),
    ],
)
def test_solve_p2__names_a_wrong_option(option, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{option} must be .*got "):
            solve_p2(np.ones(5), np.ones(5), SMALL, **{option: value})


Q = np.full(5, 0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda state: best_resources(*state, "even", SMALL), "q must hold real numbers"),
        (lambda state: best_resources(*state, Q[:4], SMALL), r"\(2, 5\), got \(4,\)"),
        (lambda state: best_resources(*state, Q * math.nan, SMALL), r"in \(0, 1\], got .*nan"),
        (lambda state: best_resources(*state, 0 * Q, SMALL), r"in \(0, 1\], got values from 0.0"),
        (lambda state: best_resources(*state, 8 * Q, SMALL), r"in \(0, 1\], got .* to 1.6"),
        (
            lambda _: LROA(SMALL, variant="mine"),
            "variant must be one of derived, paper, got 'mine'",
        ),
        (lambda _: lower_bound(SMALL, num_samples=1), r"num_samples must be .*got 1"),
        (lambda _: outcome_prices(SMALL, seed=-1), "seed must be an integer of at least 0, got -1"),
        (lambda _: lower_bound(SMALL, seed=-1), "seed must be an integer of at least 0, got -1"),
    ],
)
def test_policies__name_what_they_cannot_take(call, message):
    with pytest.raises(ValueError, match=message):
        call(observe(2).values())

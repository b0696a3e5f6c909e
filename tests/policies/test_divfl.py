"""DivFL: the greedy choice by the gradients of training, and its resources."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fl_edge_env import Scenario
from policies import DivFL, UniS
from policies.divfl import facility_location
from tests.support import ANY_SEED


def cover(distance: np.ndarray, chosen: tuple[int, ...]) -> float:
    return float(distance[:, list(chosen)].min(axis=1).sum())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def observation(scenario: Scenario, *batch: int) -> dict[str, np.ndarray]:
    shape = (*batch, scenario.num_devices)
    return {"channel_gain": np.full(shape, 0.1), "queue": np.zeros(shape)}


@given(ANY_SEED, st.integers(1, 5))
def test_facility_location__each_choice_lowers_the_cover_most(seed, count):
    rng = np.random.default_rng(seed)
    vectors = np.round(rng.normal(size=(8, 3)))  # some are alike
    distance = cdist(vectors, vectors)
    allowed = rng.permutation(np.arange(8) < rng.integers(count, 9))
    chosen = tuple(facility_location(distance, count, allowed))
    assert len(set(chosen)) == count
    rest = np.flatnonzero(allowed)
    for k in range(count):
        best = min(cover(distance, (*chosen[:k], j)) for j in rest if j not in chosen[:k])
        assert allowed[chosen[k]]
        assert cover(distance, chosen[: k + 1]) == pytest.approx(best, rel=1e-12)


def learned(scenario: Scenario, rng: np.random.Generator) -> tuple[DivFL, np.ndarray]:
    """A policy that has seen gradients, and their distances."""
    gradients = rng.normal(size=(scenario.num_devices, 4))
    distance = cdist(gradients, gradients)
    policy = DivFL(scenario)
    policy.feedback({"gradient_distance": distance})
    return policy, distance


def test_divfl__chooses_among_those_there_with_f_and_p_of_uni_s(rng):
    system = {"num_devices": 6, "cohort_size": 3, "energy_budget_j": 120.0}
    scenario = Scenario.femnist(availability=0.5, **system)
    policy, distance = learned(scenario, rng)
    there = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0]])
    seen = observation(scenario, 3) | {"available": there.astype(float)}
    decision = policy.decide(seen)
    cohort = decision.cohort
    np.testing.assert_array_equal(cohort[0], facility_location(distance, 3, there[0] > 0))
    assert sorted(cohort[1]) == [-1, 1, 4]
    assert cohort[2].tolist() == [3, -1, -1]
    uniform = UniS(scenario).decide(seen)
    np.testing.assert_array_equal((decision.f, decision.p), (uniform.f, uniform.p))
    assert decision.q is None
    assert decision.weights is None  # its authors average by sample counts, as cohorts do


def test_divfl__knows_the_last_gradients_of_an_episode(rng):
    scenario = Scenario(num_devices=6, cohort_size=2)
    policy, _ = learned(scenario, rng)
    _, distance = learned(scenario, rng)
    policy.feedback({"gradient_distance": distance})
    policy.feedback({})  # which leaves what is known
    expected = facility_location(distance, 2, np.ones(6, dtype=bool))
    np.testing.assert_array_equal(policy.decide(observation(scenario)).cohort, expected)
    policy.reset(1)
    with pytest.raises(ValueError, match="needs the gradient_distance of training"):
        policy.decide(observation(scenario))

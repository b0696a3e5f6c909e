"""BC-BN2 at the two ends of its range, and between them."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies import make_policy
from policies.published import UpdateAware
from policies.selection import Candidates

SCENARIO = Scenario.cifar10(num_devices=9, cohort_size=3)


def candidates(gain: np.ndarray, available: np.ndarray) -> Candidates:
    ones = np.ones(gain.shape)
    return Candidates(gain, ones, available, ones, ones, 1, lambda: ones)


@pytest.mark.parametrize("num_candidates", [3, 5, 9, None])
def test_cohort__has_the_largest_norms_of_the_best_channels(num_candidates):
    rng = np.random.default_rng(0)
    selector = UpdateAware(SCENARIO, num_candidates=num_candidates)
    gain, norm = rng.random((2, 20, 9))
    available = rng.random((20, 9)) < 0.7
    selector.memory = {"norm": norm}
    cohorts = selector.select(candidates(gain, available))
    for row in range(20):
        there = sorted(np.flatnonzero(available[row]), key=lambda n: -gain[row, n])
        best = there[: num_candidates or 6]
        expected = sorted(best, key=lambda n: -norm[row, n])[:3]
        assert [n for n in cohorts[row] if n >= 0] == expected


def test_cohort__of_k_candidates_is_that_of_the_best_channel():
    observation, _ = FLEdgeVectorEnv(5, SCENARIO).reset(seed=list(range(5)))
    best = make_policy("best-channel", SCENARIO).decide(observation)
    policy = make_policy("bc-bn2", SCENARIO, num_candidates=3)
    policy.reset(list(range(5)))
    decision = policy.decide(observation)
    np.testing.assert_array_equal(decision.participates, best.participates)


def test_learn__keeps_the_newest_norms():
    selector = UpdateAware(SCENARIO, num_candidates=9)
    selector.memory = selector.start(())
    first = np.linspace(1.0, 2.0, 9)
    selector.learn({"participants": np.arange(9), "update_norms": first})
    selector.learn({"participants": np.array([8, 1]), "update_norms": np.array([0.1, 9.0])})
    gain = np.linspace(0.5, 0.1, 9)
    assert selector.select(candidates(gain, np.ones(9, bool))).tolist() == [1, 7, 6]


@pytest.mark.parametrize(
    ("number", "message"),
    [(2, "num_candidates must be .* at least 3, got 2"), (10, "at most num_devices = 9, got 10")],
)
def test_num_candidates__is_from_k_to_n(number, message):
    with pytest.raises(ValueError, match=message):
        UpdateAware(SCENARIO, num_candidates=number)

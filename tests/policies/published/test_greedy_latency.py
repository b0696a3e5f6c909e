"""Greedy scheduling against a search over all devices in each step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import physics
from policies import make_policy
from policies.published import GreedyLatency
from policies.published.uploads import Cohort
from policies.resources import static_resources
from policies.selection import Candidates
from tests.policies.published.systems import EQUAL, SHARED, cohort_of


def round_of(chosen, gain, scenario) -> float:
    """The shortest round of a cohort with static frequencies and powers."""
    f, p = static_resources(gain, scenario)
    of = Cohort(gain, np.isin(np.arange(gain.size), chosen), scenario)
    time, _ = of.together(of.take(p), of.take(physics.compute_time(f, scenario)))
    return float(time[0])


def searched(gain, present, scenario, heterogeneity) -> list[int]:
    """The rule, with every device tried in each step."""
    number, chosen, best = gain.size, [], np.inf
    while len(chosen) < scenario.cohort_size:
        rounds = {n: round_of([*chosen, n], gain, scenario) for n in present if n not in chosen}
        if not rounds:
            break
        device = min(rounds, key=rounds.__getitem__)
        m = len(chosen) + 1
        cost = rounds[device] * (1 + heterogeneity * (number - m) / (m * (number - 1)))
        if cost >= best:
            break
        chosen, best = [*chosen, device], cost
    return sorted(chosen)


@pytest.mark.parametrize("scenario", [SHARED, EQUAL])
@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 3.0, 10.0])
def test_greedy_latency__adds_the_best_of_all_devices_while_it_gains(scenario, heterogeneity):
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.01, 0.5, (12, 8))
    present = rng.random((12, 8)) < 0.7
    present[:, 0] = True
    zeros = np.zeros(gain.shape)
    state = Candidates(gain, zeros, present, zeros, zeros, 1, lambda: zeros)
    chosen = GreedyLatency(scenario, heterogeneity=heterogeneity).select(state)
    for row in range(12):
        expected = searched(gain[row], np.flatnonzero(present[row]), scenario, heterogeneity)
        assert sorted(chosen[row][chosen[row] >= 0]) == expected


@given(seed=st.integers(0, 2**32 - 1))
def test_round__is_never_shorter_with_one_more(seed):
    gain, members, _ = cohort_of(seed)
    chosen = np.flatnonzero(members)
    assert round_of(chosen, gain, SHARED) > round_of(chosen[1:], gain, SHARED)


def test_resources__end_the_round_of_the_cohort_as_the_search_had_it():
    policy = make_policy("greedy-latency", SHARED)
    for seed in range(5):
        gain = cohort_of(seed)[0]
        decision = policy.decide({"channel_gain": gain, "queue": np.zeros(8)})
        settings = decision.f, decision.p, SHARED, None, decision.bandwidth
        time = physics.time_and_energy(gain, *settings)[0][decision.participates]
        chosen = np.flatnonzero(decision.participates)
        np.testing.assert_allclose(time, round_of(chosen, gain, SHARED), rtol=1e-9)


def test_greedy_latency__refuses_a_negative_heterogeneity():
    with pytest.raises(ValueError, match="heterogeneity must be at least zero"):
        GreedyLatency(SHARED, heterogeneity=-1.0)

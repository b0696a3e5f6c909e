"""P2 of expected times and energies against scipy, and its certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import softmax

from fl_edge_env import Scenario
from fl_edge_env.channels import GainLaw
from policies.p2 import best_resources, solve_p2
from tests.support import (
    expected_drift_plus_penalty,
    expected_time_and_energy,
    random_law,
)

# A small model and a fast processor, so that neither f nor p sits at its bounds throughout.
FIELDS = {"cycles_per_sample": 1e5, "capacitance": 2e-26, "p_max": 10.0}


def test_best_resources__of_a_law_agree_with_a_numerical_optimiser():
    count = 40
    scenario = Scenario(num_devices=count, **FIELDS)
    rng = np.random.default_rng(1)
    law, q = random_law(rng, (count,)), rng.dirichlet(np.ones(count))
    queue = scenario.V * 10 ** rng.uniform(-2, 3, count)
    f, p = best_resources(law, queue, q, scenario)
    inside = (p > scenario.p_min) & (p < scenario.p_max)
    assert 10 < inside.sum() < count

    def cost(log_p: np.ndarray) -> np.ndarray:
        time, energy = expected_time_and_energy(law, f, np.exp(log_p), scenario)
        drawn = 1 - (1 - q) ** scenario.cohort_size
        return scenario.V * q * time + queue * drawn * energy

    chosen = cost(np.log(p))
    for n in range(count):
        found = optimize.minimize_scalar(
            lambda x, n=n: cost(np.full(count, x))[n],
            bounds=np.log([scenario.p_min[n], scenario.p_max[n]]),
            options={"xatol": 1e-10},
        )
        assert chosen[n] <= found.fun * (1 + 1e-12)
        if inside[n]:
            assert np.log(p[n]) == pytest.approx(found.x, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_solve_p2__of_a_law_is_as_good_as_scipy_from_many_starts(seed):
    scenario = Scenario(num_devices=3, num_samples=[100, 200, 600], **FIELDS)
    rng = np.random.default_rng(seed)
    law, queue = random_law(rng, (3,)), scenario.V * 10 ** rng.uniform(-1, 1, 3)
    solution = solve_p2(law, queue, scenario, exact=True)

    def value(x: np.ndarray) -> float:
        f, p = np.exp(x[:3]), np.exp(x[3:6])
        return float(expected_drift_plus_penalty(law, queue, f, p, softmax(x[6:]), scenario))

    scale = scenario.V * scenario.lambda_
    low, high = (
        np.r_[np.log([getattr(scenario, f"f_{end}"), getattr(scenario, f"p_{end}")]).ravel(), x]
        for end, x in (("min", np.full(3, -15.0)), ("max", np.full(3, 15.0)))
    )
    reference = min(
        scale
        * optimize.minimize(
            lambda x: value(x) / scale,
            rng.uniform(low, high),
            bounds=optimize.Bounds(low, high),
            options={"ftol": 1e-15, "gtol": 1e-9},
        ).fun
        for _ in range(8)
    )
    assert solution.objective <= reference + 1e-9 * scale
    assert solution.objective == pytest.approx(reference, rel=1e-5, abs=1e-6 * scale)
    own = expected_drift_plus_penalty(law, queue, solution.f, solution.p, solution.q, scenario)
    assert solution.objective == pytest.approx(float(own), rel=1e-10, abs=1e-10 * scale)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
    st.sampled_from([1e-6, 1e-2, 1e2]),
    st.integers(1, 4),
)
def test_certificate__no_decision_of_a_law_lies_below_the_bound(seed, mu, noise, cohort):
    rng = np.random.default_rng(seed)
    scenario = Scenario(
        num_devices=4,
        cohort_size=cohort,
        mu=mu,
        noise_power_w=noise,
        num_samples=rng.uniform(50, 800, 4),
    )
    law = random_law(rng, (4,), int(rng.integers(2, 9)))
    queue = scenario.V / 50 * 10 ** rng.uniform(-3, 3, 4)
    solution = solve_p2(law, queue, scenario)
    shape = (200, 4)
    q = np.maximum(rng.dirichlet(np.full(4, rng.choice([0.1, 1.0])), 200), 1e-9)
    q[0] = solution.q
    q /= q.sum(axis=-1, keepdims=True)
    rows = GainLaw(*(np.broadcast_to(part, (200, *part.shape)) for part in law))
    f, p = best_resources(rows, np.broadcast_to(queue, shape), q, scenario)
    values = expected_drift_plus_penalty(rows, queue, f, p, q, scenario)
    f, p = rng.uniform(scenario.f_min, scenario.f_max, shape), rng.uniform(0.001, 0.1, shape)
    others = expected_drift_plus_penalty(rows, queue, f, p, q, scenario)
    scale = np.abs(values) + scenario.V * q @ (scenario.cycles_per_round / scenario.f_max)
    assert np.all(values <= others + 1e-12 * scale)
    assert np.all(solution.lower_bound <= values + 1e-8 * scale)
    if mu == 100.0:  # P2 is convex
        assert solution.gap <= 1e-6


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (GainLaw(np.ones(3), np.ones(3)), r"\(N, J\) or \(B, N, J\) with N = 3, got \(3,\)"),
        (GainLaw(np.ones((2, 5)), np.ones((2, 5))), r"with N = 3, got \(2, 5\)"),
        (GainLaw(np.ones((3, 0)), np.ones((3, 0))), r"shape \(3, J\), got \(3, 0\)"),
        (GainLaw(np.ones((3, 2)), np.full((3, 2), 0.4)), "sum to one .*sums from 0.8 to 0.8"),
        (GainLaw(-np.ones((3, 1)), np.ones((3, 1))), "positive and finite, got -1.0 to -1.0"),
        (GainLaw("near", np.ones((3, 1))), "the gain of channel_gain must hold real numbers"),
    ],
)
def test_solve_p2__no_law_of_gains_is_refused(law, message):
    with pytest.raises(ValueError, match=message):
        solve_p2(law, np.zeros(3), Scenario(num_devices=3))

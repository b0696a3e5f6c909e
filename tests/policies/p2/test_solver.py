"""P2: closed forms, Algorithm 2 and the certificate against independent solvers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import softmax

from fl_edge_env import Scenario, Simulator
from policies import LROA
from policies.p2 import best_resources, solve_p2
from tests.policies.p2.cvxpy_route import solve_p2_cvxpy
from tests.support import ANY_SEED, drift_plus_penalty


def random_state(scenario: Scenario, seed: int, scale: float = 1.0):
    """Gains of the channel and queues around the size at which the energy price matters."""
    rng = np.random.default_rng(seed)
    gain = scenario.channel.draw(rng, 1, scenario.num_devices)[0]
    settled = scenario.V / (2 * scenario.capacitance * scenario.f_mid**3)
    return gain, scale * settled * rng.uniform(0, 2, scenario.num_devices)


@st.composite
def small_problems(draw):
    """Scenarios of a few devices over many orders of magnitude, with a state."""
    num_devices = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(ANY_SEED))
    scenario = Scenario(
        num_devices=num_devices,
        cohort_size=draw(st.sampled_from([1, 2, 3, 7])),
        mu=draw(st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0, 100.0])),
        nu=draw(st.sampled_from([1.0, 1e5])),
        noise_density_w_hz=draw(st.sampled_from([2e-14, 2e-8, 2e-2])),
        num_samples=rng.uniform(50, 800, num_devices),
        overhead_s=draw(st.sampled_from([0.0, 100.0])) * rng.random(num_devices),
    )
    gain, queue = random_state(scenario, draw(ANY_SEED))
    return scenario, gain, queue * draw(st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e9]))


def test_best_resources__are_exact_at_every_scale():
    # Theorem 3 in the form ln(1 + x) = (x + A) / (1 + x), for roots from 1e-8 to 1e8, and theorem 2
    # at the same prices of energy.
    x = np.geomspace(1e-8, 1e8, 33)
    wide = {"f_min": 1.0, "f_max": 1e14, "p_min": 1e-12, "p_max": 1e12}
    scenario = Scenario(num_devices=33, cohort_size=1, noise_power_w=1.0, **wide)
    series = x**2 / 2 - x**3 / 6 + x**4 / 12
    target = np.where(x < 1e-3, series, (1 + x) * np.log1p(x) - x)
    queue = scenario.V / target  # price = Q / V for K = 1, gain 1
    f, p = best_resources(np.ones(33), queue, np.full(33, 1 / 33), scenario)
    np.testing.assert_allclose(p, x, rtol=1e-9)
    np.testing.assert_allclose(scenario.capacitance * f**3, target, rtol=2e-14)


@pytest.mark.parametrize("preset", ["cifar10", "femnist", "digits"])
def test_solve_p2__never_above_the_cvxpy_route(preset):
    scenario = Scenario.preset(preset)
    gain, queue = random_state(scenario, 0)
    *_, reference = solve_p2_cvxpy(gain, queue, scenario)
    s = solve_p2(gain, queue, scenario)
    assert s.objective <= reference + 1e-9 * abs(reference)
    assert s.objective == pytest.approx(reference, rel=1e-4)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("exact", [False, True])
def test_solve_p2__batch_equals_single_bit_for_bit(exact):
    scenario = Scenario.digits(mu=1e-3)
    states = [random_state(scenario, seed) for seed in range(6)]
    given = [np.stack(values) for values in zip(*states, strict=True)]
    batch = solve_p2(*given, scenario, exact=exact)
    for (
        values
    ) in given:  # the certificate, computed when asked for, is of the state that was solved
        values *= 2.0
    assert np.all(np.isfinite(batch.lower_bound))
    for seed, state in enumerate(states):
        single = solve_p2(*state, scenario, exact=exact)
        for name in ("f", "p", "q", "objective", "lower_bound", "gap"):
            np.testing.assert_array_equal(getattr(batch, name)[seed], getattr(single, name))


@pytest.mark.parametrize("preset", ["cifar10", "femnist", "digits"])
def test_certificate__closes_in_all_rounds_of_default_scenarios(preset):
    scenario = Scenario.preset(preset)
    simulator = Simulator(scenario, 1)
    policy = LROA(scenario)
    simulator.reset([0])
    for _ in range(300):  # the queues of the slowest preset settle within 200
        simulator.advance(policy.decide(simulator.observe()))
        assert policy.solution is not None
        assert -1e-12 <= np.max(policy.solution.gap) <= 1e-6


@given(small_problems(), st.booleans(), ANY_SEED)
def test_solve_p2__no_valid_decision_is_below_the_bound(problem, exact, seed):
    scenario, gain, queue = problem
    solution = solve_p2(gain, queue, scenario, exact=exact)
    for name in ("f", "p"):
        values = getattr(solution, name)
        assert np.all(values >= getattr(scenario, f"{name}_min"))
        assert np.all(values <= getattr(scenario, f"{name}_max"))
    assert np.all((solution.q > 0) & (solution.q <= 1))
    assert solution.q.sum() == pytest.approx(1, abs=1e-12)
    own = drift_plus_penalty(gain, queue, solution.f, solution.p, solution.q, scenario)
    shape = (500, scenario.num_devices)
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(shape[1], rng.choice([0.05, 1.0])), shape[0])
    q[250:] = solution.q * rng.lognormal(0, 0.01, q[250:].shape)  # around the solution
    q = np.maximum(q, 1e-12) / np.maximum(q, 1e-12).sum(axis=-1, keepdims=True)
    f, p = best_resources(np.broadcast_to(gain, shape), queue, q, scenario)
    values = drift_plus_penalty(gain, queue, f, p, q, scenario)
    scale = np.abs(values) + scenario.V * solution.q @ (scenario.cycles_per_round / solution.f)
    assert np.all(solution.lower_bound <= values + 1e-8 * scale)
    assert np.all(solution.objective <= (values + 1e-8 * scale)[250:])
    assert solution.lower_bound <= solution.objective + 1e-8 * scale.min()
    assert solution.objective == pytest.approx(float(own), abs=1e-8 * scale.min())
    error = scenario.V * scenario.lambda_ * np.sum(scenario.weights**2 / solution.q)
    largest = max(abs(solution.objective), error)
    assert solution.gap * largest == pytest.approx(solution.objective - solution.lower_bound)


def best_on_a_grid(scenario: Scenario, gain, queue) -> float:
    """Global search: a grid on the simplex, its best points polished by scipy."""
    n = scenario.num_devices
    fine = np.r_[np.geomspace(1e-6, 1e-2, 12), np.linspace(0.02, 1, 50)]
    points = [x for x in itertools.product(fine, repeat=n - 1) if sum(x) < 1]
    q = np.array([(*x, 1 - sum(x)) for x in points])

    def value(q):
        f, p = best_resources(np.broadcast_to(gain, q.shape), queue, q, scenario)
        return drift_plus_penalty(gain, queue, f, p, q, scenario)

    values = value(q)
    best = values.min()
    for start in q[np.argsort(values)[:3]]:
        polished = optimize.minimize(
            lambda x: float(value(np.maximum(softmax(x), 1e-15))),
            np.log(start),
            method="Nelder-Mead",
        )
        best = min(best, polished.fun)
    return float(best)


@given(small_problems().filter(lambda problem: problem[0].num_devices in (2, 3)))
def test_solve_p2__exact_matches_a_global_search(problem):
    scenario, gain, queue = problem
    reference = best_on_a_grid(scenario, gain, queue)
    solution = solve_p2(gain, queue, scenario, exact=True)
    scale = abs(reference) + scenario.V * scenario.lambda_
    assert solution.objective <= reference + 1e-7 * scale
    assert solution.lower_bound <= reference + 1e-8 * scale
    assert solution.objective - solution.lower_bound <= 1e-3 * scale


def test_solve_p2__exact_leaves_a_local_minimum():
    scenario = Scenario(num_devices=2, cohort_size=7, mu=0.1, num_samples=[50.0, 800.0])
    excess = []
    for seed in range(10):
        state = random_state(scenario, seed, 30)
        descent, exact = (
            solve_p2(*state, scenario, exact=exact).objective for exact in (False, True)
        )
        excess.append((descent - exact) / abs(exact))
    assert 0 <= min(excess) < 0.1 < max(excess)


def test_solve_p2__paper_variant_ignores_queues_as_printed():
    # With Q = 1 everywhere both forms coincide; with other queues the derived form is better.
    scenario = Scenario.cifar10()
    gain, queue = random_state(scenario, 0)
    same, other = (
        [solve_p2(gain, q, scenario, variant=variant) for variant in ("derived", "paper")]
        for q in (np.ones(120), queue)
    )
    np.testing.assert_array_equal(same[0].q, same[1].q)
    assert other[0].objective < other[1].objective

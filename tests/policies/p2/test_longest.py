"""P2 with the mean of the longest time, against independent optimisers and the proxy's solution."""

from __future__ import annotations

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import lambertw

from fl_edge_env import Scenario, physics
from fl_edge_env.lyapunov import drift_plus_penalty
from policies import LROA, evaluate, make_policy
from policies.p2 import kernel, kernel_system, longest, solve_p2
from tests.policies.p2.test_solver import random_state, small_problems


@st.composite
def problems(draw, least: int = 1, most: int = 4, *, huge: bool = True):
    """Scenarios and states with equal devices, empty and huge queues, and fixed f or p."""
    num_devices = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    some = np.array([rng.uniform(50, 800), *rng.uniform(300, 500, 2)])
    scenario = Scenario(
        num_devices=num_devices,
        cohort_size=draw(st.sampled_from([1, 2, 5])),
        mu=draw(st.sampled_from([0.3, 1.0, 30.0])),
        num_samples=draw(st.sampled_from([400.0, rng.choice(some, num_devices)])),
        # As it is, devices first slow down their processor; with the other f_max and p_max
        # both at once, or only one of them.
        capacitance=draw(st.sampled_from([2e-28, 2e-29])),
        p_max=draw(st.sampled_from([0.001, 0.1, 3.0])),
        f_max=draw(st.sampled_from([1e9, 2e9])),
        latency="round_time",
    )
    gain, queue = random_state(scenario, draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        gain = rng.choice(gain[:2], num_devices)
    queue *= draw(st.sampled_from([0.1, 1.0, 10.0, *([1e4] if huge else [])]))
    queue *= rng.choice(
        [1.0, draw(st.sampled_from([0.0, 1.0, *([1e6] if huge else [])]))], num_devices
    )
    if draw(st.booleans()):
        queue[:] = queue[0]
    return scenario, gain, queue


def shares(q: np.ndarray, cohort_size: int) -> np.ndarray:
    """Weights whose sums with the times are E[max] in one order, and no more in the others."""
    orders = np.array(list(itertools.permutations(range(len(q)))))
    rows = np.empty(orders.shape)
    power = np.cumsum(q[orders], axis=-1) ** cohort_size
    np.put_along_axis(rows, orders, np.diff(power, axis=-1, prepend=0.0), axis=-1)
    return rows


def convex_reference(scenario: Scenario, gain, queue, q, scale: float) -> float:
    """The least ``V E[max T] + sum Q pi E`` over f and p by an interior-point method.

    With u = f_max / f and v = 1 / ln(1 + h p / N0), times are linear and energies convex. E[max] is
    the largest of the sums over all orders. ``scale`` is about the result.
    """
    system, n = kernel_system(scenario), scenario.num_devices
    cost = queue * physics.participation_probability(q, scenario.cohort_size)
    snr = gain / scenario.noise_power_w
    u, v, z, longest_time = cp.Variable(n), cp.Variable(n), cp.Variable(n), cp.Variable()
    time = cp.multiply(system.cycles / system.f_max, u) + system.upload * v + system.download
    compute = 0.5 * system.capacitance * system.cycles * system.f_max**2
    energy = cp.multiply(cost * compute / scale, cp.power(u, -2))
    energy += cp.multiply(cost * system.upload / snr / scale, z - v)
    at = [1 / np.log1p(snr * p) for p in (system.p_max, system.p_min)]
    constraints = [
        u >= 1,
        u <= system.f_max / system.f_min,
        v >= at[0],
        v <= at[1],
        cp.constraints.ExpCone(np.ones(n), v, z),
        longest_time >= scenario.V / scale * (shares(q, scenario.cohort_size) @ time),
    ]
    problem = cp.Problem(cp.Minimize(longest_time + cp.sum(energy)), constraints)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value) * scale


def resources_cost(scenario: Scenario, gain, queue, f, p, q) -> float:
    """``V E[max T] + sum Q pi E`` by the environment's physics."""
    time, energy = physics.time_and_energy(gain, f, p, scenario)
    pi = physics.participation_probability(q, scenario.cohort_size)
    latency = physics.expected_maximum(time, q, scenario.cohort_size)
    return float(scenario.V * latency + queue * pi @ energy)


def share_time(scenario: Scenario, gain, queue, q, *, together: bool):
    """f and p of the compiled step for a given q, from its own first guess or one block of all."""
    system, size = kernel_system(scenario), scenario.num_devices
    devices = longest._devices(
        q, kernel._state(kernel.Gains(gain, None), queue, system), system
    ).view(np.recarray)
    devices.q = q
    devices.cost = queue * physics.participation_probability(q, scenario.cohort_size)
    order, first, deadline = np.arange(size), np.zeros(size, np.int64), np.zeros(size)
    first[0] = 1
    rest = (scenario.V, scenario.cohort_size, devices)
    if not together:
        longest._first_blocks(order, first, deadline, 0.0, *rest)
    longest._share_time(order, first, deadline, *rest)
    f, p = np.transpose([longest._at_rate(device, device.rate)[:2] for device in devices])
    return f, p, devices.theta


def random_q(num_devices: int, seed: int) -> np.ndarray:
    q = np.random.default_rng(seed).dirichlet(np.full(num_devices, 2.0))
    return np.maximum(q, 1e-3) / np.maximum(q, 1e-3).sum()


@settings(max_examples=100)
@given(problems(), st.integers(0, 2**32 - 1), st.booleans())
def test_share_time__has_a_proof_of_its_optimum(problem, seed, together):
    scenario, gain, queue = problem
    q = random_q(len(gain), seed)
    f, p, theta = share_time(scenario, gain, queue, q, together=together)
    # Shares of V of which no devices have less than they have alone: V E[max] is at least the
    # sum with the times, whatever the times.
    for size in range(1, len(gain) + 1):
        for part in map(list, itertools.combinations(range(len(gain)), size)):
            alone = scenario.V * q[part].sum() ** scenario.cohort_size
            assert theta[part].sum() >= alone * (1 - 1e-9)
    assert theta.sum() == pytest.approx(scenario.V, rel=1e-10)
    # So the least sum of the devices' own costs bounds the optimum; by Theorems 2 and 3.
    cost = queue * physics.participation_probability(q, scenario.cohort_size)
    with np.errstate(divide="ignore", invalid="ignore"):
        best_f = np.cbrt(theta / (cost * scenario.capacitance))
        target = theta * gain / (cost * scenario.noise_power_w)
        log = 1 + np.real(lambertw((target - 1) / math.e))
        best_p = np.where(cost > 0, np.expm1(log) * scenario.noise_power_w / gain, math.inf)
    time, energy = physics.time_and_energy(
        gain,
        np.clip(best_f, scenario.f_min, scenario.f_max),
        np.clip(best_p, scenario.p_min, scenario.p_max),
        scenario,
    )
    found = resources_cost(scenario, gain, queue, f, p, q)
    assert found == pytest.approx(theta @ time + cost @ energy, rel=1e-9)


@settings(max_examples=25)
@given(problems(huge=False), st.integers(0, 2**32 - 1), st.booleans())
def test_share_time__matches_an_interior_point_method(problem, seed, together):
    scenario, gain, queue = problem
    q = random_q(len(gain), seed)
    f, p, _ = share_time(scenario, gain, queue, q, together=together)
    found = resources_cost(scenario, gain, queue, f, p, q)
    reference = convex_reference(scenario, gain, queue, q, found)
    assert found == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("cohort_size", [2, 6])
def test_share_time__finds_the_same_from_any_blocks(cohort_size, scale):
    # The problem is convex: one block of all devices and the first guess lead to one optimum,
    # below which no deadlines near by lie. Equal gains, as clipping makes them, are ties.
    scenario = Scenario.cifar10(cohort_size=cohort_size, latency="round_time")
    gain, queue = random_state(scenario, 3, scale)
    rng = np.random.default_rng(0)
    queue[::7] = 0.0
    q = rng.dirichlet(np.full(len(gain), 20.0))
    values = []
    for together in (True, False):
        f, p, _ = share_time(scenario, gain, queue, q, together=together)
        values.append(resources_cost(scenario, gain, queue, f, p, q))
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    for _ in range(200):
        near = np.clip(f * rng.normal(1, 1e-4, len(f)), scenario.f_min, scenario.f_max)
        assert resources_cost(scenario, gain, queue, near, p, q) >= values[1] * (1 - 1e-13)


@settings(max_examples=40)
@given(problems(2, 4), st.integers(0, 2**32 - 1))
def test_sum_step__lowers_the_true_objective_and_has_its_slopes(problem, seed):
    scenario, gain, queue = problem
    rng = np.random.default_rng(seed)
    system, size = kernel_system(scenario), len(gain)
    f = rng.uniform(scenario.f_min, scenario.f_max)
    p = rng.uniform(scenario.p_min, scenario.p_max)
    time, energy = physics.time_and_energy(gain, f, p, scenario)
    state, order = kernel._state(kernel.Gains(gain, None), queue, system), np.argsort(time)

    def value(q) -> float:
        return float(drift_plus_penalty(gain, queue, f, p, q, scenario))

    q, slope = rng.dirichlet(np.full(size, 5.0)), np.empty(size)
    for step in range(5):
        longest._slopes(order, time, energy, q, False, state, system, slope)
        if step == 0:
            # Along the simplex they are the derivatives, beside those of the sampling error.
            along = rng.normal(size=size)
            along -= along.mean()
            h = 1e-6 * q.min()
            difference = (value(q + h * along) - value(q - h * along)) / (2 * h)
            exact = (slope - system.error / q**2) @ along
            scale = np.abs(slope) @ np.abs(along) + (system.error / q**2) @ np.abs(along)
            assert exact == pytest.approx(difference, abs=1e-4 * scale)
        before = value(q)
        kernel._minimise_on_simplex(slope, np.sqrt(system.error), q, np.empty(size), -math.inf)
        assert value(q) <= before + 1e-12 * abs(before)


def best_of_slsqp(scenario: Scenario, gain, queue, starts: int, seed: int) -> float:
    """The least objective that SLSQP finds in u, v, q and a bound on E[max], from random starts."""
    system, n = kernel_system(scenario), scenario.num_devices
    snr = gain / scenario.noise_power_w
    low, high = (1 / np.log1p(snr * p) for p in (system.p_max, system.p_min))
    rng = np.random.default_rng(seed)
    scale = scenario.V * 1000.0

    def decision(x):
        f = np.clip(system.f_max / x[:n], scenario.f_min, scenario.f_max)
        p = np.clip(np.expm1(1 / x[n : 2 * n]) / snr, scenario.p_min, scenario.p_max)
        return f, p, x[2 * n : 3 * n]

    def objective(x) -> float:
        f, p, q = decision(x)
        proxy = scenario.replace(latency="proxy")
        value = drift_plus_penalty(gain, queue, f, p, q, proxy)
        time, _ = physics.time_and_energy(gain, f, p, scenario)
        return float(value - scenario.V * (q @ time)) / scale + x[-1]

    def room(x):
        f, p, q = decision(x)
        time, _ = physics.time_and_energy(gain, f, p, scenario)
        return x[-1] - shares(q, scenario.cohort_size) @ time / 1000.0

    best = math.inf
    for _ in range(starts):
        u = rng.uniform(1, system.f_max / system.f_min)
        result = optimize.minimize(
            objective,
            [*u, *rng.uniform(low, np.minimum(high, 3 * low)), *rng.dirichlet(np.ones(n)), 10.0],
            method="SLSQP",
            bounds=[
                *((1, b) for b in system.f_max / system.f_min),
                *zip(low, high, strict=True),
                *[(1e-4, 1.0)] * n,
                (0, None),
            ],
            constraints=[
                {"type": "ineq", "fun": room},
                {"type": "eq", "fun": lambda x: x[2 * n : 3 * n].sum() - 1},
            ],
            options={"maxiter": 150, "ftol": 1e-12},
        )
        f, p, q = decision(result.x)
        value = float(drift_plus_penalty(gain, queue, f, p, q / q.sum(), scenario))
        best = min(best, value)
    return best


@pytest.mark.parametrize("num_devices", [3, 4, 5])
@pytest.mark.parametrize("cohort_size", [2, 5])
def test_solve_p2__longest_time_is_no_worse_than_slsqp_from_many_starts(num_devices, cohort_size):
    for seed, scale in enumerate([0.3, 3.0]):
        scenario = Scenario(
            num_devices=num_devices, cohort_size=cohort_size, p_max=1.0, latency="round_time"
        )
        gain, queue = random_state(scenario, seed, scale)
        solution = solve_p2(gain, queue, scenario)
        reference = best_of_slsqp(scenario, gain, queue, 2 if num_devices < 5 else 1, seed)
        size = abs(reference) + scenario.V * scenario.lambda_
        assert solution.objective <= reference + 1e-6 * size


@settings(max_examples=100)
@given(small_problems(), st.booleans(), st.sampled_from(["derived", "paper"]))
def test_solve_p2__longest_time_is_never_worse_than_the_proxys_solution(problem, exact, variant):
    scenario, gain, queue = problem
    counted = scenario.replace(latency="round_time")
    keywords = {"exact": exact, "variant": variant}
    proxy = solve_p2(gain, queue, scenario, **keywords)
    s = solve_p2(gain, queue, counted, **keywords)
    there = drift_plus_penalty(gain, queue, proxy.f, proxy.p, proxy.q, counted)
    here = drift_plus_penalty(gain, queue, s.f, s.p, s.q, counted)
    time, energy = physics.time_and_energy(gain, s.f, s.p, scenario)
    scale = abs(there) + scenario.V * time.max() + queue @ (energy + scenario.energy_budget_j)
    assert here <= there + 1e-12 * scale
    assert s.objective == pytest.approx(float(here), abs=1e-11 * scale)
    # The bound is that of the proxy, which is at most as long.
    assert s.lower_bound <= here + 1e-8 * scale
    assert np.all((s.f >= scenario.f_min) & (s.f <= scenario.f_max))
    assert np.all((s.p >= scenario.p_min) & (s.p <= scenario.p_max))
    assert np.all((s.q > 0) & (s.q <= 1))
    assert s.q.sum() == pytest.approx(1, abs=1e-12)


@settings(max_examples=30)
@given(problems())
def test_solve_p2__with_one_draw_the_longest_time_is_the_proxy(problem):
    scenario, gain, queue = problem
    scenario = scenario.replace(cohort_size=1)
    proxy, s = (solve_p2(gain, queue, scenario, latency=x) for x in ("proxy", "round_time"))
    for name in ("f", "p", "q"):
        np.testing.assert_allclose(getattr(s, name), getattr(proxy, name), rtol=1e-6)


def test_solve_p2__longest_time_of_a_batch_equals_single_bit_for_bit():
    scenario = Scenario.cifar10(latency="round_time")
    gains, queues = map(np.stack, zip(*(random_state(scenario, i) for i in range(8)), strict=True))
    batch = solve_p2(gains, queues, scenario)
    for row, state in enumerate(zip(gains, queues, strict=True)):
        single = solve_p2(*state, scenario)
        for name in ("f", "p", "q", "objective", "iterations", "lower_bound"):
            np.testing.assert_array_equal(getattr(batch, name)[row], getattr(single, name))


@pytest.mark.parametrize("latency", ["proxy", "round_time"])
def test_lroa__minimises_the_latency_of_the_scenario_or_the_one_it_is_told(latency):
    scenario = Scenario.digits(latency=latency)
    other = {"proxy": "round_time", "round_time": "proxy"}[latency]
    gain, queue = random_state(scenario, 0)
    observation = {"channel_gain": gain, "queue": queue}
    for policy, minimised in (
        (LROA(scenario), latency),
        (LROA(scenario, latency=other), other),
        (make_policy("lroa", scenario, latency=other), other),
    ):
        decision = policy.decide(observation)
        wanted = solve_p2(gain, queue, scenario.replace(latency=minimised))
        unlike = solve_p2(gain, queue, scenario, latency="proxy" if minimised != "proxy" else other)
        np.testing.assert_array_equal(decision.q, wanted.q)
        assert minimised == "proxy" or not np.array_equal(decision.q, unlike.q)


@pytest.mark.parametrize("value", ["longest", "", 1, ["proxy"], True])
def test_lroa__names_a_latency_that_there_is_not(value):
    scenario = Scenario.digits()
    message = "latency must be 'proxy', 'round_time' or None for the scenario's, got "
    with pytest.raises(ValueError, match=message):
        LROA(scenario, latency=value)
    with pytest.raises(ValueError, match=message):
        solve_p2(np.full(20, 0.1), np.ones(20), scenario, latency=value)


def test_lroa__that_minimises_what_is_counted_has_the_smaller_penalty():
    scenario = Scenario.cifar10(latency="round_time", num_rounds=300)
    by_proxy = LROA(scenario, latency="proxy")
    by_proxy.name = "by proxy"
    table = evaluate([LROA(scenario), by_proxy], scenario, seeds=range(2), gaps=False)
    penalty, energy = (
        table.pivot(index="seed", columns="policy", values=column)
        for column in ("mean_objective", "worst_energy_ratio")
    )
    assert np.all(penalty["LROA"] < 0.99 * penalty["by proxy"])
    assert np.all(energy["LROA"] < 1.001 * energy["by proxy"])

"""Shares of the band: the split of a cohort, and the outcome problem with it."""

from __future__ import annotations

import itertools
import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from fl_edge_env.channels import GainLaw
from policies.outcome import bound_rounds, solve_round
from policies.resources import share_band, shared_resources
from tests.policies.outcome.test_round import small_problems

SYSTEM = Scenario.cifar10(
    num_devices=6, cohort_size=3, energy_budget_j=1500.0, bandwidth_split="shared"
)


def shared(scenario: Scenario) -> Scenario:
    return scenario.replace(bandwidth_split="shared")


def cost(scenario: Scenario, gain, queue, worth, members, f, p, bandwidth=None) -> float:
    """What a round costs with V = 1, by the physics alone."""
    time, energy = physics.time_and_energy(gain, f, p, scenario, bandwidth=bandwidth)
    return float(time[members].max() + np.sum((queue * energy - worth)[members]))


def magnitude(scenario: Scenario, gain, queue, worth, members, f, p, bandwidth=None) -> float:
    """Size of the terms of `cost`, of which rounding is a share."""
    time, energy = physics.time_and_energy(gain, f, p, scenario, bandwidth=bandwidth)
    return float(time[members].max() + np.sum((queue * energy + np.abs(worth))[members]))


def random_decision(rng: np.random.Generator, scenario: Scenario):
    """Any cohort, any f and p, any split of at most the whole band."""
    size = rng.integers(1, min(scenario.cohort_size, scenario.num_devices) + 1)
    members = np.isin(
        np.arange(scenario.num_devices), rng.choice(scenario.num_devices, size, replace=False)
    )
    f = scenario.f_min * (scenario.f_max / scenario.f_min) ** rng.random(scenario.num_devices)
    p = scenario.p_min * (scenario.p_max / scenario.p_min) ** rng.random(scenario.num_devices)
    share = np.where(members, rng.dirichlet(np.ones(scenario.num_devices)) + 1e-6, 0.0)
    return members, f, p, scenario.bandwidth_hz * share / share.sum()


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 3), power=st.floats(-4, 1))
def test_share_band__all_finish_together_and_no_split_is_faster(seed, size, power):
    rng = np.random.default_rng(seed)
    scenario = SYSTEM.replace(noise_power_w=10.0**power, download_rate_bps=1e6)
    gain = scenario.channel.sample(rng, 2, 6)
    f, p = rng.uniform(1e9, 2e9, (2, 6)), rng.uniform(1e-3, 0.1, (2, 6))
    cohort = np.full((2, 3), -1)
    cohort[:, :size] = [rng.choice(6, size, replace=False) for _ in range(2)]
    bandwidth = share_band(gain, cohort, f, p, scenario)
    for row in range(2):
        members = cohort[row, :size]
        assert np.sum(bandwidth[row]) == pytest.approx(scenario.bandwidth_hz, rel=1e-12)
        assert np.all(np.delete(bandwidth[row], members) == 0.0)
        time, _ = physics.time_and_energy(
            gain[row], f[row], p[row], scenario, bandwidth=bandwidth[row]
        )
        np.testing.assert_allclose(time[members], time[members].max(), rtol=1e-8)
        for _ in range(20):
            other = np.zeros(6)
            other[members] = scenario.bandwidth_hz * rng.dirichlet(np.ones(size))
            others, _ = physics.time_and_energy(
                gain[row], f[row], p[row], scenario, bandwidth=other
            )
            assert others[members].max() >= time[members].max() * (1 - 1e-9)


@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        ([3, 3], "cohort must name each device once"),
        ([-1, -1], "cohort must name at least one device"),
        ([300], "cohort must hold device indices from 0 to 5"),
        ([0.5, 1.0], "cohort"),
    ],
)
def test_share_band__names_a_cohort_that_is_none(cohort, message):
    with pytest.raises(ValueError, match=message):
        share_band(np.full(6, 0.1), cohort, SYSTEM.f_mid, SYSTEM.p_mid, SYSTEM)


def least_energy(scenario: Scenario, gain, queue, end, f) -> float:
    """The least worth of energy of all devices that finish by ``end``, by cvxpy.

    At a given f the time to upload is given, too, and what an upload takes is jointly convex in its
    energy and in its part of the band.
    """
    upload = end - scenario.cycles_per_round / f - scenario.download_time
    nats = scenario.upload_bits * math.log(2) / scenario.bandwidth_hz
    noise = scenario.noise_power_w * scenario.cohort_size
    share, power = cp.Variable(len(gain)), cp.Variable(len(gain))  # in the unit of p_max
    snr = gain * scenario.p_max / noise
    enough = cp.rel_entr(share, share + cp.multiply(snr, power)) <= -nats / upload
    scale = queue * scenario.p_max * upload
    problem = cp.Problem(
        cp.Minimize((scale / scale.max()) @ power),
        [enough, cp.sum(share) <= 1, power <= 1, power >= scenario.p_min / scenario.p_max],
    )
    problem.solve(solver=cp.CLARABEL)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return math.inf
    computing = queue * physics.compute_energy(f, scenario)
    return float(problem.value * scale.max() + computing.sum())


@pytest.mark.parametrize("seed", range(4))
def test_shared_resources__are_the_convex_optimum(seed):
    # The problem is convex in the times of computing, the deadline and the rest: where no step in
    # any direction of the first two brings anything, nothing does.
    rng = np.random.default_rng(seed)
    scenario = SYSTEM.replace(num_devices=3, p_min=1e-4, p_max=float(10 ** rng.uniform(-1.5, 0.5)))
    gain = scenario.channel.sample(rng, 1, 3)[0]
    queue = rng.uniform(0.2, 2, 3) * 10 ** rng.uniform(-1.5, 1)
    everyone = np.ones(3, dtype=bool)
    f, p, bandwidth = shared_resources(gain, queue, everyone, scenario, V=1.0)
    time, energy = physics.time_and_energy(gain, f, p, scenario, bandwidth=bandwidth)
    found, end = time.max() + queue @ energy, time.max()
    assert found == pytest.approx(end + least_energy(scenario, gain, queue, end, f), rel=1e-5)
    for step in (1e-2, 1e-1):
        for _ in range(4):
            other_end = end * np.exp(step * rng.normal())
            other = scenario.cycles_per_round / f * np.exp(step * rng.normal(size=3))
            other_f = np.clip(scenario.cycles_per_round / other, scenario.f_min, scenario.f_max)
            if np.all(other_end > scenario.cycles_per_round / other_f):
                value = other_end + least_energy(scenario, gain, queue, other_end, other_f)
                assert value >= found * (1 - 1e-6)


@given(small_problems(), st.booleans())
def test_solve_round__with_shares_finds_the_best_of_all_cohorts(problem, late):
    scenario, gain, queue, worth = problem
    scenario = shared(scenario)
    if late:  # some cohorts fit, others do not
        fastest, _ = physics.time_and_energy(gain, scenario.f_max, scenario.p_max, scenario)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nobody may meet it at the mean gain
            scenario = scenario.replace(deadline_s=float(np.median(fastest)))
    solution = solve_round(gain, queue, worth, scenario, V=1.0)
    num_devices, places = scenario.num_devices, scenario.cohort_size
    best, scale = math.inf, 0.0
    for size in range(1, min(num_devices, places) + 1):
        for cohort in itertools.combinations(range(num_devices), size):
            members = np.isin(np.arange(num_devices), cohort)
            f, p, parts = shared_resources(gain, queue, members, scenario, V=1.0)
            time, _ = physics.time_and_energy(gain, f, p, scenario, bandwidth=parts)
            if late and time[members].max() > scenario.deadline_s * (1 + 1e-9):
                continue
            state = (scenario, gain, queue, worth, members, f, p, parts)
            if (value := cost(*state)) < best:
                best, scale = value, magnitude(*state)
    if best == math.inf:  # nobody meets the deadline
        return
    decided = (solution.participates, solution.f, solution.p, solution.bandwidth)
    own = magnitude(scenario, gain, queue, worth, *decided)
    rounding = 1e-9 * max(scale, own)
    assert solution.objective == pytest.approx(
        cost(scenario, gain, queue, worth, *decided), abs=rounding
    )
    assert solution.bandwidth.sum() <= scenario.bandwidth_hz * (1 + 1e-12)
    assert solution.deadline <= scenario.deadline_s * (1 + 1e-9)
    assert solution.lower_bound <= best + rounding
    certified = solution.gap * max(abs(solution.objective), solution.deadline)
    assert solution.objective <= best + certified + 10 * rounding


@given(small_problems(), st.integers(0, 2**32 - 1))
def test_bound_rounds__no_cohort_and_no_split_costs_less(problem, seed):
    scenario, gain, queue, worth = problem
    rng = np.random.default_rng(seed)
    system = shared(scenario)
    bound = bound_rounds(gain[None], queue, worth, system)[0]
    for _ in range(50):
        members, f, p, bandwidth = random_decision(rng, system)
        for parts in (bandwidth, None):  # equal parts of the band are a split, too
            state = (system, gain, queue, worth, members, f, p, parts)
            assert cost(*state) >= bound - 1e-11 * magnitude(*state)
    with_equal_parts = bound_rounds(gain[None], queue, worth, scenario, tolerance=1e-6)[0]
    state = (system, gain, queue, worth, members, f, p)
    assert bound <= with_equal_parts + 1e-5 * abs(with_equal_parts) + 1e-9 * magnitude(*state)


def test_solve_round__certifies_large_systems():
    scenario = Scenario.cell(cohort_size=10, energy_budget_j=75.0, bandwidth_split="shared")
    rng = np.random.default_rng(0)
    gain = scenario.channel.sample(rng, 20, 120)
    time, energy = physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)
    queue = rng.uniform(0, 0.2, 120) * np.median(time) / np.median(energy) + 0 * gain
    worth = 0.2 * queue * energy + 0.2 * time * rng.random(gain.shape)
    solution = solve_round(gain, queue, worth, scenario, V=1.0, tolerance=1e-4)
    assert np.all(solution.gap <= 1e-3)
    equal = solve_round(gain, queue, worth, scenario.replace(bandwidth_split="equal"), V=1.0)
    assert np.all(solution.objective <= equal.objective + 1e-4 * solution.deadline)


def test_solve_round__with_shares_finds_the_best_where_no_price_of_the_band_proves_it():
    # Over a wide range of deadlines the bound is below the best cost of one cohort, and above that
    # of the best one: a search that insists on proofs there never comes to the latter.
    scenario = Scenario.cifar10(
        num_devices=8, cohort_size=3, num_samples=400 * np.linspace(0.4, 1.6, 8)
    )
    gain = np.array([0.01, 0.299, 0.092, 0.0295, 0.05, 0.0729, 0.0717, 0.165])
    queue, worth = np.linspace(0, 6, 8), np.random.default_rng(0).normal(0, 3000, 8)
    for tolerance in (1e-3, 1e-5, 1e-9):
        state = (gain, queue, worth, shared(scenario))
        solution = solve_round(*state, V=1.0, tolerance=tolerance)
        assert solution.cohort.tolist() == [2]
        assert solution.gap <= max(2e-3, tolerance)


def test_shares__of_a_law_of_one_gain_are_those_of_the_gain():
    rng = np.random.default_rng(3)
    gain, queue = SYSTEM.channel.sample(rng, 1, 6)[0], rng.uniform(0.5, 2, 6)
    members = np.arange(6) < 3
    equal = GainLaw(np.repeat(gain[:, None], 4, axis=1), rng.dirichlet(np.ones(4), 6))
    known = shared_resources(gain, queue, members, SYSTEM)
    for one, other in zip(known, shared_resources(equal, queue, members, SYSTEM), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    worth = rng.uniform(0, 2, 6) * SYSTEM.V * 1000
    np.testing.assert_allclose(
        solve_round(equal, queue, worth, SYSTEM).objective,
        solve_round(gain, queue, worth, SYSTEM).objective,
        rtol=1e-6,
    )


def test_shared_resources__whom_the_deadline_leaves_no_band_for_are_late():
    gain, queue = np.array([0.4, 0.3, 0.02, 0.1, 0.1, 0.1]), np.ones(6)
    members = np.arange(6) < 3
    hurried = SYSTEM.replace(deadline_s=28000.0)
    f, p, parts = shared_resources(gain, queue, members, hurried)
    time, _ = physics.time_and_energy(gain, f, p, hurried, bandwidth=parts)
    assert (time[:3] <= 28000.0 * (1 + 1e-9)).tolist() == [True, True, False]
    assert 0 < parts[2] < 1e-9 * parts[1]
    assert parts[:2].sum() == pytest.approx(hurried.bandwidth_hz)


def test_shares__of_a_row_do_not_depend_on_the_rows_before():
    rng = np.random.default_rng(2)
    scenario = shared(Scenario.cifar10(num_devices=12, cohort_size=4))
    gain, energy = rng.uniform(0.02, 0.4, (6, 12)), rng.uniform(0, 50, (6, 12))
    worth = rng.uniform(0, 2000, (6, 12))
    cohort = rng.permuted(np.tile(np.arange(12) < 4, (6, 1)), axis=1)
    batch = solve_round(gain, energy, worth, scenario)
    split = shared_resources(gain, energy, cohort, scenario)
    for row in range(6):
        alone = solve_round(gain[row], energy[row], worth[row], scenario)
        for name in ("f", "p", "bandwidth", "lower_bound"):
            np.testing.assert_array_equal(getattr(batch, name)[row], getattr(alone, name))
        np.testing.assert_array_equal(
            [part[row] for part in split],
            shared_resources(gain[row], energy[row], cohort[row], scenario),
        )

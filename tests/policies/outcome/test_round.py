"""The outcome problem of a round: its optimum and its certificate against every cohort."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from policies.outcome import RoundSolution, bound_rounds, solve_round
from policies.resources import deadline_resources
from tests.support import ANY_SEED

# A deadline may be one that nobody meets.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def random_states(scenario: Scenario, count: int, queue_scale: float = 1.0, seed: int = 0):
    """Gains and queues at which time, energy and participation weigh about alike for V = 1."""
    rng = np.random.default_rng(seed)
    gain = scenario.channel.draw(rng, count, scenario.num_devices)
    time, energy = physics.time_and_energy(gain, scenario.f_mid, scenario.p_mid, scenario)
    time = time / scenario.cohort_size
    queue = queue_scale * rng.uniform(0, 2, gain.shape) * time / energy
    return gain, queue, (queue * energy + time) * rng.uniform(-0.5, 2, gain.shape)


@st.composite
def small_problems(draw, rounds: int):
    """A few devices, alike or not, of which some take part, perhaps by a deadline; states.

    Nobody, some or all of the devices can meet the deadline.
    """
    num_devices = draw(st.integers(1, 6))
    seed = draw(ANY_SEED)
    rng = np.random.default_rng(seed)
    spread = draw(st.sampled_from([0.0, 0.1, 1.0]))

    def around(value: float) -> np.ndarray:
        return value * 10 ** (spread * rng.uniform(-1, 1, num_devices))

    f_min = around(1e9)
    p_min = around(1e-3)
    scenario = Scenario(
        num_devices=num_devices,
        cohort_size=draw(st.integers(1, 4)),
        noise_density_w_hz=draw(st.sampled_from([1e-12, 1e-8, 1e-6])),
        model_bits=draw(st.sampled_from([1e5, 3e8, 1e10])),
        num_samples=around(400),
        capacitance=around(2e-28),
        f_min=f_min,
        f_max=draw(st.sampled_from([1.0, 1.01, 2.0, 10.0])) * f_min,
        p_min=p_min,
        p_max=draw(st.sampled_from([1.0, 100.0])) * p_min,
        download_rate_bps=draw(st.sampled_from([math.inf, 1e6])),
        overhead_s=draw(st.sampled_from([0.0, 100.0])),
        V=1.0,
        lambda_=1.0,
    )
    queue_scale = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e9]))
    gain, queue, participation = random_states(scenario, rounds, queue_scale, seed)
    participation *= draw(st.sampled_from([0.0, 1.0, 1.0, 10.0]))
    if draw(st.booleans()):
        fastest, slowest = ends(scenario, gain)
        low = 0.9 * fastest.min()
        high = 1.1 * slowest.max()
        deadline = float(low * (high / low) ** (draw(st.integers(0, 16)) / 16))
        scenario = scenario.replace(deadline_s=deadline)
    if draw(st.booleans()):
        return scenario, *(x[:, :1] + np.zeros(num_devices) for x in (gain, queue, participation))
    return scenario, gain, queue, participation


def ends(scenario: Scenario, gain) -> tuple[np.ndarray, np.ndarray]:
    """The least and the longest time of each device."""
    fastest, _ = physics.time_and_energy(gain, scenario.f_max, scenario.p_max, scenario)
    slowest, _ = physics.time_and_energy(gain, scenario.f_min, scenario.p_min, scenario)
    return fastest, slowest


def golden(value: Callable, low: np.ndarray, high: np.ndarray, steps: int = 50) -> np.ndarray:
    """Least value of convex functions on [low, high], elementwise, by sections."""
    ratio = (math.sqrt(5) - 1) / 2
    best = np.minimum(value(low), value(high))
    a = high - ratio * (high - low)
    b = low + ratio * (high - low)
    at_a = value(a)
    at_b = value(b)
    for _ in range(steps):
        best = np.minimum(best, np.minimum(at_a, at_b))
        left = at_a <= at_b
        low = np.where(left, low, a)
        high = np.where(left, b, high)
        new = np.where(left, high - ratio * (high - low), low + ratio * (high - low))
        at_new = value(new)
        a, at_a, b, at_b = (
            np.where(left, *pair) for pair in ((new, b), (at_new, at_b), (a, new), (at_a, at_new))
        )
    return best


def best_by_enumeration(scenario: Scenario, gain, queue, participation, *cohorts) -> float:
    """Given or all cohorts; for each its deadline, and each device's split of time, by sections.

    Time to compute and time to upload are the variables: no price, no theorem.
    """
    n = scenario.num_devices
    k = min(scenario.cohort_size, scenario.num_devices)
    every = (c for size in range(1, k + 1) for c in itertools.combinations(range(n), size))
    cohorts = cohorts or [*every]
    member = np.array([np.isin(np.arange(n), c) for c in cohorts])
    least, slowest = ends(scenario, gain)
    cycles = scenario.cycles_per_round
    bandwidth = scenario.bandwidth_hz / scenario.cohort_size
    nats = scenario.model_bits * math.log(2) / bandwidth
    snr = gain / (scenario.noise_density_w_hz * bandwidth)
    longest = physics.upload_time(gain, scenario.p_min, scenario)
    shortest = physics.upload_time(gain, scenario.p_max, scenario)

    def cost(tau: np.ndarray) -> np.ndarray:
        spare = np.maximum(tau[:, None], least) - scenario.waiting_time

        def energy(compute: np.ndarray) -> np.ndarray:
            upload = np.clip(spare - compute, shortest, longest)
            power = np.clip(np.expm1(nats / upload) / snr, scenario.p_min, scenario.p_max)
            return physics.compute_energy(cycles / compute, scenario) + power * upload

        low = cycles / scenario.f_max + 0 * spare
        high = np.maximum(np.minimum(cycles / scenario.f_min, spare - shortest), low)
        costs = queue * golden(energy, low, high) - participation
        return tau + np.where(member, costs, 0).sum(axis=1)

    first = np.where(member, least, 0).max(axis=1)
    last = np.where(member, slowest, 0).max(axis=1)
    member = member[in_time := first <= scenario.deadline_s]
    if not member.size:
        return math.inf
    return float(golden(cost, first[in_time], np.minimum(last, scenario.deadline_s)[in_time]).min())


def assert_best(solution: RoundSolution, reference: float, participation) -> float:
    """Proven, and as good as the reference up to rounding, which is returned."""
    size = 2 * np.abs(participation[solution.participates]).sum()  # of what is added up
    rounding = 1e-9 * (abs(solution.objective) + solution.deadline + size)
    assert solution.lower_bound <= reference + rounding
    assert solution.gap <= 1e-6
    # The sections come near the optimum from above, from where the last bits are flat.
    assert reference - rounding <= solution.objective
    scale = max(abs(reference), solution.deadline)
    assert solution.objective <= reference + 1e-6 * scale + rounding
    return rounding


@given(small_problems(1))
def test_solve_round__finds_the_best_of_all_cohorts(problem):
    scenario, *states = problem
    gain, queue, participation = (each[0] for each in states)
    solution = solve_round(gain, queue, participation, scenario)
    bound = bound_rounds(*states, scenario, tolerance=1e-6)[0]
    reference = best_by_enumeration(scenario, gain, queue, participation)
    if reference == math.inf:  # nobody can meet it, and so nobody has to
        assert bound == scenario.deadline_s
        scenario = scenario.replace(deadline_s=math.inf)
        reference = bound = best_by_enumeration(scenario, gain, queue, participation)
    rounding = assert_best(solution, reference, participation)
    least = min(reference, scenario.deadline_s)
    scale = max(abs(reference), solution.deadline)
    assert least - 1e-4 * scale - rounding <= bound <= least + rounding
    f = solution.f
    p = solution.p
    cohort = solution.participates
    assert np.all((f >= scenario.f_min) & (f <= scenario.f_max))
    assert np.all((p >= scenario.p_min) & (p <= scenario.p_max))
    assert cohort.sum() <= scenario.cohort_size
    time, energy = physics.time_and_energy(gain, f, p, scenario)
    assert solution.deadline == pytest.approx(time[cohort].max(), rel=1e-12)
    assert solution.deadline <= scenario.deadline_s * (1 + 1e-11)
    own = solution.deadline + np.sum((queue * energy - participation)[cohort])
    assert solution.objective == pytest.approx(own, abs=1e-3 * rounding)
    # No device outside is later than the deadline that could make it.
    fastest, _ = ends(scenario, gain)
    assert np.all(time <= np.maximum(solution.deadline, fastest) * (1 + 1e-12))


def least_value(scenario: Scenario, gain, queue, participation) -> np.ndarray:
    """Value of the best cohort of each round, with the f and p that are best for it, (rounds,)."""
    best = np.full(len(gain), np.inf)
    for size in range(1, min(scenario.cohort_size, scenario.num_devices) + 1):
        for cohort in itertools.combinations(range(scenario.num_devices), size):
            member = np.isin(np.arange(scenario.num_devices), cohort)
            f, p = deadline_resources(gain, queue, np.tile(member, (len(gain), 1)), scenario)
            time, energy = physics.time_and_energy(gain, f, p, scenario)
            longest = np.where(member, time, 0.0).max(axis=1)
            value = longest + np.where(member, queue * energy - participation, 0.0).sum(axis=1)
            best = np.where(longest <= scenario.deadline_s, np.minimum(best, value), best)
    return best


@given(small_problems(200))
def test_bound__is_below_every_cohort_in_many_rounds(problem):
    scenario, *state = problem
    best = least_value(scenario, *state)
    met = best < np.inf  # otherwise nobody can meet the deadline
    solution = solve_round(*state, scenario, tolerance=1e-5)
    scale = solution.deadline + np.abs(solution.objective) + np.abs(state[2]).sum(axis=1)
    assert np.all((solution.lower_bound - best <= 1e-9 * scale)[met])
    assert np.all((solution.objective - best <= 2e-5 * scale)[met])


@pytest.mark.parametrize("tolerance", [1e-6, 1e-14])  # the second is where intervals run out
@pytest.mark.parametrize("cohort_size", [1, 2, 10, 120, 500])
@pytest.mark.parametrize("queue_scale", [0.0, 0.1, 10.0])
def test_certificate__closes_in_the_paper_s_system(cohort_size, queue_scale, tolerance):
    scenario = Scenario.cifar10(cohort_size=cohort_size)
    states = random_states(scenario, 5, queue_scale)
    solution = solve_round(*states, scenario, V=1.0, tolerance=tolerance)
    assert np.min(solution.gap) >= 0
    assert np.max(solution.gap) <= max(tolerance, 1e-11)
    assert np.all(solution.participates.sum(axis=1) <= min(cohort_size, 120))


@given(small_problems(1), ANY_SEED)
def test_solve_round__absent_devices_might_as_well_not_exist(problem, seed):
    scenario, *states = problem
    state = [each[0] for each in states]
    count = scenario.num_devices
    rng = np.random.default_rng(seed)
    there = rng.permutation(np.arange(count) < rng.integers(1, count, endpoint=True))
    # The absent ones would be the best of all.
    state[2] = np.where(there, state[2], 1e3 * np.abs(state[2]).max() + 1.0)
    whole = solve_round(*state, scenario, available=there)
    fields = {name: getattr(scenario, name)[there] for name in scenario.per_device_fields}
    part = scenario.replace(num_devices=int(there.sum()), **fields)
    alone = solve_round(*(each[there] for each in state), part)
    assert not np.any(whole.participates & ~there)
    if there.sum() < min(scenario.cohort_size, count):  # the search starts elsewhere
        assert_best(whole, alone.objective, state[2])
        return
    assert (whole.objective, whole.lower_bound) == (alone.objective, alone.lower_bound)
    for name in ("f", "p", "participates"):
        np.testing.assert_array_equal(getattr(whole, name)[there], getattr(alone, name))


@pytest.mark.usefixtures("four_threads")
def test_solve_round__batch_equals_its_rows():
    scenario = Scenario.cifar10(num_devices=12, cohort_size=3)
    states = random_states(scenario, 6)
    there = np.random.default_rng(0).random((6, 12)) < 0.4
    there[0] = True
    batch = solve_round(*states, scenario, V=1.0, available=there)
    bound = bound_rounds(*states, scenario, tolerance=1e-6, available=there)
    assert bound == pytest.approx(batch.lower_bound, rel=1e-9)
    for row, (*state, available) in enumerate(zip(*states, there, strict=True)):
        one = solve_round(*state, scenario, V=1.0, available=available if row else None)
        for name in ("f", "p", "participates", "deadline", "objective", "lower_bound", "gap"):
            np.testing.assert_array_equal(getattr(batch, name)[row], getattr(one, name))


def test_solve_round__of_the_cohort_only_decides_the_same():
    scenario = Scenario.cifar10(num_devices=12, cohort_size=3)
    state = random_states(scenario, 4)
    whole = solve_round(*state, scenario)
    brief = solve_round(*state, scenario, cohort_only=True)
    np.testing.assert_array_equal(whole.lower_bound, brief.lower_bound)
    for name, least in (("f", scenario.f_min), ("p", scenario.p_min)):
        expected = np.where(whole.participates, getattr(whole, name), least)
        np.testing.assert_array_equal(getattr(brief, name), expected)

"""Late devices: what they have spent, who they are, and what a round makes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator, lyapunov, physics
from fl_edge_env.aggregation import contributions, in_time
from tests.support import random_decision

SYSTEM = Scenario.femnist(
    num_devices=6,
    cohort_size=4,
    num_rounds=8,
    num_samples=np.array([50, 80, 120, 200, 300, 500]),
    download_rate_bps=np.array([1e6, 1e7, 1e5, 1e6, 1e8, 1e6]),
)


def typical_time(scenario: Scenario = SYSTEM) -> float:
    time, _ = physics.time_and_energy(scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario)
    return float(np.median(time))


def started(scenario: Scenario, seed: int = 0) -> Simulator:
    simulator = Simulator(scenario)
    simulator.reset([seed])
    return simulator


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 3.0), st.booleans())
def test_energy_until__is_the_integral_of_the_power(seed, share, delayed):
    rng = np.random.default_rng(seed)
    overhead = rng.uniform(0, typical_time(), 6) * delayed
    system = SYSTEM.replace(overhead_s=overhead)
    gain = rng.uniform(0.01, 0.5, 6)
    decision = random_decision(SYSTEM, rng)
    f, p = decision.f, decision.p
    time, energy = physics.time_and_energy(gain, f, p, system)
    end = share * float(np.median(time))
    # The power at every moment, a device at a time: nothing, computing, uploading, nothing.
    steps = 20_000
    moments = (np.arange(steps) + 0.5) * end / steps
    expected = np.zeros(6)
    for n in range(6):
        waiting = overhead[n] + SYSTEM.model_bits / SYSTEM.download_rate_bps[n]
        cycles = SYSTEM.local_epochs[n] * SYSTEM.cycles_per_sample[n] * SYSTEM.num_samples[n]
        power = np.where(moments < waiting, 0.0, SYSTEM.capacitance[n] * f[n] ** 3 / 2)
        power = np.where(moments < waiting + cycles / f[n], power, p[n])
        expected[n] = np.where(moments < time[n], power, 0.0).sum() * end / steps
    cut_time, cut_energy, late = physics.cut(end, time, energy, f, p, system)
    highest = np.maximum(p, SYSTEM.capacitance * f**3 / 2)
    np.testing.assert_allclose(cut_energy, expected, atol=3 * highest.max() * end / steps)
    np.testing.assert_array_equal(late, time > end)
    np.testing.assert_array_equal(cut_time, np.minimum(time, end))
    assert np.all(cut_energy[late] < energy[late])
    np.testing.assert_array_equal(cut_energy[~late], energy[~late])


@pytest.mark.parametrize("csi", ["full", "participants"])
@pytest.mark.parametrize("objective", ["penalty", "outcome"])
def test_round__of_a_chosen_cohort_by_hand(csi, objective):
    deadline = typical_time()
    fields = {"upload_failure": 0.5, "csi": csi, "objective": objective, "initial_queue": 5.0}
    scenario = SYSTEM.replace(deadline_s=deadline, **fields)
    simulator, lost = started(scenario), 0
    for number in range(8):
        gain, queue = simulator.channel_gain.copy(), simulator.queue.copy()
        cohort = np.array([number % 6, (number + 2) % 6, (number + 5) % 6])
        f, p = scenario.f_mid, scenario.p_mid
        played = simulator.advance(Allocation(f, p, cohort=cohort))
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        here = np.isin(np.arange(6), cohort)
        late = here & (time > deadline)
        lost += late.sum()
        spent = np.where(late, physics.energy_until(deadline, f, p, scenario), energy) * here
        np.testing.assert_array_equal(played.late, late)
        np.testing.assert_allclose(played.energy_spent, spent)
        assert played.round_time == min(deadline, time[here].max())
        assert not np.any(played.failed & ~(here & ~late))
        np.testing.assert_array_equal(in_time(played.info()), here & ~late)
        np.testing.assert_allclose(
            simulator.queue, np.maximum(queue + spent - scenario.energy_budget_j, 0.0)
        )
        came = contributions(Allocation(f, p, cohort=cohort), played.info(), scenario)
        arrived = here & ~late & ~played.failed
        np.testing.assert_array_equal(came.arrived, arrived)
        share = np.where(arrived, scenario.num_samples, 0.0)
        np.testing.assert_allclose(came.weight, share / max(share.sum(), 1.0))
        if objective == "outcome":
            target = lyapunov.participation_target(scenario)
            moved = target - (here & ~late)
            if number == 0:
                np.testing.assert_allclose(simulator.participation_queue, moved)
    assert 3 < lost < 20


@pytest.mark.parametrize("latency", ["proxy", "round_time"])
def test_round__of_a_draw_has_the_means_of_what_came_of_it(latency):
    scenario = SYSTEM.replace(deadline_s=typical_time(), latency=latency, num_rounds=5000)
    simulator = started(scenario)
    gain = simulator.channel_gain.copy()
    decision = random_decision(scenario, np.random.default_rng(0))
    times, energies, lates = [], [], []
    for _ in range(scenario.num_rounds):
        simulator.measure(gain)  # the same round again and again
        played = simulator.advance(decision)
        times.append(played.round_time)
        energies.append(played.energy_spent)
        lates.append(played.late)
    assert np.mean(times) == pytest.approx(played.expected_round_time, rel=0.02)
    np.testing.assert_allclose(np.mean(energies, axis=0), played.energy_expected, rtol=0.2)
    assert np.sum(np.mean(energies, axis=0)) == pytest.approx(
        np.sum(played.energy_expected), rel=0.02
    )
    assert 0.01 < np.mean(lates) < 0.6
    expected = {"proxy": decision.q @ played.device_time, "round_time": played.expected_round_time}
    assert played.latency == pytest.approx(expected[latency])
    assert played.device_time.max() == scenario.deadline_s
    value = lyapunov.drift_plus_penalty(
        gain, simulator.queue * 0, decision.f, decision.p, decision.q, scenario
    )
    assert value == pytest.approx(scenario.V * played.penalty)
    weight = contributions(decision, played.info(), scenario).weight
    assert np.all(weight[played.late] == 0)


def test_deadline__that_nobody_misses_changes_no_number():
    rng = np.random.default_rng(3)
    decisions = [random_decision(SYSTEM, rng) for _ in range(8)]
    plain, other = started(SYSTEM), started(SYSTEM.replace(deadline_s=1e9))
    for decision in decisions:
        one, two = plain.advance(decision), other.advance(decision)
        assert one.late is None
        assert not two.late.any()
        for name, value in one.account().items():
            np.testing.assert_array_equal(value, getattr(two, name))


def test_first__is_the_end_of_the_round_and_ties_are_in_time():
    scenario = SYSTEM.replace(download_rate_bps=math.inf, num_samples=1.0)
    simulator = started(scenario)
    simulator.measure(np.array([0.1, 0.1, 0.2, 0.3, 0.4, 0.4 * (1 - 1e-12)]))
    f, p = scenario.f_mid, scenario.p_mid
    time, _ = physics.time_and_energy(simulator.channel_gain, f, p, scenario)
    cohort = np.array([5, 0, 4, 2])
    for first, on_time, end in ((1, [4, 5], 4), (3, [2, 4, 5], 2), (4, [0, 2, 4, 5], 0)):
        again = started(scenario)
        again.measure(simulator.channel_gain)
        played = again.advance(Allocation(f, p, cohort=cohort, first=first))
        assert np.flatnonzero(in_time(played.info())).tolist() == on_time
        assert played.round_time == pytest.approx(time[end], rel=1e-9)
        assert set(np.flatnonzero(played.late)) == set(cohort) - set(on_time)
        until = physics.energy_until(played.round_time, f, p, scenario)
        np.testing.assert_allclose(played.energy_spent[played.late], until[played.late])


def test_first__waits_no_longer_than_the_deadline():
    deadline = 0.5 * typical_time()
    simulator = started(SYSTEM.replace(deadline_s=deadline))
    played = simulator.advance(Allocation(SYSTEM.f_min, SYSTEM.p_min, cohort=[3, 4, 5], first=2))
    assert played.round_time == deadline
    assert np.flatnonzero(played.late).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    "slow",
    [
        {"download_rate_bps": [1e5, 1e9, 1e9, 1e9, 1e9, 1e9]},
        {"download_rate_bps": math.inf, "overhead_s": [8.1, 0, 0, 0, 0, 0]},
    ],
    ids=["download", "overhead"],
)
def test_waiting__that_ends_after_the_deadline_takes_no_energy(slow):
    scenario = SYSTEM.replace(deadline_s=8.0, num_samples=1.0, model_bits=1e6, **slow)
    played = started(scenario).advance(Allocation(scenario.f_max, scenario.p_max, cohort=[0, 1]))
    assert played.late[0]
    assert played.energy_spent[0] == 0.0
    assert not in_time(played.info())[0]


@pytest.mark.parametrize("kind", ["sampled", "chosen"])
def test_overhead__makes_rounds_longer_and_moves_no_energy(kind):
    overhead, decision = 5.0 * np.arange(6), {"cohort": [1, 3, 4]}
    if kind == "sampled":
        decision = {"q": np.array([0.1, 0.2, 0.1, 0.3, 0.2, 0.1])}
    plain, slow = (
        started(SYSTEM.replace(latency="round_time", **fields)).advance(
            Allocation(SYSTEM.f_max, SYSTEM.p_max, **decision)
        )
        for fields in ({}, {"overhead_s": overhead})
    )
    np.testing.assert_allclose(slow.device_time, plain.device_time + overhead)
    np.testing.assert_array_equal(slow.cohort, plain.cohort)
    assert slow.round_time == pytest.approx((plain.device_time + overhead)[slow.cohort].max())
    np.testing.assert_array_equal(slow.energy_spent, plain.energy_spent)


@pytest.mark.parametrize("kind", ["sampled", "chosen"])
def test_batch__equals_single_systems(kind):
    scenario = SYSTEM.replace(deadline_s=typical_time(), objective="outcome", upload_failure=0.2)
    rng = np.random.default_rng(0)
    decisions = []
    for _ in range(8):
        decision = random_decision(scenario, rng, 3)
        if kind == "chosen":
            cohort = np.array([[0, 5, 2, -1], [4, -1, 1, 3], [2, 5, 0, 4]])
            first = rng.integers(1, 4, 3)
            decision = Allocation(decision.f, decision.p, cohort=cohort, first=first)
        decisions.append(decision)

    def of_row(decision: Allocation, row: int) -> Allocation:
        values = {n: getattr(decision, n) for n in ("f", "p", "q", "cohort", "first")}
        return Allocation(**{n: v[row] for n, v in values.items() if v is not None})

    batch = Simulator(scenario, 3)
    batch.reset([7, 8, 9])
    singles = [started(scenario, seed) for seed in (7, 8, 9)]
    late = 0
    for decision in decisions:
        played = batch.advance(decision)
        late += played.late.sum()
        for row, single in enumerate(singles):
            alone = single.advance(of_row(decision, row))
            for name, value in alone.account().items():
                np.testing.assert_array_equal(value, getattr(played, name)[row], err_msg=name)
    assert late > 10


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, "1", None, True])
def test_deadline__must_be_positive(value):
    with pytest.raises(ValueError, match="deadline_s must be positive, infinity allowed, got"):
        SYSTEM.replace(deadline_s=value)


def test_deadline__that_nobody_can_meet_is_warned_of_with_the_numbers():
    settings = (SYSTEM.mean_gain, SYSTEM.f_max, SYSTEM.p_max, SYSTEM)
    time, _ = physics.time_and_energy(*settings)
    fastest, least = int(time.argmin()), time.min()
    message = (
        f"the deadline of .* at the mean gain: the fastest, device {fastest}, takes {least:.6g}"
    )
    with pytest.warns(UserWarning, match=message):
        SYSTEM.replace(deadline_s=0.99 * least)
    SYSTEM.replace(deadline_s=1.01 * least)  # a warning would be an error


def test_file__has_the_deadline_only_where_there_is_one(tmp_path):
    late = SYSTEM.replace(deadline_s=1234.5678901234567)
    late.save(tmp_path / "late.toml")
    assert Scenario.load(tmp_path / "late.toml") == late
    assert "deadline_s" not in SYSTEM.to_toml()
    assert Scenario.from_toml(SYSTEM.to_toml()).deadline_s == math.inf
    assert Scenario.from_toml("deadline_s = inf").deadline_s == math.inf

"""Devices that drop out and uploads that fail: their law, their streams, and what a round makes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.observations import available_devices
from fl_edge_env.streams import draw_available
from tests.support import ANY_SEED

OFTEN_EMPTY = Scenario.femnist(
    num_devices=4,
    cohort_size=3,
    num_rounds=30,
    availability=[0.2, 0.5, 0.1, 0.3],
    upload_failure=0.4,
)


@given(ANY_SEED, st.integers(1, 4), st.sampled_from([0.05, 0.5, 1.0]))
def test_draw_available__equals_a_plain_loop(seed, n, most):
    availability = most * np.random.default_rng(seed).uniform(0.1, 1, n)
    availability[0] = most
    drawn = draw_available(np.random.default_rng(seed), 40, availability)
    uniform = np.random.default_rng(seed).random((40, n))
    for row, u in zip(drawn, uniform, strict=True):
        there = u < availability
        if not there.any():  # the device that came closest
            there[np.argmax(availability - u)] = True
        np.testing.assert_array_equal(row, there)


def test_streams__stay_as_they_are():
    plain = OFTEN_EMPTY.replace(availability=1.0, upload_failure=0.0)
    failing = plain.replace(upload_failure=0.4)
    simulators = [Simulator(scenario) for scenario in (plain, failing, OFTEN_EMPTY)]
    decision = Allocation(plain.f_mid, plain.p_mid, [0.1, 0.2, 0.3, 0.4])
    for simulator in simulators:
        simulator.reset([3])
    states = [simulator.training_seed().generate_state(4).tolist() for simulator in simulators]
    assert states[0] == states[1] == states[2]
    for _ in range(30):
        first, *others = (
            (simulator.channel_gain.copy(), simulator._block_draws[simulator._position].copy())
            for simulator in simulators
        )
        np.testing.assert_equal(others, [first, first])
        one, two, _ = (simulator.advance(decision) for simulator in simulators)
        info = two.info()
        del info["failed"]
        np.testing.assert_equal(info, one.info())  # also the time and energy of those that failed


@pytest.mark.parametrize("draw", [0.0, np.nextafter(1, 0)])
@pytest.mark.parametrize("num_envs", [None, 1])
def test_sampled__rounding_never_draws_an_unavailable_device(draw, num_envs):
    scenario = Scenario(num_devices=6, availability=0.5)
    simulator = Simulator(scenario, num_envs)
    simulator.reset([0])
    for there in itertools.product([False, True], repeat=6):
        if any(there):
            simulator._block_draws[...] = draw
            simulator._block_available[...] = there
            # The sum of these falls short of one, as far as is allowed.
            decision = Allocation(scenario.f_mid, scenario.p_mid, (1 - 1e-7) / 6)
            cohort = simulator.advance(decision).cohort
            assert np.all(np.array(there)[cohort])


@pytest.mark.parametrize(("num_envs", "where"), [(None, "device 1"), (3, "device 1 in system 2")])
def test_chosen__who_is_not_there_is_refused(num_envs, where):
    simulator = Simulator(OFTEN_EMPTY, num_envs)
    simulator.reset(range(num_envs or 1))
    simulator._block_available[0] = True
    simulator._block_available[0].reshape(-1, 4)[-1, 1] = False
    before = simulator.observe()
    cohort = np.full((*simulator.round_index.shape, 1), 1)
    with pytest.raises(ValueError, match=rf'{where}, which is not: .*\["available"\]'):
        simulator.advance(Allocation(OFTEN_EMPTY.f_mid, OFTEN_EMPTY.p_mid, cohort=cohort))
    np.testing.assert_equal(simulator.observe(), before)


def test_available__reads_observations_and_says_what_is_wrong():
    assert available_devices({"channel_gain": np.ones(3)}) is None
    for kind in (float, int, bool):
        there = available_devices({"available": np.array([[1, 0], [0, 1]], kind)})
        assert there.dtype == np.bool_
        assert there.tolist() == [[True, False], [False, True]]
    for wrong, message in (([0.5, 1.0], "hold 1 for"), ([[0, 0], [1, 0]], "got none")):
        with pytest.raises(ValueError, match=message):
            available_devices({"available": np.array(wrong)})

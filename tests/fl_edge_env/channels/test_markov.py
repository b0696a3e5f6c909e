"""Markov channels: their stationary law, transitions and correlation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fl_edge_env import MarkovChannel, Scenario, Simulator
from fl_edge_env.allocation import decode_action

CHAIN = MarkovChannel([0.02, 0.1, 0.4], [[0.5, 0.5, 0.0], [0.2, 0.6, 0.2], [0.1, 0.0, 0.9]])


def test_markov__stationary_distribution_is_kept_by_a_step():
    np.testing.assert_allclose(CHAIN.stationary @ np.array(CHAIN.transition), CHAIN.stationary)
    assert CHAIN.stationary.sum() == pytest.approx(1)
    assert CHAIN.mean == pytest.approx(CHAIN.stationary @ np.array(CHAIN.gains))


def test_markov__transitions_have_the_given_frequencies_from_the_first_round_on():
    gains = CHAIN.draw(np.random.default_rng(0), 60, 2000)
    states = np.searchsorted(CHAIN.gains, gains)
    for index in (0, 59):
        share = np.bincount(states[index], minlength=3) / 2000
        assert np.all(np.abs(share - CHAIN.stationary) < 4 * np.sqrt(0.25 / 2000))
    for state, row in enumerate(CHAIN.transition):
        after = states[1:][states[:-1] == state]
        share = np.bincount(after, minlength=3) / len(after)
        assert np.all(np.abs(share - row) <= 4 * np.sqrt(0.25 / len(after)))
        assert np.all(share[np.array(row) == 0] == 0)


def test_simulator__carries_the_chain_over_blocks_and_episodes():
    # 20,000 devices leave room for no more than one round in a block.
    scenario = Scenario(num_devices=20_000, channel=CHAIN, num_rounds=4)
    simulator = Simulator(scenario, 1)
    simulator.reset([0])
    allocation = decode_action(np.zeros((1, 3, 20_000)), scenario, 2.0)
    states = []
    for _ in range(4):
        states.append(np.searchsorted(CHAIN.gains, simulator.observe()["channel_gain"][0]))
        simulator.advance(allocation)
    impossible = [(0, 2), (2, 1)]
    for before, after in itertools.pairwise(states):
        assert not any(np.any((before == a) & (after == b)) for a, b in impossible)

"""Markov channels: their stationary law, transitions and correlation."""

from __future__ import annotations

import numpy as np

from tests.support import channel_of

CHAIN = channel_of("markov", 0.1)


def test_markov__transitions_have_the_given_frequencies():
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

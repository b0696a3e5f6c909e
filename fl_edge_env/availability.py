"""Devices that drop out of rounds and come back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray


class Presence(NamedTuple):
    """Some rounds of the devices' on-off chains.

    `available`, shape (rounds, N), has at least one device in every round; `last`, shape (N,), is
    the chains' state in the last round, from which the next draw goes on.
    """

    available: BoolArray
    last: BoolArray


def draw_presence(
    rng: np.random.Generator,
    rounds: int,
    availability: FloatArray,
    persistence: float = 0.0,
    previous: BoolArray | None = None,
) -> Presence:
    """Draw the available devices of some consecutive rounds.

    Each device is an on-off Markov chain of its own. With one uniform number u a round it keeps its
    state with probability `persistence`, in [0, 1), and is else drawn anew: on with probability
    `availability`, in (0, 1]. In the long run it is on in that share of the rounds, and the
    correlation of its state with that of k rounds before is ``persistence**k``.

    Where all chains are off in a round, the device is available that came closest: the one with the
    largest margin ``P(on | state before) - u``, the first of several. Its chain stays off, so that
    the rule changes this round only.

    `previous`, shape (N,), is the chains' state in the round before; without it they start in their
    long-run distribution. Rounds drawn in two calls are those drawn in one.
    """
    uniform = rng.random((rounds, availability.size))
    on_below = np.broadcast_to((1.0 - persistence) * availability, uniform.shape).copy()
    # Written so that a device with availability 1 is never off, whatever rounding does.
    off_from = np.broadcast_to(
        np.maximum(on_below[0], 1.0 - (1.0 - persistence) * (1.0 - availability)), uniform.shape
    ).copy()
    if previous is None:
        on_below[0] = off_from[0] = availability
        previous = np.zeros(availability.shape, dtype=np.bool_)
    # In between the state is that of the last round, 0 for `previous`, in which it was drawn anew.
    drawn = (uniform < on_below) | (uniform >= off_from)
    newest = np.maximum.accumulate(drawn * np.arange(1, rounds + 1)[:, None], axis=0)
    states = np.concatenate([previous[None], uniform < on_below])
    chain = np.take_along_axis(states, newest, axis=0)
    available = chain.copy()
    empty = np.flatnonzero(~chain.any(axis=1))
    if empty.size:
        before = np.concatenate([previous[None], chain[:-1]])[empty]
        likely = np.where(before, off_from[empty], on_below[empty])
        available[empty, np.argmax(likely - uniform[empty], axis=1)] = True
    return Presence(available, chain[-1])


def sample_presence(rng: np.random.Generator, count: int, availability: FloatArray) -> BoolArray:
    """Available devices in independent rounds, at least one in each, shape (count, N)."""
    return draw_presence(rng, count, availability).available

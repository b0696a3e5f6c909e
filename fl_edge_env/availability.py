"""Devices that drop out of rounds and come back."""

from __future__ import annotations

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray


def draw_presence(
    rng: np.random.Generator,
    rounds: int,
    availability: FloatArray,
    persistence: float = 0.0,
    previous: BoolArray | None = None,
) -> tuple[BoolArray, BoolArray]:
    """Draw the available devices of some consecutive rounds, shape (rounds, N).

    Each device is an on-off Markov chain of its own. With one uniform number u a round it keeps its
    state with probability `persistence`, in [0, 1), and is else drawn anew: on with probability
    `availability`, in (0, 1]. In the long run it is on in that share of the rounds, and the
    correlation of its state with that of k rounds before is ``persistence**k``.

    Where all chains are off in a round, the device is available that came closest: the one with the
    largest margin ``P(on | state before) - u``, the first of several. Its chain stays off, so that
    the rule changes this round only.

    `previous`, shape (N,), is the chains' state in the round before; without it they start in their
    long-run distribution. The second result is their state in the last round: with it as `previous`
    a second call draws the rounds that one call would have drawn.
    """
    uniform = rng.random((rounds, availability.size))
    off_likely = (1.0 - persistence) * availability
    # Written so that a device with availability 1 is never off, whatever rounding does.
    on_likely = np.maximum(off_likely, 1.0 - (1.0 - persistence) * (1.0 - availability))
    available = np.empty(uniform.shape, dtype=np.bool_)
    on = previous
    for row, drawn in zip(available, uniform, strict=True):
        likely = availability if on is None else np.where(on, on_likely, off_likely)
        row[:] = on = drawn < likely
        if not on.any():
            row[np.argmax(likely - drawn)] = True
    assert on is not None
    return available, on

"""The random numbers of an episode: one stream for each purpose, all from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fl_edge_env.channels.protocol import check_gains
from fl_edge_env.channels.recorded import RecordedChannel
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray

# Separates a policy's stream from those that an environment spawns from the same seed.
_POLICY = 0x90C1


def policy_seed(seed: int) -> int:
    """Seed for a policy, which does not reveal the seed of its episode.

    An environment's seed reveals its future. A policy therefore gets a number derived from it, from
    which only brute force over all seeds could recover it, so secret seeds stay secret.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(_POLICY,))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def draw_available(rng: np.random.Generator, rounds: int, availability: FloatArray) -> BoolArray:
    """Draw the available devices of each round, shape (rounds, N), from their `availability`.

    If a round has none, the device with the largest ``availability - u`` is available, where u is
    the uniform number of its draw.
    """
    margin = availability - rng.random((rounds, availability.size))
    available = margin > 0
    empty = ~available.any(axis=1)
    available[empty, margin[empty].argmax(axis=1)] = True
    return available


class Drawn(NamedTuple):
    """The random numbers of some rounds; None if the scenario needs none."""

    gains: FloatArray  # shape (rounds, N)
    draws: FloatArray  # uniform, for the K draws, shape (rounds, K)
    available: BoolArray | None  # shape (rounds, N)
    uploads: FloatArray | None  # uniform, for the uploads, shape (rounds, N)


class Streams:
    """The random numbers of one system: each episode has its own streams, one for each purpose.

    The streams of an episode come from one seed sequence and do not depend on the decisions: under
    one seed every policy sees the same channel.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._root: np.random.SeedSequence | None = None

    def start_episode(self, seed: int | None) -> None:
        """Start the first episode of a seed, or the next episode if the seed is None."""
        # Entropy is drawn here, not before, so that copies of a new environment differ.
        if seed is not None or self._root is None:
            self._root = np.random.SeedSequence(seed)
        channel, cohort, self.training, availability, uploads, start = self._root.spawn(1)[0].spawn(
            6
        )
        self._channel = np.random.default_rng(channel)
        self._cohort = np.random.default_rng(cohort)
        self._availability = np.random.default_rng(availability)
        self._uploads = np.random.default_rng(uploads)
        self._coming = 0  # index of the channel's next round
        self._model = self._scenario.channel
        if isinstance(self._model, RecordedChannel):
            rng = np.random.default_rng(start)
            self._model = self._model.begun(rng, self._scenario.num_devices)
        self._last: FloatArray | None = None

    def next_rounds(self, count: int) -> Drawn:
        """Draw the random numbers of the next `count` rounds."""
        scenario = self._scenario
        gains = self._model.draw(
            self._channel,
            count,
            scenario.num_devices,
            first_round=self._coming,
            previous=self._last,
        )
        check_gains(scenario.channel, gains, count, scenario.num_devices)
        self._coming += count
        self._last = gains[-1]
        available = uploads = None
        if scenario.drops_out:
            available = draw_available(self._availability, count, scenario.availability)
        if scenario.upload_failure > 0:
            uploads = self._uploads.random((count, scenario.num_devices))
        return Drawn(gains, self._cohort.random((count, scenario.cohort_size)), available, uploads)


def episode_gains(
    scenario: Scenario, seed: int, *, block_rounds: int = 1024
) -> Iterator[FloatArray]:
    """Yield the true gains of a seed's first episode, in blocks of shape (rounds, N)."""
    for gains, _ in episode_states(scenario, seed, block_rounds=block_rounds):
        yield gains


def episode_states(
    scenario: Scenario, seed: int, *, block_rounds: int = 1024
) -> Iterator[tuple[FloatArray, BoolArray | None]]:
    """Yield gains as `episode_gains`, and the available devices; None if all always are."""
    streams = Streams(scenario)
    streams.start_episode(seed)
    if scenario.csi == "delayed":
        streams.next_rounds(1)  # the round that supplies the first observation
    left = scenario.num_rounds
    while left:
        count = min(left, block_rounds)
        drawn = streams.next_rounds(count)
        yield drawn.gains, drawn.available
        left -= count

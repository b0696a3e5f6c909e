"""Recordings of gains, and the channels that replay them."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fl_edge_env.channels.protocol import IndependentRounds
from fl_edge_env.typing import FloatArray, IntArray, System

# Rates converted with an assumed noise can need gains a little above one.
_MOST_GAIN = 10.0


class Recording(NamedTuple):
    """L series of gains, one after another, and their lengths, shape (L,).

    Device n has series ``n mod L``, again after its end. A place is an index in a series.
    """

    gains: FloatArray
    lengths: IntArray

    def at(self, places: IntArray) -> FloatArray:
        """Gains at the places of devices, shape (rounds, N)."""
        series = np.arange(places.shape[1]) % len(self.lengths)
        lengths = self.lengths[series]
        return self.gains[np.cumsum(self.lengths)[series] - lengths + places % lengths]

    def split(self) -> list[FloatArray]:
        """The gains of each series."""
        return np.split(self.gains, np.cumsum(self.lengths)[:-1])


class RecordedChannel:
    """Replays a recording; the devices begin at places of their own if they are `apart`.

    In each round all devices move on by `step` places.
    """

    recording: Recording
    step = 1
    apart = True
    _start: IntArray | None = None  # the devices' places in an episode's first round, shape (1, N)

    def __eq__(self, other: object) -> bool:
        """Equal if the gains are, regardless of the path."""
        return type(other) is type(self) and all(
            map(np.array_equal, self._content(), other._content())
        )

    def _content(self) -> list[ArrayLike]:
        return [*self.recording, self.step, self.apart]

    @property
    def mean(self) -> float:
        """Mean gain over the series."""
        return float(self.device_mean(len(self.recording.lengths)).mean())

    @property
    def gain_min(self) -> float:
        """Smallest recorded gain."""
        return float(self.recording.gains.min())

    @property
    def gain_max(self) -> float:
        """Largest recorded gain."""
        return float(self.recording.gains.max())

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,)."""
        return np.resize([gains.mean() for gains in self.recording.split()], num_devices)

    def in_system(self, system: System) -> Self:  # noqa: ARG002 - for subclasses
        """The channel in a system; warns if its gains cannot be."""
        if self.mean > _MOST_GAIN:
            warnings.warn(
                f"gains are {self.mean:.3g} on average, but no more power arrives than was sent "
                "(gain 1): are they in dB, to be converted by 10 ** (dB / 10)? Measured rates need "
                "a larger bandwidth_hz, such as 10e6 for mobile networks",
                stacklevel=2,
            )
        return self

    def begun(self, rng: Generator, num_devices: int) -> Self:
        """A copy for an episode, with drawn starts."""
        begun = copy.copy(self)
        vars(begun)["_start"] = self._places(rng, 1, num_devices)
        return begun

    def _places(self, rng: Generator, count: int, num_devices: int) -> IntArray:
        """Draw places, shape (count, N)."""
        lengths = np.resize(self.recording.lengths, num_devices)
        if self.apart:
            return rng.integers(lengths, size=(count, num_devices))
        return np.repeat(rng.integers(lengths[0], size=(count, 1)), num_devices, axis=1)

    def draw(
        self, rng: Generator, rounds: int, num_devices: int, *, first_round: int = 0, **_: object
    ) -> FloatArray:
        """Return the gains of the next rounds, from anywhere unless the episode has begun."""
        start = self._places(rng, 1, num_devices) if self._start is None else self._start
        passed = self.step * np.arange(first_round, first_round + rounds)
        return self.recording.at(start + passed[:, None])

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw recorded rounds; see `ChannelModel.sample`."""
        return self.recording.at(self._places(rng, count, num_devices))

    def unordered(self) -> UnorderedChannel:
        """The channel as policies may see it, without the order of the rounds."""
        series = [np.sort(gains) for gains in self.recording.split()]
        return UnorderedChannel(Recording(np.concatenate(series), self.recording.lengths))


@dataclass(frozen=True, eq=False)
class UnorderedChannel(IndependentRounds, RecordedChannel):
    """Draw from the sorted gains of each device, independently over rounds and devices."""

    recording: Recording

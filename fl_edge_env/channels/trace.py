"""Recorded gains, replayed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.random import Generator

from fl_edge_env.checks import POSITIVE, read_only
from fl_edge_env.files import as_value_error, user_path
from fl_edge_env.tables import COUNTED, read_table
from fl_edge_env.typing import FloatArray


@dataclass(frozen=True, eq=False)
class UnorderedChannel:
    """Draw from the recorded gains of each device, independently over rounds and devices.

    `gains`, shape (rounds, N), are sorted for each device; `means`, shape (N,), are their means.
    """

    gains: FloatArray
    means: FloatArray
    mean: float
    gain_min: float
    gain_max: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnorderedChannel) and np.array_equal(self.gains, other.gains)

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,)."""
        return self.means

    def draw(self, rng: Generator, rounds: int, num_devices: int, **_: object) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        return self.sample(rng, rounds, num_devices)

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        places = rng.integers(len(self.gains), size=(count, num_devices))
        return np.take_along_axis(self.gains, places, axis=0)


@dataclass(frozen=True, eq=False)
class TraceChannel:
    """Replay recorded gains, starting over after the last round.

    An episode begins at a recorded round drawn from its seed, so seeds give different episodes.

    Parameters
    ----------
    path : str
        CSV file in long format with the columns ``round``, ``device`` and ``gain``; rounds and
        devices count from zero, and each pair appears once.

    Raises
    ------
    ValueError
        If the file is missing or malformed.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        self.trace  # noqa: B018 - read and check it now

    def unordered(self) -> UnorderedChannel:
        """The channel as policies may see it, without the order of the rounds."""
        gains = np.sort(self.trace, axis=0)
        means = self.trace.mean(axis=0)
        return UnorderedChannel(gains, means, self.mean, self.gain_min, self.gain_max)

    def __eq__(self, other: object) -> bool:
        """Equal if the gains are, regardless of the path."""
        return isinstance(other, TraceChannel) and np.array_equal(self.trace, other.trace)

    @cached_property
    def trace(self) -> FloatArray:
        """The recorded gains, shape (rounds, N)."""
        return read_trace(Path(self.path))

    @property
    def mean(self) -> float:
        """Mean of all recorded gains."""
        return float(self.trace.mean())

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,); `ValueError` if the trace has another number."""
        if num_devices != self.trace.shape[1]:
            raise ValueError(
                f"the trace {self.path!r} has {self.trace.shape[1]} devices and the scenario "
                f"{num_devices}: set num_devices={self.trace.shape[1]}"
            )
        mean: FloatArray = self.trace.mean(axis=0)
        return mean

    @property
    def gain_min(self) -> float:
        """Smallest recorded gain."""
        return float(self.trace.min())

    @property
    def gain_max(self) -> float:
        """Largest recorded gain."""
        return float(self.trace.max())

    def draw(
        self, rng: object, rounds: int, num_devices: int, *, first_round: int = 0, **_: object
    ) -> FloatArray:
        """Return the gains of the next rounds; see `ChannelModel.draw`."""
        index = np.arange(first_round, first_round + rounds) % len(self.trace)
        return self.trace[index]

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw recorded rounds; see `ChannelModel.sample`."""
        return self.trace[rng.integers(len(self.trace), size=count)]


def read_trace(path: Path, column: str = "gain") -> FloatArray:
    """Read a column of a trace file, shape (rounds, N); see `TraceChannel`."""
    with as_value_error(f"cannot read the trace {str(path)!r}: "):
        table = read_table(user_path(path), ("round", "device", column))
        rounds, devices = (table.numbers(name, COUNTED) for name in ("round", "device"))
        values = table.numbers(column, POSITIVE)
        order = np.lexsort((devices, rounds))
        num_devices = max(int(np.count_nonzero(rounds == 0)), 1)
        counted = np.divmod(np.arange(len(values)), num_devices)
        if len(values) % num_devices or not np.array_equal(
            counted, (rounds[order], devices[order])
        ):
            raise ValueError("it must have one row for each pair of round and device, from 0")
    return read_only(values[order].reshape(-1, num_devices))

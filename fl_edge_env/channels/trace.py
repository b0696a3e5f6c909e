"""Recorded gains, replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fl_edge_env.files import as_value_error, check_regular
from fl_edge_env.typing import FloatArray

# A small file of a stranger must not fill the memory.
_MOST_GAINS = 10_000_000
_MOST_BYTES = 100 * _MOST_GAINS


@dataclass(frozen=True)
class TraceChannel:
    """Replays recorded gains, from the start again after the last round.

    Parameters
    ----------
    path : str
        CSV or Parquet file in long format with the columns ``round``, ``device`` and ``gain``;
        rounds and devices count from zero, and each pair appears once. It has at most ten million
        rows, and a CSV file a gigabyte.

    Raises
    ------
    ValueError
        If the file is missing or not of this form.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        self.trace  # noqa: B018 - read it now, and refuse it now

    def __eq__(self, other: object) -> bool:
        """Equal in path and gains: the file may have changed between the two."""
        if not isinstance(other, TraceChannel):
            return NotImplemented
        return self.path == other.path and np.array_equal(self.trace, other.trace)

    @cached_property
    def trace(self) -> FloatArray:
        """The recorded gains, shape (rounds, N)."""
        return read_trace(Path(self.path))

    @property
    def mean(self) -> float:
        """Mean of all recorded gains."""
        return float(self.trace.mean())

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, and of the whole record for one without its own, shape (N,)."""
        mean = np.full(num_devices, self.mean)
        recorded = min(num_devices, self.trace.shape[1])
        mean[:recorded] = self.trace[:, :recorded].mean(axis=0)
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
        self,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random
        rounds: int,
        num_devices: int,
        *,
        first_round: int = 0,
        previous: FloatArray | None = None,  # noqa: ARG002 - the round is enough
    ) -> FloatArray:
        """Give the gains of the next rounds; see `ChannelModel.draw`."""
        self._check_devices(num_devices)
        index = np.arange(first_round, first_round + rounds) % len(self.trace)
        return self.trace[index]

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw recorded rounds; see `ChannelModel.sample`."""
        self._check_devices(num_devices)
        return self.trace[rng.integers(len(self.trace), size=count)]

    def _check_devices(self, num_devices: int) -> None:
        if num_devices != self.trace.shape[1]:
            raise ValueError(
                f"the trace {self.path!r} has {self.trace.shape[1]} devices and the scenario "
                f"{num_devices}: set num_devices={self.trace.shape[1]}"
            )


def read_trace(path: Path, column: str = "gain") -> FloatArray:
    """A column of a file as `TraceChannel` describes it, shape (rounds, N).

    Raises `ValueError`, which names the file and what is wrong.
    """
    import pandas as pd  # only here: the environment itself does without

    columns = ["round", "device", column]
    with as_value_error(
        f"cannot read the trace {str(path)!r} as a table with the columns round, device and "
        f"{column}: "
    ):
        if path.suffix == ".parquet":
            check_regular(path)
            _check_parquet(path, columns)
            # On a damaged file threads of pyarrow may outlive its error, and crash.
            table = pd.read_parquet(path, engine="pyarrow", columns=columns, use_threads=False)
        else:
            check_regular(path, _MOST_BYTES)
            # What is packed may grow without end.
            table = pd.read_csv(path, compression=None, usecols=columns, nrows=_MOST_GAINS + 1)
        _check_number(len(table))
        rounds, devices, values = table[columns].to_numpy(dtype=np.float64).T
    if not len(values):
        raise ValueError(f"{str(path)!r} must have rows, got none")
    wrong = ~((values > 0) & np.isfinite(values))
    if wrong.any():
        raise ValueError(
            f"{column} must be positive and finite in every row of {str(path)!r}, "
            f"got {values[wrong][0]} in row {int(wrong.argmax())}"
        )
    shape = float(rounds.max()) + 1, float(devices.max()) + 1
    counts = [np.all((index >= 0) & (index == np.floor(index))) for index in (rounds, devices)]
    # Their number first: wrong ones may announce a huge table.
    if (
        not all(counts)
        or len(values) != math.prod(shape)
        or not np.array_equal(np.sort(rounds * shape[1] + devices), np.arange(len(values)))
    ):
        raise ValueError(
            f"{str(path)!r} must have one row for each pair of round and device, counted from 0"
        )
    trace = np.empty((int(shape[0]), int(shape[1])))
    trace[rounds.astype(np.int64), devices.astype(np.int64)] = values
    trace.flags.writeable = False
    return trace


def _check_parquet(path: Path, columns: Sequence[str]) -> None:
    """Raise `ValueError` for a file whose head announces too many rows, or no numbers."""
    import pyarrow.parquet as pq
    from pyarrow.types import is_floating, is_integer

    with pq.ParquetFile(path) as file:
        _check_number(file.metadata.num_rows)
        for field in (file.schema_arrow.field(name) for name in columns):
            if not (is_integer(field.type) or is_floating(field.type)):
                raise ValueError(f"{field.name} must be numbers, got {field.type}")


def _check_number(rows: int) -> None:
    if rows > _MOST_GAINS:
        raise ValueError(f"it has more than {_MOST_GAINS} rows")

"""Channel models: how the gain between each device and the server evolves over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from fl_edge_env.checks import as_float, finite_number, integer_at_least, is_real
from fl_edge_env.files import check_regular, reason
from fl_edge_env.typing import FloatArray


class ChannelModel(Protocol):
    """What a scenario needs from a channel; any frozen dataclass with these members will do."""

    @property
    def mean(self) -> float:
        """Nominal mean gain, at which lambda0 and V0 are calibrated."""

    @property
    def gain_min(self) -> float:
        """Smallest gain that can occur, positive."""

    @property
    def gain_max(self) -> float:
        """Largest gain that can occur."""

    def draw(
        self,
        rng: np.random.Generator,
        rounds: int,
        num_devices: int,
        *,
        first_round: int = 0,
        previous: FloatArray | None = None,
    ) -> FloatArray:
        """Draw the gains of the next rounds.

        The draws are consumed round by round, so that splitting a run of rounds over several
        calls gives the same gains as one call.

        Parameters
        ----------
        rng : numpy.random.Generator
            The stream to draw from.
        rounds, num_devices : int
            Shape of the result.
        first_round : int
            Index of the first of these rounds in the episode.
        previous : ndarray, shape (N,), optional
            Gains of the round before; None at the start of an episode.

        Returns
        -------
        ndarray, shape (rounds, N)
            Gains in [gain_min, gain_max].
        """

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds from the long-run distribution of gains, shape (count, N)."""


def check_channel(channel: Any) -> None:
    """Refuse what is no `ChannelModel`, or one whose gains are not positive and finite."""
    members = ("mean", "gain_min", "gain_max", "draw", "sample")
    if isinstance(channel, type) or not all(hasattr(channel, member) for member in members):
        raise ValueError(
            "channel must be a channel model such as ExponentialChannel(), with the members "
            f"{', '.join(members)}, got {channel!r}"
        )
    for name in members[:3]:
        finite_number(f"the channel's {name}", getattr(channel, name))
    if channel.gain_min > channel.gain_max:
        raise ValueError(
            "the channel's gain_min must not exceed its gain_max, "
            f"got {channel.gain_min!r} and {channel.gain_max!r}"
        )


@dataclass(frozen=True)
class ExponentialChannel:
    """Independent exponential gains over devices and rounds, kept inside an interval.

    The paper draws gains with mean 0.1 and "filters out" those outside [0.01, 0.5].

    Parameters
    ----------
    mean : float
        Mean of the exponential distribution before filtering.
    gain_min, gain_max : float
        The interval, ``0 < gain_min < gain_max``.
    filter : {"clip", "resample"}
        ``"clip"`` moves an outlier to the nearest end (it matches the paper's results);
        ``"resample"`` draws from the distribution truncated to the interval.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    mean: float = 0.1
    gain_min: float = 0.01
    gain_max: float = 0.5
    filter: Literal["clip", "resample"] = "clip"

    def __post_init__(self) -> None:
        for name in ("mean", "gain_min", "gain_max"):
            object.__setattr__(self, name, finite_number(name, getattr(self, name)))
        if self.gain_min >= self.gain_max:
            raise ValueError(
                f"gain_min must be below gain_max, got {self.gain_min!r} and {self.gain_max!r}"
            )
        if not (isinstance(self.filter, str) and self.filter in ("clip", "resample")):
            raise ValueError(f"filter must be 'clip' or 'resample', got {self.filter!r}")

    def draw(
        self,
        rng: np.random.Generator,
        rounds: int,
        num_devices: int,
        *,
        first_round: int = 0,  # noqa: ARG002 - rounds are alike
        previous: FloatArray | None = None,  # noqa: ARG002 - and independent
    ) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        if self.filter == "clip":
            gain = self.mean * rng.standard_exponential((rounds, num_devices))
        else:
            # Inverse distribution function: beyond its least value an exponential starts anew.
            span = (self.gain_max - self.gain_min) / self.mean
            uniform = rng.random((rounds, num_devices))
            gain = self.gain_min - self.mean * np.log1p(uniform * math.expm1(-span))
        return np.clip(gain, self.gain_min, self.gain_max, out=gain)

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        return self.draw(rng, count, num_devices)


@dataclass(frozen=True)
class MarkovChannel:
    """Each device's gain follows a finite-state Markov chain of its own.

    The chains start from their stationary distribution. The paper's performance analysis covers
    such channels if the chain is irreducible and aperiodic.

    Parameters
    ----------
    gains : sequence of float, length S
        Gain in each state, positive and ascending.
    transition : sequence of sequences of float, shape (S, S)
        Probability of going from the row's state to the column's.

    Raises
    ------
    ValueError
        If the gains are not ascending, the rows are not distributions or the chain has no
        unique stationary distribution.
    """

    gains: Sequence[float]
    transition: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", _numbers("gains", self.gains, 1))
        object.__setattr__(self, "transition", _numbers("transition", self.transition, 2))
        gains, size = np.array(self.gains), len(self.gains)
        if not (size > 1 and gains[0] > 0 and np.all(np.diff(gains) > 0) and gains[-1] < math.inf):
            raise ValueError(
                f"gains must be two or more, positive and ascending, got {self.gains!r}"
            )
        rows = [len(row) for row in self.transition]
        if rows != [size] * size:
            raise ValueError(
                f"transition must have shape ({size}, {size}) for {size} gains, "
                f"got rows of length {rows}"
            )
        matrix = np.array(self.transition)
        if not (np.all(matrix >= 0) and np.allclose(matrix.sum(axis=1), 1, atol=1e-9)):
            raise ValueError(
                f"every row of transition must be a distribution, got {self.transition!r}"
            )
        if np.linalg.matrix_rank(matrix.T - np.eye(size), tol=1e-9) < size - 1:
            raise ValueError(
                "transition must lead to one stationary distribution, got a chain that falls apart"
            )

    @classmethod
    def correlated(
        cls,
        persistence: float,
        *,
        num_states: int = 16,
        marginal: ExponentialChannel | None = None,
    ) -> MarkovChannel:
        """Discretise an exponential channel and let it keep its state with some probability.

        Parameters
        ----------
        persistence : float
            Probability in [0, 1) that a device keeps its gain; otherwise it draws a new one.
            It is the correlation of the gains of two successive rounds.
        num_states : int
            Number of equally likely states, at least two.
        marginal : ExponentialChannel, optional
            The distribution to discretise, truncated to its interval whatever its `filter` is;
            with the paper's mean and interval by default.

        Raises
        ------
        ValueError
            If a parameter is outside its range.
        """
        if not (is_real(persistence) and 0 <= persistence < 1):
            raise ValueError(f"persistence must lie in [0, 1), got {persistence!r}")
        integer_at_least(2, "num_states", num_states)
        if not isinstance(marginal, ExponentialChannel | None):
            raise ValueError(f"marginal must be an ExponentialChannel, got {marginal!r}")
        law = marginal or ExponentialChannel()
        middle = (np.arange(num_states) + 0.5) / num_states
        span = (law.gain_max - law.gain_min) / law.mean
        gains = law.gain_min - law.mean * np.log1p(middle * math.expm1(-span))
        transition = np.full((num_states, num_states), (1 - persistence) / num_states)
        transition[np.diag_indices(num_states)] += persistence
        return cls(gains.tolist(), transition.tolist())

    @property
    def gain_min(self) -> float:
        """Gain in the worst state."""
        return self.gains[0]

    @property
    def gain_max(self) -> float:
        """Gain in the best state."""
        return self.gains[-1]

    @cached_property
    def mean(self) -> float:
        """Mean gain under the stationary distribution."""
        return float(self.stationary @ np.array(self.gains))

    @cached_property
    def stationary(self) -> FloatArray:
        """Stationary distribution of the chain, shape (S,)."""
        size = len(self.gains)
        system = np.vstack([np.array(self.transition).T - np.eye(size), np.ones(size)])
        solution: FloatArray = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0))[0]
        positive = np.maximum(solution, 0.0)
        distribution: FloatArray = positive / positive.sum()
        return distribution

    def draw(
        self,
        rng: np.random.Generator,
        rounds: int,
        num_devices: int,
        *,
        first_round: int = 0,  # noqa: ARG002 - the chain is homogeneous
        previous: FloatArray | None = None,
    ) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        gains = np.array(self.gains)
        start, steps = np.cumsum(self.stationary), np.cumsum(self.transition, axis=1)
        start[-1] = steps[:, -1] = math.inf  # rounding must not lead past the last state
        states = np.empty((rounds, num_devices), dtype=np.int64)
        last = None if previous is None else np.searchsorted(gains, previous)
        for index, uniform in enumerate(rng.random((rounds, num_devices))):
            cdf = start if last is None else steps[last]
            last = states[index] = np.sum(cdf <= uniform[:, None], axis=1)
        drawn: FloatArray = gains[states]
        return drawn

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        drawn: FloatArray = rng.choice(
            np.array(self.gains), (count, num_devices), p=self.stationary
        )
        return drawn


def _numbers(name: str, values: object, depth: int) -> tuple[Any, ...]:
    """`values` as tuples of floats, one inside the other to a depth; `name` is for the error."""
    try:
        if isinstance(values, (str, bytes, Mapping)):
            raise TypeError("not a sequence")
        items = list(values)  # type: ignore[call-overload]
        if depth > 1:
            return tuple(_numbers(name, item, depth - 1) for item in items)
        if not all(map(is_real, items)):
            raise TypeError("not real numbers")
        return tuple(map(as_float, items))
    except TypeError:
        raise ValueError(
            f"{name} must be {'rows of ' if name == 'transition' else ''}real numbers, "
            f"got {values!r}"
        ) from None


@dataclass(frozen=True)
class TraceChannel:
    """Replays recorded gains, from the start again after the last round.

    Parameters
    ----------
    path : str
        CSV or Parquet file in long format with the columns ``round``, ``device`` and ``gain``;
        rounds and devices count from zero, and each pair appears once.

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


def read_trace(path: Path) -> FloatArray:
    """Read recorded gains.

    Parameters
    ----------
    path : Path
        A file as `TraceChannel` describes it.

    Returns
    -------
    ndarray, shape (rounds, N)

    Raises
    ------
    ValueError
        If the file is missing or not of this form; the message names it and what is wrong.
    """
    import pandas as pd  # only here: the environment itself does without

    try:
        check_regular(path)
        if path.suffix == ".parquet":
            # On a damaged file threads of pyarrow may outlive its error, and crash.
            table = pd.read_parquet(path, engine="pyarrow", use_threads=False)
        else:
            # What is packed may grow without end.
            table = pd.read_csv(path, compression=None)
        rounds, devices, gain = table[["round", "device", "gain"]].to_numpy(dtype=np.float64).T
    except Exception as error:  # what a damaged file can raise has no end
        raise ValueError(
            f"cannot read the trace {str(path)!r} as a table with the columns round, device and "
            f"gain: {reason(error)}"
        ) from None
    if not len(gain):
        raise ValueError(f"{str(path)!r} must have rows, got none")
    wrong = ~((gain > 0) & np.isfinite(gain))
    if wrong.any():
        raise ValueError(
            f"gain must be positive and finite in every row of {str(path)!r}, "
            f"got {gain[wrong][0]} in row {int(wrong.argmax())}"
        )
    shape = float(rounds.max()) + 1, float(devices.max()) + 1
    counts = [np.all((index >= 0) & (index == np.floor(index))) for index in (rounds, devices)]
    # Their number first: wrong ones may announce a huge table.
    if (
        not all(counts)
        or len(gain) != math.prod(shape)
        or not np.array_equal(np.sort(rounds * shape[1] + devices), np.arange(len(gain)))
    ):
        raise ValueError(
            f"{str(path)!r} must have one row for each pair of round and device, counted from 0"
        )
    trace = np.empty((int(shape[0]), int(shape[1])))
    trace[rounds.astype(np.int64), devices.astype(np.int64)] = gain
    trace.flags.writeable = False
    return trace

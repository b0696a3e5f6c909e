"""The protocol of a channel, and checks of user-defined ones."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from fl_edge_env.checks import all_true, finite_number, per_device, quoted
from fl_edge_env.typing import FloatArray


class ChannelModel(Protocol):
    """The members of a channel; any frozen dataclass with them is one.

    A channel whose devices have different means also has ``device_mean(num_devices)``, which
    returns the nominal mean gain of each device, shape (N,). Without it every device has the
    channel's `mean`.
    """

    @property
    def mean(self) -> float:
        """Nominal mean gain over all devices."""

    @property
    def gain_min(self) -> float:
        """Smallest gain that can occur, positive."""

    @property
    def gain_max(self) -> float:
        """Largest gain that can occur."""

    def draw(
        self,
        rng: Generator,
        rounds: int,
        num_devices: int,
        *,
        first_round: int = 0,
        previous: FloatArray | None = None,
    ) -> FloatArray:
        """Draw the gains of the next rounds.

        Drawing two blocks in one call must give the same gains, bit for bit, as two successive
        calls: rounds are drawn in blocks of any length, and the systems of a batch take turns. So
        take random numbers round by round, from the given generator only, and keep no state on the
        channel. A scenario checks this for user-defined channels.

        Parameters
        ----------
        rng : numpy.random.Generator
            The stream to draw from.
        rounds, num_devices : int
            Shape of the result.
        first_round : int
            Index of the first of these rounds in the episode.
        previous : ndarray, shape (N,), optional
            Gains of the previous round; None at the start of an episode.

        Returns
        -------
        ndarray, shape (rounds, N)
            Gains in [gain_min, gain_max].
        """

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds from the long-run distribution of gains, shape (count, N)."""


class IndependentRounds:
    """Draws each round of an episode as `sample` draws it."""

    def draw(self: Any, rng: Generator, rounds: int, num_devices: int, **_: object) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        return self.sample(rng, rounds, num_devices)


def mean_gains(channel: ChannelModel, num_devices: int) -> FloatArray:
    """Nominal mean gain of each device, shape (N,): the channel's `device_mean` or `mean`.

    Raises `ValueError` unless `device_mean` returns positive, finite numbers.
    """
    device_mean = getattr(channel, "device_mean", None)
    if device_mean is None:
        return np.full(num_devices, channel.mean)
    name = f"device_mean of {type(channel).__name__}"
    return per_device(name, device_mean(num_devices), num_devices)


def check_range(what: str, gains: FloatArray, channel: ChannelModel) -> None:
    """Raise `ValueError` if gains are outside the channel's range."""
    # Written so that NaN fails the comparisons.
    if not all_true((gains >= channel.gain_min) & (gains <= channel.gain_max)):
        raise ValueError(
            f"{what} from the channel's gain_min to its gain_max, {channel.gain_min:g} to "
            f"{channel.gain_max:g}, got {gains.min():g} to {gains.max():g}"
        )


def check_gains(
    channel: ChannelModel, gains: object, rounds: int, num_devices: int, *, method: str = "draw"
) -> None:
    """Raise `ValueError` if a user-defined channel returns invalid gains."""
    kind = type(channel).__name__
    shape = (rounds, num_devices)
    if not isinstance(gains, np.ndarray) or gains.shape != shape or gains.dtype.kind != "f":
        got = f"{gains.dtype} of shape {gains.shape}" if isinstance(gains, np.ndarray) else gains
        raise ValueError(f"{method} of {kind} must return floats of shape {shape}, got {got!r}")
    check_range(f"{method} of {kind} must return gains", gains, channel)


def check_channel(channel: Any, num_devices: int) -> None:
    """Raise `ValueError` unless `channel` is a `ChannelModel` with positive, finite gains.

    The draws of user-defined classes are tested.
    """
    members = ("gain_min", "gain_max", "mean", "draw", "sample")
    if isinstance(channel, type) or not all(hasattr(channel, member) for member in members):
        raise ValueError(
            "channel must be a channel model such as ExponentialChannel(), with the members "
            f"{', '.join(members)}, got {quoted(channel)}"
        )
    for name in members[:3]:
        finite_number(f"the channel's {name}", getattr(channel, name))
    if channel.gain_min > channel.gain_max:
        raise ValueError(
            "the channel's gain_min must not exceed its gain_max, "
            f"got {channel.gain_min!r} and {channel.gain_max!r}"
        )
    if not type(channel).__module__.startswith("fl_edge_env."):
        _check_draw(channel, num_devices)


def _check_draw(channel: ChannelModel, num_devices: int) -> None:
    """Raise `ValueError` if one call differs from two successive ones, or samples are invalid."""

    def draw(rng: Generator, rounds: int, **place: Any) -> FloatArray:
        gains = channel.draw(rng, rounds, num_devices, **place)
        check_gains(channel, gains, rounds, num_devices)
        return gains.copy()

    # Another system draws between the two blocks, which must not matter.
    split = np.random.default_rng(0)
    first = draw(split, 1, first_round=0, previous=None)
    whole = draw(np.random.default_rng(0), 4, first_round=0, previous=None)
    rest = draw(split, 3, first_round=1, previous=first[-1])
    if not np.array_equal(whole, np.append(first, rest, axis=0)):
        raise ValueError(
            f"draw of {type(channel).__name__} must give the same gains for 4 rounds as for 1 and "
            "then 3, bit for bit: take random numbers from the given generator only, round by "
            "round, keep no state on the channel, and compute each round as if it were alone"
        )
    sampled = channel.sample(np.random.default_rng(0), 2, num_devices)
    check_gains(channel, sampled, 2, num_devices, method="sample")

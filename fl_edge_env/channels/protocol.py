"""What a scenario needs from a channel: how the gains between devices and server evolve."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fl_edge_env.checks import finite_number, per_device, real_array
from fl_edge_env.typing import FloatArray


class ChannelModel(Protocol):
    """What a scenario needs from a channel; any frozen dataclass with these members will do.

    A channel whose devices have different means has one more member,
    ``device_mean(num_devices)``, which returns the nominal mean gain of each device as an array of
    shape (N,); see `mean_gains`. Without it every device has the channel's `mean`.
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


def mean_gains(channel: ChannelModel, num_devices: int) -> FloatArray:
    """The nominal mean gain of each device.

    Parameters
    ----------
    channel : ChannelModel
        The channel. Where it has no `device_mean`, all devices have its `mean`.
    num_devices : int
        Number of devices N.

    Returns
    -------
    ndarray, shape (N,)

    Raises
    ------
    ValueError
        If `device_mean` of a channel of the user's own returns anything but N positive, finite
        numbers.
    """
    device_mean = getattr(channel, "device_mean", None)
    if device_mean is None:
        return np.full(num_devices, channel.mean)
    name = f"device_mean of {type(channel).__name__}"
    gains = real_array(name, device_mean(num_devices))
    if gains.shape != (num_devices,):
        raise ValueError(f"{name} must have shape ({num_devices},), got shape {gains.shape}")
    return per_device(name, gains, num_devices)


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

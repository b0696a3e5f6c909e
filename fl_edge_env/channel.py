"""Channel models: how the gain between each device and the server evolves over rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

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

    def draw(self, rng: np.random.Generator, rounds: int, num_devices: int) -> FloatArray:
        """Draw the gains of the next `rounds` rounds, shape (rounds, N)."""


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
        if not (math.isfinite(self.mean) and self.mean > 0):
            raise ValueError(f"mean must be positive and finite, got {self.mean!r}")
        if not 0 < self.gain_min < self.gain_max < math.inf:
            raise ValueError(
                "gain_min and gain_max must satisfy 0 < gain_min < gain_max < inf, "
                f"got {self.gain_min!r} and {self.gain_max!r}"
            )
        if self.filter not in ("clip", "resample"):
            raise ValueError(f"filter must be 'clip' or 'resample', got {self.filter!r}")

    def draw(self, rng: np.random.Generator, rounds: int, num_devices: int) -> FloatArray:
        """Draw the gains of the next rounds.

        The draws are consumed round by round, so that splitting a run of rounds over several
        calls gives the same gains as one call.

        Parameters
        ----------
        rng : numpy.random.Generator
            The stream to draw from.
        rounds, num_devices : int
            Shape of the result.

        Returns
        -------
        ndarray, shape (rounds, N)
            Gains in [gain_min, gain_max].
        """
        if self.filter == "clip":
            gain = self.mean * rng.standard_exponential((rounds, num_devices))
        else:
            # Inverse distribution function of the exponential truncated to the interval.
            cdf_min = -math.expm1(-self.gain_min / self.mean)
            cdf_max = -math.expm1(-self.gain_max / self.mean)
            uniform = rng.random((rounds, num_devices))
            gain = -self.mean * np.log1p(-(cdf_min + uniform * (cdf_max - cdf_min)))
        return np.clip(gain, self.gain_min, self.gain_max, out=gain)

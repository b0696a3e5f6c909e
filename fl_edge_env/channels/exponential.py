"""Independent exponential gains, the paper's channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator

from fl_edge_env.channels.protocol import IndependentRounds
from fl_edge_env.checks import finite_number, one_of, set_checked
from fl_edge_env.typing import FloatArray

Filter = Literal["clip", "resample"]


@dataclass(frozen=True)
class ExponentialChannel(IndependentRounds):
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
    filter: Filter = "clip"

    def __post_init__(self) -> None:
        set_checked(self, finite_number, "mean", "gain_min", "gain_max")
        one_of("filter", self.filter, get_args(Filter))
        if self.gain_min >= self.gain_max:
            raise ValueError(
                f"gain_min must be below gain_max, got {self.gain_min!r} and {self.gain_max!r}"
            )

    def truncated(self, share: FloatArray) -> FloatArray:
        """Gains below which these shares of the distribution truncated to the interval are."""
        span = (self.gain_max - self.gain_min) / self.mean  # above gain_min it is memoryless
        return self.gain_min - self.mean * np.log1p(share * math.expm1(-span))

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        if self.filter == "clip":
            gain = self.mean * rng.standard_exponential((count, num_devices))
        else:
            gain = self.truncated(rng.random((count, num_devices)))
        return np.clip(gain, self.gain_min, self.gain_max, out=gain)

"""Independent exponential gains, the paper's channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from fl_edge_env.channels.law import GainLaw, density_nodes, same_for_all, with_atoms
from fl_edge_env.checks import finite_number, one_of, set_checked
from fl_edge_env.typing import FloatArray

Filter = Literal["clip", "resample"]


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
    filter: Filter = "clip"

    def __post_init__(self) -> None:
        set_checked(self, finite_number, "mean", "gain_min", "gain_max")
        one_of("filter", self.filter, get_args(Filter))
        if self.gain_min >= self.gain_max:
            raise ValueError(
                f"gain_min must be below gain_max, got {self.gain_min!r} and {self.gain_max!r}"
            )

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

    def conditional(self, previous: FloatArray) -> GainLaw:
        """See `conditional_law`; always the same, shape (..., N, 26).

        A quadrature rule of the density and, where outliers are clipped, an atom at each end.
        """
        return same_for_all(_law(self), previous)

    def conditional_after(self, previous: FloatArray, age: FloatArray) -> GainLaw:  # noqa: ARG002
        """See `conditional_law_after`; the same, however old the gains are."""
        return self.conditional(previous)


@lru_cache(maxsize=32)
def _law(channel: ExponentialChannel) -> GainLaw:
    """The law of every gain, shape (J,)."""
    low, mean = channel.gain_min, channel.mean
    # Beyond 40 means more lies a share of exp(-40).
    x, weight = density_nodes(np.array(low), np.array(min(channel.gain_max, low + 40.0 * mean)))
    below, inside = 0.0, 1.0
    if channel.filter == "clip":
        below = -math.expm1(-low / mean)
        inside = math.exp(-low / mean) - math.exp(-channel.gain_max / mean)
    return with_atoms(low, x, channel.gain_max, below, weight * np.exp((low - x) / mean), inside)

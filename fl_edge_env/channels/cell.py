"""Users in a cell, with fixed path loss and shadowing, and fading."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator

from fl_edge_env.checks import (
    finite_number,
    finite_or_zero,
    natural_number,
    number_below_one,
    one_of,
    set_checked,
)
from fl_edge_env.typing import FloatArray

Fading = Literal["rayleigh", "rician"]

# Path loss over ten times the distance [dB].
_LOSS_PER_DECADE_DB = 36.7


@dataclass(frozen=True)
class CellChannel:
    """Stationary users in a cell around the server, with different mean gains.

    Each user has a fixed position, uniform over the area of a ring, and fixed shadowing. The path
    loss follows the 3GPP urban micro cell without line of sight [3GPP]_,
    ``36.7 log10(d) + 22.7 + 26 log10(f_c / GHz)`` dB at distance d in metres; only its first term
    matters, as all gains are scaled so that the users' mean gains average to `mean`. The gain of a
    round is the user's mean times the fading power, which has mean one and is clipped to [0.1, 5]
    by default, the paper's interval [0.01, 0.5] divided by its mean of 0.1.

    Parameters
    ----------
    mean : float
        Average of the users' mean gains, before the fading is clipped.
    radius_m, least_distance_m : float
        Outer and inner radius of the ring [m], ``0 < least_distance_m <= radius_m``. The default
        ring spans 14.6 dB of path loss.
    shadowing_db : float
        Standard deviation of the normal shadowing [dB] before truncation, at least zero. Path loss
        and shadowing together are kept between the path losses at the inner and outer radius: with
        more loss, a neighbouring cell would serve the user.
    fading : {"rayleigh", "rician"}
        Without or with line of sight.
    rician_factor : float
        Power of the line of sight over the power of the scattered waves, for ``fading="rician"``
        only.
    persistence : float
        Probability in [0, 1) that a user keeps the fading of the previous round instead of drawing
        a new one; the correlation of a user's gains in successive rounds.
    place_seed : int
        Seed of positions and shadowing, independent of the episode's seed. A user's position does
        not depend on the number of users.
    fading_min, fading_max : float
        Interval to which the fading power is clipped.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    References
    ----------
    .. [3GPP] TR 36.814, "Further advancements for E-UTRA physical layer aspects", table
       B.1.2.1-1. The shadowing of 4 dB is from the same table.
    """

    mean: float = 0.1
    radius_m: float = 250.0
    least_distance_m: float = 100.0
    shadowing_db: float = 4.0
    fading: Fading = "rayleigh"
    rician_factor: float = 4.0
    persistence: float = 0.0
    place_seed: int = 0
    fading_min: float = 0.1
    fading_max: float = 5.0

    def __post_init__(self) -> None:
        set_checked(
            self,
            finite_number,
            "mean",
            "radius_m",
            "least_distance_m",
            "rician_factor",
            "fading_min",
            "fading_max",
        )
        set_checked(self, finite_or_zero, "shadowing_db")
        set_checked(self, number_below_one, "persistence")
        set_checked(self, natural_number, "place_seed")
        one_of("fading", self.fading, get_args(Fading))
        if self.least_distance_m > self.radius_m:
            raise ValueError(
                "least_distance_m must not exceed radius_m, "
                f"got {self.least_distance_m!r} and {self.radius_m!r}"
            )
        if self.fading_min >= self.fading_max:
            raise ValueError(
                "fading_min must be below fading_max, "
                f"got {self.fading_min!r} and {self.fading_max!r}"
            )
        if self.fading == "rayleigh" and self.rician_factor != type(self).rician_factor:
            raise ValueError(
                "rician_factor needs fading='rician', "
                f"got {self.rician_factor!r} with fading={self.fading!r}"
            )

    @property
    def gain_min(self) -> float:
        """Lower bound on all gains, for any set of users."""
        return self.mean * self.fading_min / self._ratio

    @property
    def gain_max(self) -> float:
        """Upper bound on all gains, for any set of users."""
        return self.mean * self.fading_max * self._ratio

    @property
    def _ratio(self) -> float:
        """Ratio of the best possible mean gain to the worst, with a margin for rounding."""
        decades = 0.1 * self._ring_loss_db
        return float(10.0**decades) * (1 + 1e-9) if decades < 300 else math.inf

    @property
    def _ring_loss_db(self) -> float:
        """Path loss at the outer radius less the path loss at the inner one [dB]."""
        return _LOSS_PER_DECADE_DB * math.log10(self.radius_m / self.least_distance_m)

    def distances(self, num_devices: int) -> FloatArray:
        """Distance of each user to the server [m], shape (N,)."""
        # Uniform over the area means a uniform squared radius.
        share = self._places(num_devices)[:, 0]
        inner = self.least_distance_m**2
        outer = self.radius_m**2
        return np.sqrt(inner + share * (outer - inner))

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each user before clipping, shape (N,); their average is `mean`."""
        loss = _LOSS_PER_DECADE_DB * np.log10(self.distances(num_devices) / self.least_distance_m)
        if self.shadowing_db > 0:
            from scipy import special  # here, because it takes a tenth of a second to import

            # Normal truncated to [loss - most, loss], by inverting its distribution function.
            most = self._ring_loss_db
            with np.errstate(over="ignore"):  # tiny shadowing
                low, high = (special.ndtr(end / self.shadowing_db) for end in (loss - most, loss))
            share = self._places(num_devices)[:, 1]
            shadowing = self.shadowing_db * special.ndtri(low + share * (high - low))
            loss = np.clip(loss - shadowing, 0.0, most)  # rounding, or a ring of zero width
        gain = 10.0 ** (-0.1 * loss)
        return self.mean * gain / gain.mean()

    def draw(
        self,
        rng: Generator,
        rounds: int,
        num_devices: int,
        *,
        previous: FloatArray | None = None,
        **_: object,
    ) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        # Only uniform numbers, so that the stream is consumed round by round.
        uniform = rng.random((rounds, 3, num_devices))
        gain = self._gain(uniform[:, :2])
        keep = uniform[:, 2] < self.persistence
        for index, kept in enumerate(keep):
            if previous is not None:
                gain[index, kept] = previous[kept]
            previous = gain[index]
        return gain

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        return self._gain(rng.random((count, 2, num_devices)))

    def _places(self, num_devices: int) -> FloatArray:
        """Uniform numbers for each user's position and shadowing, shape (N, 2)."""
        return np.random.default_rng(self.place_seed).random((num_devices, 2))

    def _gain(self, uniform: FloatArray) -> FloatArray:
        """Gains with new fading, shape (rounds, N), from uniform numbers, shape (rounds, 2, N)."""
        power = -np.log1p(-uniform[:, 0])  # of the scattered waves, exponential
        if self.fading == "rician":
            amplitude = np.sqrt(self.rician_factor)
            phase = 2.0 * np.pi * uniform[:, 1]
            power += amplitude**2 + 2.0 * amplitude * np.sqrt(power) * np.cos(phase)
            power /= 1.0 + self.rician_factor
        np.clip(power, self.fading_min, self.fading_max, out=power)
        return power * self.device_mean(uniform.shape[-1])

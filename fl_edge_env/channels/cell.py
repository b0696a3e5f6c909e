"""Users in a cell: path loss and shadowing that stay, fading that changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import special

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
    """Users at rest in a cell around the server, whose gains differ in the long run.

    Each user has a place, uniform over the area of a ring, and a shadowing, both of which stay.
    The path loss is that of the 3GPP urban micro cell without line of sight [3GPP]_,
    ``36.7 log10(d) + 22.7 + 26 log10(f_c / GHz)`` dB at distance d in metres; only its first term
    counts, as all gains are scaled so that the users' long-run means average to `mean`. The gain
    of a round is the user's mean times the power of the fading, which has mean one and is kept
    in [0.1, 5] by default, as the paper's interval [0.01, 0.5] is to its mean of 0.1.

    Parameters
    ----------
    mean : float
        Average over the users of their mean gains, before the fading is cut.
    radius_m, least_distance_m : float
        Outer and inner radius of the ring [m], ``0 < least_distance_m <= radius_m``. The default
        ring spans 14.6 dB of path loss.
    shadowing_db : float
        Standard deviation of the normal shadowing [dB] before it is cut, at least zero. It is cut
        where the user would lose more than one at the outer radius does without shadowing, who
        would be served by a neighbouring cell, or less than one at the inner radius.
    fading : {"rayleigh", "rician"}
        Without line of sight, or with.
    rician_factor : float
        Power of the line of sight over that of the scattered waves. It belongs to
        ``fading="rician"``, and may not be given otherwise.
    persistence : float
        Probability in [0, 1) that a user keeps the fading of the round before; otherwise the user
        gets a new one. It is the correlation of a user's gains in two successive rounds.
    place_seed : int
        Seed of the places and of the shadowing, which no other seed moves. A user's place does
        not depend on the number of users.
    fading_min, fading_max : float
        The interval in which the power of the fading is kept.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    References
    ----------
    .. [3GPP] TR 36.814, "Further advancements for E-UTRA physical layer aspects", table
       B.1.2.1-1. The shadowing of 4 dB is that table's, too.
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
        positive = ("mean", "radius_m", "least_distance_m", "rician_factor")
        set_checked(self, finite_number, *positive, "fading_min", "fading_max")
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
                "rician_factor belongs to fading='rician', "
                f"got {self.rician_factor!r} with fading={self.fading!r}"
            )

    @property
    def gain_min(self) -> float:
        """A bound below all gains, whoever the other users are."""
        return self.mean * self.fading_min / self._ratio

    @property
    def gain_max(self) -> float:
        """A bound above all gains, whoever the other users are."""
        return self.mean * self.fading_max * self._ratio

    @property
    def _ratio(self) -> float:
        """The best mean gain that can occur over the worst, with some room for rounding."""
        decades = 0.1 * self._ring_loss_db
        return float(10.0**decades) * (1 + 1e-9) if decades < 300 else math.inf

    @property
    def _ring_loss_db(self) -> float:
        """Path loss at the outer radius beyond that at the inner one [dB]."""
        return _LOSS_PER_DECADE_DB * math.log10(self.radius_m / self.least_distance_m)

    def distances(self, num_devices: int) -> FloatArray:
        """Distance of each user to the server [m], shape (N,)."""
        # Areas are uniform where squares of radii are.
        share = self._places(num_devices)[:, 0]
        inner, outer = self.least_distance_m**2, self.radius_m**2
        return np.sqrt(inner + share * (outer - inner))

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each user before the fading is cut, shape (N,); their average is `mean`."""
        loss = _LOSS_PER_DECADE_DB * np.log10(self.distances(num_devices) / self.least_distance_m)
        if self.shadowing_db > 0:
            # A normal number out of [loss - most, loss], by its distribution function.
            most = self._ring_loss_db
            with np.errstate(over="ignore"):  # of a tiny shadowing
                low, high = (special.ndtr(end / self.shadowing_db) for end in (loss - most, loss))
            share = self._places(num_devices)[:, 1]
            shadowing = self.shadowing_db * special.ndtri(low + share * (high - low))
            loss = np.clip(loss - shadowing, 0.0, most)  # rounding, and a ring without a width
        gain = 10.0 ** (-0.1 * loss)
        mean: FloatArray = self.mean * gain / gain.mean()
        return mean

    def draw(
        self,
        rng: np.random.Generator,
        rounds: int,
        num_devices: int,
        *,
        previous: FloatArray | None = None,
        **_: object,
    ) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        # One kind of number only, so that rounds are consumed one after the other.
        uniform = rng.random((rounds, 3, num_devices))
        gain = self._gain(uniform[:, :2])
        keep = uniform[:, 2] < self.persistence
        for index, kept in enumerate(keep):
            if previous is not None:
                gain[index, kept] = previous[kept]
            previous = gain[index]
        return gain

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        return self._gain(rng.random((count, 2, num_devices)))

    def _places(self, num_devices: int) -> FloatArray:
        """Uniform numbers that give each user's place and shadowing, shape (N, 2)."""
        return np.random.default_rng(self.place_seed).random((num_devices, 2))

    def _gain(self, uniform: FloatArray) -> FloatArray:
        """Gains of new fadings, shape (rounds, N), out of uniform numbers, shape (rounds, 2, N)."""
        power = -np.log1p(-uniform[:, 0])  # of the scattered waves, exponential
        if self.fading == "rician":
            amplitude = np.sqrt(self.rician_factor)
            phase = 2.0 * np.pi * uniform[:, 1]
            power += amplitude**2 + 2.0 * amplitude * np.sqrt(power) * np.cos(phase)
            power /= 1.0 + self.rician_factor
        np.clip(power, self.fading_min, self.fading_max, out=power)
        return power * self.device_mean(uniform.shape[-1])

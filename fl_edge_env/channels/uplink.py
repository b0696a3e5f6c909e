"""Measured uplinks, as channel gains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy import special

from fl_edge_env.channels.law import GainLaw, density_nodes, same_for_all, with_atoms
from fl_edge_env.checks import finite_number, natural_number, read_only, set_checked
from fl_edge_env.typing import FloatArray, IntArray

# Mean and standard deviation of the rate of 19 uplinks of Wi-Fi and cellular networks [kbit/s].
# fmt: off
_MEANS = (
    431, 665, 2337, 2547, 2632, 2774, 2974, 3006, 3205, 3286, 3642, 3730, 4040, 4935, 5141,
    5641, 5743, 6279, 6635,
)
_DEVIATIONS = (
    158, 312, 1610, 1089, 1576, 1097, 833, 890, 419, 1018, 1495, 461, 2189, 2767, 2277, 2550,
    1964, 489, 1460,
)
# fmt: on
MEASURED_UPLINKS_BPS = tuple((1e3 * m, 1e3 * d) for m, d in zip(_MEANS, _DEVIATIONS, strict=True))
_MEAN, _DEVIATION = np.array(MEASURED_UPLINKS_BPS).T
# Of the gamma distributions with these means and standard deviations.
_SHAPE, _SCALE = (_MEAN / _DEVIATION) ** 2, _DEVIATION**2 / _MEAN
# The interval of each uplink's rate, as the paper's [0.01, 0.5] is to its mean gain of 0.1.
_LEAST, _MOST = 0.1 * _MEAN, 5.0 * _MEAN
# Nodes of the integral over a rate: the narrowest distribution is as wide as seven of their gaps.
_NODES = 256


def gain_of_rate(
    rate_bps: FloatArray, *, share_hz: float, power_w: float, noise_power_w: float
) -> FloatArray:
    """Channel gain with which a device uploads at a rate [bit/s], the inverse of equation (5).

    A rate was measured at some power in some bandwidth, which are rarely known. With a reference
    for both, ``h = (N0 / p) (2**(r / b) - 1)``; in a system with this noise power a device that
    sends with p in a share of b has the measured rate.
    """
    gain: FloatArray = noise_power_w / power_w * np.expm1(np.log(2.0) * rate_bps / share_hz)
    return gain


@dataclass(frozen=True)
class UplinkChannel:
    """Each device has one of 19 measured uplinks, whose rate changes from round to round.

    The rate of a round is drawn from a gamma distribution with the mean and the standard
    deviation that were measured [FLASH]_, and kept between a tenth of the mean and five times
    the mean. Rounds are independent. A rate is no gain: the gain is the one with which a device
    that sends with `reference_power_w` in a bandwidth of `share_hz` has the rate. Neither was
    measured, so both are assumptions.

    Parameters
    ----------
    share_hz : float
        Bandwidth of one device at the reference [Hz]. With much less than the default the rates
        would need gains far above one.
    reference_power_w : float
        Transmission power at the reference [W], by default the largest of the presets.
    noise_power_w : float
        Total noise power [W], which should be the scenario's.
    place_seed : int
        Seed of the order in which devices get the uplinks. Of 19 successive devices each has
        another one, and a device's uplink does not depend on the number of devices.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    References
    ----------
    .. [FLASH] Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon
       Large-Scale Smartphone Data", WWW 2021; the rates are in its repository.
    """

    share_hz: float = 5e6
    reference_power_w: float = 0.1
    noise_power_w: float = 0.01
    place_seed: int = 0

    def __post_init__(self) -> None:
        set_checked(self, finite_number, "share_hz", "reference_power_w", "noise_power_w")
        set_checked(self, natural_number, "place_seed")
        with np.errstate(over="ignore"):
            bounds = self.gain_min, self.gain_max
        if not (bounds[0] > 0 and bounds[1] < np.inf):
            raise ValueError(
                f"the gains must have positive and finite bounds, got {bounds}: choose another "
                "share_hz, reference_power_w or noise_power_w"
            )

    @property
    def gain_min(self) -> float:
        """Gain at the least rate of the slowest uplink, with some room for rounding."""
        return float(self._gain(_LEAST).min()) * (1 - 1e-9)

    @property
    def gain_max(self) -> float:
        """Gain at the largest rate of the fastest uplink, with some room for rounding."""
        return float(self._gain(_MOST).max()) * (1 + 1e-9)

    @property
    def mean(self) -> float:
        """Mean gain over the 19 uplinks."""
        return float(self._mean_gain.mean())

    def uplinks(self, num_devices: int) -> IntArray:
        """Index into `MEASURED_UPLINKS_BPS` of each device's uplink, shape (N,)."""
        rng, count = np.random.default_rng(self.place_seed), len(_MEAN)
        turns = np.tile(np.arange(count), (-(-num_devices // count), 1))
        return rng.permuted(turns, axis=1).ravel()[:num_devices]

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,)."""
        return self._mean_gain[self.uplinks(num_devices)]

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
        uplink = self.uplinks(num_devices)
        rate = _SCALE[uplink] * rng.standard_gamma(_SHAPE[uplink], (rounds, num_devices))
        return self._gain(np.clip(rate, _LEAST[uplink], _MOST[uplink], out=rate))

    def sample(self, rng: np.random.Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        return self.draw(rng, count, num_devices)

    def conditional(self, previous: FloatArray) -> GainLaw:
        """See `conditional_law`; always that of the device's uplink, shape (..., N, 26).

        A quadrature rule of the density of the rate, and an atom at each end of its interval.
        """
        uplink = self.uplinks(np.shape(previous)[-1])
        rate, probability = _rate_laws()
        return same_for_all(GainLaw(self._gain(rate[uplink]), probability[uplink]), previous)

    def _gain(self, rate: FloatArray) -> FloatArray:
        return gain_of_rate(
            rate,
            share_hz=self.share_hz,
            power_w=self.reference_power_w,
            noise_power_w=self.noise_power_w,
        )

    @cached_property
    def _mean_gain(self) -> FloatArray:
        """Mean gain h(r) of each uplink: h at its least rate and the integral of h' P(R > r)."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = 0.5 * (_MOST - _LEAST)[:, None]
        rate = _LEAST[:, None] + half * (1.0 + nodes)
        above = special.gammaincc(_SHAPE[:, None], rate / _SCALE[:, None])
        slope = np.log(2.0) / self.share_hz
        rise = slope * (self._gain(rate) + self.noise_power_w / self.reference_power_w)
        mean: FloatArray = self._gain(_LEAST) + np.sum(half * weights * rise * above, axis=1)
        return read_only(mean)


@cache
def _rate_laws() -> GainLaw:
    """The law of each uplink's rate [bit/s], shape (19, J)."""
    # Beyond these ends lies nothing that counts, or an atom.
    low = np.maximum(_LEAST, _SCALE * special.gammaincinv(_SHAPE, 1e-12))
    high = np.minimum(_MOST, _SCALE * special.gammainccinv(_SHAPE, 1e-12))
    rate, weight = density_nodes(low, high)
    ratio = rate / ((_SHAPE - 1.0) * _SCALE)[:, None]
    # The density over that at its peak, which does not overflow.
    density = np.exp((_SHAPE[:, None] - 1.0) * (np.log(ratio) - ratio + 1.0))
    below = special.gammainc(_SHAPE, _LEAST / _SCALE)
    inside = 1.0 - below - special.gammaincc(_SHAPE, _MOST / _SCALE)
    return with_atoms(_LEAST, rate, _MOST, below, weight * density, inside)

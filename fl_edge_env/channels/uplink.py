"""Measured uplinks, converted to channel gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from fl_edge_env.channels.protocol import IndependentRounds
from fl_edge_env.checks import (
    finite_number,
    natural_number,
    per_device,
    read_only,
    real_array,
    set_checked,
)
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
# Limits of user-defined standard deviations over their means; the list above has 0.08 to 0.69.
LEAST_DEVIATION = 0.03
MOST_DEVIATION = 2.0
# Nodes of the integral over a rate: their spacing resolves the narrowest distribution.
_NODES = 256


@dataclass(frozen=True, eq=False)
class RateReference:
    """The bandwidth and the power at which rates were measured, which are rarely known."""

    share_hz: float = 5e6
    reference_power_w: float = 0.1
    noise_power_w: float = 0.01

    def __post_init__(self) -> None:
        set_checked(self, finite_number, "share_hz", "reference_power_w", "noise_power_w")

    def gain_of_rate(self, rate_bps: FloatArray) -> FloatArray:
        """Channel gain with which a device uploads at a rate [bit/s], the inverse of equation (5).

        ``h = (N0 / p) (2**(r / b) - 1)``, with the power p and bandwidth b of the reference. In a
        system with this noise power, a device that transmits with p in a bandwidth of b has the
        measured rate.
        """
        with np.errstate(over="ignore"):  # a later check rejects infinite gains by name
            scale = self.noise_power_w / self.reference_power_w
            return scale * np.expm1(np.log(2.0) * rate_bps / self.share_hz)


@dataclass(frozen=True)
class UplinkChannel(IndependentRounds, RateReference):
    """Uplinks with a measured mean and standard deviation of the rate.

    In each round a device's rate is drawn from a gamma distribution with its mean and standard
    deviation, and clipped to between a tenth of the mean and five times the mean. For deviations of
    up to the mean, clipping moves the mean by less than 0.2 % and the deviation by less than 4 %;
    for a deviation of twice the mean they become 0.89 and 1.35 times the mean.

    `mean_bps` and `deviation_bps` describe one uplink for each device; the default is 19 measured
    uplinks [FLASH]_. A rate is converted to the gain with which a device that transmits with
    `reference_power_w` in a bandwidth of `share_hz` has this rate. Neither this power nor this
    bandwidth was measured for the 19 uplinks, so both defaults are assumptions.

    Parameters
    ----------
    share_hz : float
        Reference bandwidth of one device [Hz]. If it is far below the default, the rates of the 19
        uplinks need gains far above one.
    reference_power_w : float
        Reference transmission power [W], by default the largest in the presets.
    noise_power_w : float
        Noise power in a bandwidth of `share_hz` [W]. It should be `share_hz` times the scenario's
        `noise_density_w_hz`, or its `noise_power_w` if it has no density.
    place_seed : int
        Seed of the order in which devices get the 19 uplinks. Each group of 19 successive devices
        has all of them, and a device's uplink does not depend on the number of devices.
    mean_bps, deviation_bps : sequence of float, length L
        Means and standard deviations of L uplinks [bit/s] that replace the 19. Device n has uplink
        ``n mod L``, and L divides N. A deviation must be at least 3 % of its mean, which the
        quadrature can resolve, and at most twice the mean.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or `mean_bps` has another number of devices than the
        scenario.

    References
    ----------
    .. [FLASH] Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon
       Large-Scale Smartphone Data", WWW 2021; the rates are in its repository.
    """

    place_seed: int = 0
    mean_bps: Sequence[float] = ()
    deviation_bps: Sequence[float] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        set_checked(self, natural_number, "place_seed")
        mean = real_array("mean_bps", self.mean_bps)
        deviation = real_array("deviation_bps", self.deviation_bps)
        if mean.ndim != 1 or deviation.shape != mean.shape:
            raise ValueError(
                "mean_bps and deviation_bps must be sequences of equal length, one number for each "
                f"device, got shapes {mean.shape} and {deviation.shape}"
            )
        per_device("mean_bps", mean, mean.size)
        wrong = ~((deviation >= LEAST_DEVIATION * mean) & (deviation <= MOST_DEVIATION * mean))
        if wrong.any():
            device = int(wrong.argmax())
            raise ValueError(
                f"deviation_bps must be from {LEAST_DEVIATION:g} to {MOST_DEVIATION:g} times "
                "mean_bps (narrower distributions are not resolved, wider ones mostly clipped), "
                f"got {float(deviation[device])!r} with the mean {float(mean[device])!r}, first "
                f"at device {device}"
            )
        vars(self).update(mean_bps=tuple(mean.tolist()), deviation_bps=tuple(deviation.tolist()))

    @property
    def gain_min(self) -> float:
        """Gain at the least rate of the slowest uplink, with a margin for rounding."""
        return float(self.gain_of_rate(self._rates[2]).min()) * (1 - 1e-9)

    @property
    def gain_max(self) -> float:
        """Gain at the largest rate of the fastest uplink, with a margin for rounding."""
        return float(self.gain_of_rate(self._rates[3]).max()) * (1 + 1e-9)

    @property
    def mean(self) -> float:
        """Mean gain over the uplinks."""
        return float(self._mean_gain.mean())

    def uplinks(self, num_devices: int) -> IntArray:
        """Index of each device's uplink, shape (N,): into `mean_bps` or `MEASURED_UPLINKS_BPS`."""
        count = self._rates.shape[1]
        if self.mean_bps:
            if num_devices % count:
                raise ValueError(
                    f"mean_bps has the rates of {count} devices, and the scenario {num_devices} "
                    f"devices: set num_devices={count}, or a multiple"
                )
            return np.resize(np.arange(count), num_devices)
        rng = np.random.default_rng(self.place_seed)
        turns = np.tile(np.arange(count), (-(-num_devices // count), 1))
        return rng.permuted(turns, axis=1).ravel()[:num_devices]

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,)."""
        return self._mean_gain[self.uplinks(num_devices)]

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        uplink = self.uplinks(num_devices)
        shape, scale, least, most = self._rates[:, uplink]
        rate = scale * rng.standard_gamma(shape, (count, num_devices))
        return self.gain_of_rate(np.clip(rate, least, most, out=rate))

    @cached_property
    def _rates(self) -> FloatArray:
        """Gamma distributions of the uplinks' rates, and the intervals to which they are clipped.

        Rows are shape, scale, least and largest rate [bit/s]; columns are uplinks.
        """
        own = zip(self.mean_bps, self.deviation_bps, strict=True)
        mean, deviation = np.array(list(own) or MEASURED_UPLINKS_BPS).T
        shape = (mean / deviation) ** 2
        scale = deviation**2 / mean
        # Each uplink's interval: the paper's [0.01, 0.5] divided by its mean gain of 0.1.
        return read_only(np.stack([shape, scale, 0.1 * mean, 5.0 * mean]))

    @cached_property
    def _mean_gain(self) -> FloatArray:
        """Mean gain h(r) of each uplink: h at its least rate plus the integral of h' P(R > r)."""
        from scipy import special  # here, because it takes a tenth of a second to import

        shape, scale, least, most = self._rates
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = 0.5 * (most - least)[:, None]
        rate = least[:, None] + half * (1.0 + nodes)
        above = special.gammaincc(shape[:, None], rate / scale[:, None])
        slope = np.log(2.0) / self.share_hz
        rise = slope * (self.gain_of_rate(rate) + self.noise_power_w / self.reference_power_w)
        return read_only(self.gain_of_rate(least) + np.sum(half * weights * rise * above, axis=1))

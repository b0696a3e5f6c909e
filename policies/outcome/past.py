"""The coming gains that a policy can expect if it knows only the past."""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env import CellChannel, Scenario
from fl_edge_env.typing import FloatArray

# Imagined uploads in a device's estimate.
_PRIOR = 3.0
# Longest upload of a round over the mean, as far as prices count it: with more, rounds take longer.
_LONGEST = 1.05
# Least number of gains in a sample of all devices, and number of equally likely levels for it.
_SAMPLES = 100_000
_LEVELS = 200


def expected_gain(gain: FloatArray, age: FloatArray, scenario: Scenario) -> FloatArray:
    """Gain at which an upload at full power takes the mean time of the coming upload, (..., N).

    A device had the `gain` in the round `age` rounds before the coming one; infinity if its gain is
    not known. With any frequency and power, the mean time and energy in the coming round are at
    least those at the expected gain. Raises `ValueError` if the channel is not a `CellChannel` with
    Rayleigh fading.

    Proof. The decision does not depend on the coming fading, and energies and times grow with
    upload times, so mean upload times must be at least those at the expected gain. They are
    proportional to ``phi(snr h)`` with ``phi(x) = 1 / ln(1 + x)``, and equal at full power. At a
    fraction a of it, ``E phi(a X) >= phi(a phi^-1(E phi(X)))`` is needed for the random ``X = snr
    h``. This is Jensen's inequality if ``k(y) = phi(a phi^-1(y))`` is convex. At ``y = phi(x)`` its
    slope is ``a phi'(a x) / phi'(x)``. As x falls when y rises, the slope must fall with x, which
    it does if ``r = -x phi''(x) / phi'(x)`` falls. With ``l = ln(1 + x)``, ``r = (1 - exp(-l))
    (1 + 2 / l)``, whose derivative is at most zero because ``2 exp(l) >= 2 + 2 l + l^2``. The mean
    of a round's longest time is at least the longest mean time.
    """
    channel = scenario.channel
    if not isinstance(channel, CellChannel) or channel.fading != "rayleigh":
        raise ValueError(f"channel must be a CellChannel with Rayleigh fading, got {channel!r}")
    fading, probability = new_fading(channel)
    snr = scenario.p_max / scenario.noise_power_w
    anew = snr[:, None] * channel.device_mean(scenario.num_devices)[:, None] * fading
    mean = (probability / np.log1p(anew)).sum(-1)
    return _gain_of_mean(gain, channel.persistence**age, mean, snr)


def _gain_of_mean(
    gain: FloatArray, stays: FloatArray, mean: FloatArray, snr: FloatArray
) -> FloatArray:
    """Gain of the mean upload time if the gain stays with a probability.

    `mean` is the mean of ``1/log1p(snr h)`` over new gains h, which is proportional to the time.
    """
    time = stays / np.log1p(snr * gain) + (1.0 - stays) * mean
    return np.expm1(1.0 / time) / snr


class Estimate:
    """Upload times that a server expects if it sees only participants' gains.

    The server does not know a device's mean gain. It knows the distribution of gains over all
    devices together and, if the channel states it, the `persistence`: the probability that a gain
    stays for another round. The estimated mean time of a device's uploads, at full power and with
    new gains, is the mean over its new gains and three imagined uploads at the mean of all devices.
    A measured gain is new if it differs from the device's last one, or if gains do not persist.

    Attributes
    ----------
    count : ndarray, shape (N,) or (B, N)
        New gains and imagined uploads so far.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._persistence = getattr(scenario.channel, "persistence", 0.0)
        self._snr = scenario.p_max / scenario.noise_power_w
        # K equally slow devices share a round, which takes as long as the longest upload.
        self._seconds = _LONGEST * math.log(2.0) * scenario.upload_bits / scenario.bandwidth_hz
        rounds = math.ceil(_SAMPLES / scenario.num_devices)
        gains = scenario.channel.sample(np.random.default_rng(0), rounds, scenario.num_devices)
        levels = np.quantile(gains, (np.arange(_LEVELS) + 0.5) / _LEVELS)
        self._pooled = np.mean([1.0 / np.log1p(self._snr * level) for level in levels], axis=0)
        self.reset()

    def reset(self) -> None:
        """Forget all measurements."""
        self._mean = self._pooled
        self._last = np.zeros_like(self._pooled)
        self.count = np.full_like(self._pooled, _PRIOR)

    def measure(self, gain: FloatArray, age: FloatArray) -> None:
        """Count the gains of age 1, which were measured in the last round."""
        new = (age == 1.0) & ((gain != self._last) | (self._persistence == 0.0))
        self.count = self.count + new
        self._mean = self._mean + new * (1.0 / np.log1p(self._snr * gain) - self._mean) / self.count
        self._last = np.where(age == 1.0, gain, self._last)

    def expected_gain(self, gain: FloatArray, age: FloatArray) -> FloatArray:
        """Gain at which an upload takes the time expected; see the function `expected_gain`."""
        return _gain_of_mean(gain, self._persistence**age, self._mean, self._snr)

    @property
    def head_start(self) -> FloatArray:
        """Extra price of slow devices: mean upload time above all devices' mean, over K [s]."""
        return self._seconds * (self._mean - self._pooled)


def new_fading(channel: CellChannel) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a quadrature over Rayleigh fading, to 14 digits in the default interval.

    The fading power is exponential with mean 1, clipped to its interval.
    """
    ends = np.array([channel.fading_min, channel.fading_max])
    at_ends = np.array([-np.expm1(-ends[0]), np.exp(-ends[1])])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = 0.5 * np.log(ends[1] / ends[0])  # of the interval of the fading's logarithm
    between = ends[0] * np.exp(half * (1.0 + nodes))
    inside = half * weights * between * np.exp(-between)
    return np.concatenate([ends, between]), np.concatenate([at_ends, inside])

"""Estimates of the coming round's gains from those that participants have measured.

A gain is taken for a device's mean times a fading of mean one. The mean is unknown, and never read
from the channel: what is used is the channel's common mean over all devices, how the fading varies
(`fl_edge_env.channels.law.FadingLaw`), the interval of all gains, and what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fl_edge_env import Scenario
from fl_edge_env.channels import GainLaw
from fl_edge_env.channels.law import FadingLaw, unknown_fading
from fl_edge_env.checks import finite_number, real_array
from fl_edge_env.typing import BoolArray, FloatArray

_STATE = ("shape", "scale", "gain", "age")


class GainEstimator:
    """A posterior of each device's mean gain, and the law of its coming gain.

    With exponential fading a gain h of mean m has the density ``exp(-h / m) / m``. The prior of m
    is the inverse gamma distribution of shape a and scale b, with density proportional to
    ``m^-(a+1) exp(-b / m)`` and mean ``b / (a - 1)``. Each measured fading that is new adds 1 to a
    and the gain to b (Gelman et al., "Bayesian data analysis", 3rd edition, section 2.6). For
    other fading the posterior is an approximation: too cautious for that of a line of sight.

    Where fading stays, a measurement may repeat the one before. One that differs is new. One that
    is equal, A rounds later, is new with the probability ``(1 - P^A) r / ((1 - P^A) r + P^A)``,
    with which it then counts: P is the persistence and r the probability that two fadings are
    equal.

    Parameters
    ----------
    scenario : Scenario
        The system. Of its channel are read `mean`, `gain_min`, `gain_max` and, where it has it,
        ``fading_around_mean()``; without that, fading is independent and exponential, kept in
        [0.1, 5]. No device's own mean is read.
    prior_shape : float
        Shape a of the prior, above one. Its mean is the channel's `mean`. It is worth as much as
        a measurements.

    Attributes
    ----------
    shape, scale : ndarray, shape (..., N)
        Of the posterior.
    gain, age : ndarray, shape (..., N)
        The newest measurement, and the rounds since; the common mean and infinite before the
        first.

    Raises
    ------
    ValueError
        If `prior_shape` is not above one.
    """

    def __init__(self, scenario: Scenario, *, prior_shape: float = 2.0) -> None:
        prior_shape = finite_number("prior_shape", prior_shape)
        if not prior_shape > 1:
            raise ValueError(f"prior_shape must be above one, got {prior_shape!r}")
        self._channel = scenario.channel
        self._num_devices = scenario.num_devices
        self._prior = prior_shape, (prior_shape - 1.0) * scenario.channel.mean
        told = getattr(scenario.channel, "fading_around_mean", None)
        self._fading: FadingLaw = unknown_fading() if told is None else told()
        self.reset(())

    def reset(self, batch: tuple[int, ...]) -> None:
        """Forget all measurements; the batch is () for one system, (B,) for several."""
        shape = (*batch, self._num_devices)
        self.shape, self.scale = (np.full(shape, value) for value in self._prior)
        self.gain, self.age = np.full(shape, float(self._channel.mean)), np.full(shape, np.inf)

    def update(self, gain: FloatArray, measured: BoolArray) -> None:
        """Learn what the last round has measured; to be called once in every round.

        Both have shape (..., N); of the gains only those that were measured count.
        """
        news = np.where(measured, self._news(gain), 0.0)
        self.shape = self.shape + news
        self.scale = self.scale + np.where(measured, news * gain, 0.0)
        self.gain = np.where(measured, gain, self.gain)
        self.age = np.where(measured, 1.0, self.age + 1.0)

    def _news(self, gain: FloatArray) -> FloatArray:
        """Probability that each device's fading is another one than when it was measured last."""
        persistence, _, repeats = self._fading
        kept = persistence**self.age  # up to the round that was measured
        new = (1.0 - kept) * repeats
        with np.errstate(invalid="ignore"):
            again: FloatArray = np.where(kept > 0.0, new / (new + kept), 1.0)
        return np.where(gain == self.gain, again, 1.0)

    @property
    def persistence(self) -> float:
        """Probability that a device keeps the fading of the round before."""
        return self._fading.persistence

    @property
    def kept(self) -> FloatArray:
        """Probability that the coming gain is the newest measurement, shape (..., N)."""
        kept: FloatArray = self._fading.persistence**self.age
        return kept

    def sample_mean(self, uniform: FloatArray) -> FloatArray:
        """A sample of each device's mean gain from its posterior, shape (..., N).

        The posterior's distribution function is inverted at uniform numbers in [0, 1).
        """
        sample: FloatArray = self.scale / special.gammainccinv(self.shape, uniform)
        return np.clip(sample, self._channel.gain_min, self._channel.gain_max)

    def law(self) -> GainLaw:
        """The law of the coming gains.

        With probability `kept` it is the newest measurement, which is the first node. Otherwise
        it is a new fading times the mean, of which two values stand for the posterior: those that
        give the first three moments of ``1 / mean`` exactly (Gauss and Laguerre's rule), on which
        times mainly depend.
        """
        return self._law(self.kept)

    def long_run_law(self) -> GainLaw:
        """The law of a gain of a round far ahead; see `law`."""
        return self._law(np.zeros_like(self.age))

    def _law(self, kept: FloatArray) -> GainLaw:
        # Nodes and weights of the gamma distribution of scale / mean.
        root = np.sqrt(self.shape + 1.0)[..., None]
        sign = np.array([-1.0, 1.0])
        mean = self.scale[..., None] / (root**2 + sign * root)
        weight = 0.5 * (1.0 - sign / root)
        power, probability = self._fading.law
        shape = (*self.age.shape, 2 * power.size)
        new = (mean[..., None] * power).reshape(shape)
        likely = (weight[..., None] * probability).reshape(shape) * (1.0 - kept[..., None])
        gain = np.concatenate([self.gain[..., None], new], axis=-1)
        np.clip(gain, self._channel.gain_min, self._channel.gain_max, out=gain)
        return GainLaw(gain, np.concatenate([kept[..., None], likely], axis=-1))

    def state(self) -> dict[str, NDArray[Any]]:
        """The posterior and the newest measurements, by name; see `policies.Policy.state`."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` gave, for as many devices and systems."""
        for name in _STATE:
            if name not in state:
                raise ValueError(f"state must hold {name}, got {list(state)}")
            values = real_array(name, state[name])
            if values.shape != self.age.shape or not np.all(values > 0):
                raise ValueError(
                    f"{name} must be positive and have shape {self.age.shape}, "
                    f"got shape {values.shape}"
                )
            setattr(self, name, values.copy())

"""Uploads of a cohort that shares the band: their energies, and the parts that make it least.

An upload of M bits in t seconds with b hertz takes ``p t = n x (e^y - 1)`` joules, ``x = t b``.
Here ``y = M ln(2) / x`` is the logarithm of one plus the signal-to-noise ratio, and n is the
density of the noise over the gain. The energy is convex and decreasing in t and b together, as it
is so in ``sqrt(t b)``, which is concave. Its derivative in x is ``-n g(y)``, where ``g(y) = 1 +
(y - 1) e^y`` is inverted by Lambert's W: so the best part of the band at a price has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fl_edge_env import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.resources import TakingPart, finish_together, static_resources
from policies.state import check_state

# Relative precision of a root of a function that needs none itself, and the most steps to one.
_PRECISION, _STEPS = 1e-12, 200


class Cohort:
    """The devices of a cohort, or of a batch of cohorts, gathered in arrays of shape (..., k).

    Rows that name fewer devices than others are filled up with their first; `real` tells who is
    there. Arguments and results of the methods have one entry for each gathered device, too.

    Parameters
    ----------
    gain : ndarray, shape (..., N)
        Channel gains.
    participates : ndarray of bool, shape (..., N)
        The cohort, at least one device in each row.
    scenario : Scenario
        The system.
    """

    def __init__(self, gain: FloatArray, participates: BoolArray, scenario: Scenario) -> None:
        self.scenario, self.shape = scenario, participates.shape
        # As many places whatever the other cohorts of a batch: results then are, to the bit.
        size = min(scenario.cohort_size, scenario.num_devices)
        if np.count_nonzero(participates, axis=-1).max() > size:
            size = scenario.num_devices
        # Stable: those who take part come first, in their order.
        order = np.argsort(~participates, axis=-1, kind="stable")[..., :size]
        self.real: BoolArray = np.take_along_axis(participates, order, axis=-1)
        self.index: IntArray = np.where(self.real, order, order[..., :1])
        density = scenario.noise_power_w * scenario.cohort_size / scenario.bandwidth_hz
        self.noise = density / self.take(gain)  # [W/Hz]
        self.nats = scenario.upload_bits * math.log(2.0)
        (
            self.cycles,
            self.capacitance,
            self.waiting,
            self.f_min,
            self.f_max,
            self.p_min,
            self.p_max,
        ) = (
            self.take(values)
            for values in (
                scenario.cycles_per_round,
                scenario.capacitance,
                scenario.waiting_time,
                scenario.f_min,
                scenario.f_max,
                scenario.p_min,
                scenario.p_max,
            )
        )

    def take(self, values: ArrayLike) -> FloatArray:
        """The entries of the cohort in an array of shape (N,) or (..., N)."""
        every = np.broadcast_to(np.asarray(values, dtype=float), self.shape)
        return np.take_along_axis(every, self.index, axis=-1)

    def put(self, values: FloatArray, others: ArrayLike) -> FloatArray:
        """An array of shape (..., N) with these entries of the cohort, and what others have."""
        every = np.array(np.broadcast_to(np.asarray(others, dtype=float), self.shape))
        rows = np.nonzero(self.real)[:-1]
        every[(*rows, self.index[self.real])] = values[self.real]
        return every

    def total(self, values: FloatArray) -> FloatArray:
        """The sum over the cohort, shape (..., 1)."""
        total: FloatArray = np.where(self.real, values, 0.0).sum(axis=-1, keepdims=True)
        return total

    def largest(self, values: FloatArray) -> FloatArray:
        """The maximum over the cohort, shape (..., 1)."""
        largest: FloatArray = np.where(self.real, values, -np.inf).max(axis=-1, keepdims=True)
        return largest

    def log_snr(self, window: FloatArray, band: FloatArray) -> FloatArray:
        """The logarithm y with which an upload takes a time [s] with a part of the band [Hz]."""
        return self.nats / (window * band)

    def power(self, window: FloatArray, band: FloatArray) -> FloatArray:
        """The power with which an upload takes a time, moved to its range [W]."""
        with np.errstate(over="ignore"):
            needed = self.noise * band * np.expm1(self.log_snr(window, band))
        return np.clip(needed, self.p_min, self.p_max)

    def energy(self, window: FloatArray, band: FloatArray) -> FloatArray:
        """Energy of an upload that takes a time, at whatever power [J]."""
        with np.errstate(over="ignore"):
            snr = np.expm1(self.log_snr(window, band))
        return self.noise * window * band * snr

    def slope(self, window: FloatArray, band: FloatArray) -> FloatArray:
        """What a second times hertz more would save of that energy [W/Hz]."""
        y = self.log_snr(window, band)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = y * np.exp(y) - np.expm1(y)
        return self.noise * np.where(y > 600.0, np.inf, growth)

    def band_at_power(self, window: FloatArray, power: FloatArray) -> FloatArray:
        """The part of the band with which an upload takes a time at a power [Hz].

        With G the rate that is needed over the largest that any band gives, the signal-to-noise
        ratio is the root of ``ln(1 + x) / x = G``; infinite where there is none.
        """
        with np.errstate(divide="ignore", over="ignore"):
            needed = self.nats * self.noise / (power * window)
        possible = (needed > 0) & (needed < 1)
        G = np.where(possible, needed, 0.5)
        # A series where the argument of W rounds to the end of its range.
        gap, G = 1.0 - G, np.minimum(G, 1.0 - 1e-6)
        exact = -_lambert(-G * np.exp(-G), -1) / G - 1.0
        snr = np.where(gap < 1e-6, gap * (2.0 + gap * 8.0 / 3.0), exact)
        band: FloatArray = power / (self.noise * np.maximum(snr, 1e-100))
        return np.where(possible, band, np.inf)

    def band_at_price(
        self, window: FloatArray, weight: FloatArray, price: FloatArray
    ) -> FloatArray:
        """The part that minimises ``weight * energy + price * band`` with a power in its range."""
        with np.errstate(divide="ignore", over="ignore"):
            growth = np.minimum(price / (weight * window * self.noise), 1e300)
        # A series where the argument of W rounds to the end of its range.
        root_2 = np.sqrt(2.0 * np.minimum(growth, 1e-8))
        near_zero = root_2 * (1.0 - root_2 * (1.0 / 3.0 - root_2 * 11.0 / 72.0))
        exact = 1.0 + _lambert((np.maximum(growth, 1e-8) - 1.0) / math.e, 0)
        y = np.where(growth < 1e-8, near_zero, exact)
        band = self.nats / (window * np.maximum(y, 1e-100))
        least = self.band_at_power(window, self.p_max)
        most = self.band_at_power(window, self.p_min)
        return np.minimum(np.clip(band, least, most), self.scenario.bandwidth_hz)

    def worth_of_time(self, window: FloatArray, band: FloatArray, price: FloatArray) -> FloatArray:
        """Derivative of the energy of an upload, and of what it pays for band, in its time [W].

        Of a device that has the part which `split` gives it at this price. Where its power is
        within its range, or it has the whole band, the part stays as it is to first order; at an
        end of the range it moves so that the power stays.
        """
        power, slope = self.power(window, band), self.slope(window, band)
        lowest, highest = power <= self.p_min * (1 + 1e-9), power >= self.p_max * (1 - 1e-9)
        if self.scenario.bandwidth_split == "equal":  # done before its time at the least power
            return np.where(lowest & ~highest, 0.0, -band * slope)
        bound = power - price * (power + band * slope) / (window * slope)
        whole = band >= self.scenario.bandwidth_hz * (1 - 1e-9)
        wants_more = whole & (window * slope >= price)
        return np.where((lowest | highest) & ~wants_more, bound, -band * slope)

    def split(self, window: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The parts of the band that minimise the weighted energy of uploads in given times.

        Each device finishes exactly in its time, with a power in its range. All have the
        equal part in an equal system.

        Returns
        -------
        band : ndarray, shape (..., k)
            Parts [Hz], which need not exhaust the band where all have the least power.
        price : ndarray, shape (..., 1)
            The price of the band [J/Hz]: zero in an equal system and where band is left.
        """
        whole = self.scenario.bandwidth_hz
        if self.scenario.bandwidth_split == "equal":
            equal = np.full(window.shape, whole / self.scenario.cohort_size)
            return equal, np.zeros((*window.shape[:-1], 1))
        least = self.band_at_power(window, self.p_max)
        most = np.minimum(self.band_at_power(window, self.p_min), whole)

        def price_of(band: FloatArray) -> FloatArray:
            return np.where(self.real, weight * window * self.slope(window, band), np.nan)

        with np.errstate(invalid="ignore"):
            high = np.nanmax(price_of(np.minimum(least, whole)), axis=-1, keepdims=True)
            low = np.nanmin(price_of(most), axis=-1, keepdims=True)
        plenty = self.total(most) <= whole

        def excess(log_price: FloatArray) -> FloatArray:
            used = self.total(self.band_at_price(window, weight, np.exp(log_price))) / whole
            # Where all have the largest power, it stays where it is at any higher price.
            return np.where(np.abs(used - 1.0) < 1e-11, 0.0, used - 1.0)

        logarithm = root(
            excess,
            np.log(np.maximum(low, 1e-300)) - 1e-9,
            np.log(np.clip(high, 1e-300, 1e300)) + 1e-9,
        )
        price = np.where(plenty, 0.0, np.exp(logarithm))
        return self.band_at_price(window, weight, price), price

    def together(self, power: FloatArray, ready: FloatArray) -> tuple[FloatArray, FloatArray]:
        """When the cohort can finish together, and with which parts of the band.

        Parameters
        ----------
        power : ndarray, shape (..., k)
            Powers [W].
        ready : ndarray, shape (..., k)
            When devices begin to upload [s].

        Returns
        -------
        time : ndarray, shape (..., 1)
            The time [s].
        band : ndarray, shape (..., k)
            Parts of the band [Hz]. In an equal system all are equal, and the time is that of the
            last.
        """
        whole, size = self.scenario.bandwidth_hz, self.scenario.cohort_size
        if self.scenario.bandwidth_split == "equal":
            band = np.full(ready.shape, whole / size)
            return self.largest(ready + self.upload_time(power, band)), band
        snr = power / (self.noise * whole)
        time, share = finish_together(ready, snr, self.nats / whole, self.real)
        # Whoever fills up a place has a part, too, so that nothing is divided by zero.
        return time, whole * np.where(self.real, share, 1.0)

    def upload_time(self, power: FloatArray, band: FloatArray) -> FloatArray:
        """Time of uploads at given powers with given parts of the band [s]."""
        with np.errstate(divide="ignore"):
            time: FloatArray = self.nats / (band * np.log1p(power / (self.noise * band)))
        return time


def root(
    function: Callable[[FloatArray], FloatArray],
    low: FloatArray,
    high: FloatArray,
    precision: float = _PRECISION,
) -> FloatArray:
    """The root of each entry of a monotone function, by the method of Chandrupatla (1997).

    Where the function has the same sign at both ends, the result is the end at which it is smaller.
    """
    a, b = np.broadcast_arrays(low, high)
    fa, fb = function(a), function(b)
    c, fc, t = a, fa, np.full(a.shape, 0.5)
    live = np.sign(fa) * np.sign(fb) < 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(_STEPS):
            # An entry that is found stays as it is, whatever the others need.
            live = live & (np.abs(b - a) > precision * np.maximum(np.abs(a), np.abs(b)))
            if not live.any():
                break
            x = np.where(live, a + t * (b - a), a)
            fx = function(x)
            same, zero = live & (np.sign(fx) == np.sign(fa)), fx == 0
            c, fc = (
                np.where(live, np.where(same, a, b), c),
                np.where(live, np.where(same, fa, fb), fc),
            )
            b, fb = np.where(live & ~same, a, b), np.where(live & ~same, fa, fb)
            a, fa = np.where(live, x, a), np.where(live, fx, fa)
            live = live & ~zero
            # Inverse quadratic interpolation where it is safe, else the middle.
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            step = fa / (fb - fa) * fc / (fb - fc)
            step += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            good = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(step)
            least = np.minimum(0.25 * precision * np.abs(a / (b - a)), 0.5)
            t = np.clip(np.where(good, step, 0.5), least, 1 - least)
    return np.where(np.abs(fa) < np.abs(fb), a, b)


def _lambert(value: Any, branch: int) -> FloatArray:
    """A real branch of Lambert's W."""
    real: FloatArray = special.lambertw(value, branch).real
    return real


def decide_for_cohort(
    decide: Callable[[Cohort], tuple[FloatArray, FloatArray, FloatArray]],
    channel_gain: FloatArray,
    queue: FloatArray,
    scenario: Scenario,
    taking_part: TakingPart,
) -> tuple[FloatArray, ...]:
    """What a `ResourceRule` gives, out of f, p and parts of the band of a cohort.

    Devices outside the cohort have the least f and p, and while it is unknown, all have static
    ones.
    """
    gain, _ = check_state(channel_gain, queue, scenario)
    if taking_part is None or taking_part.dtype != np.bool_:
        return static_resources(gain, scenario)
    of = Cohort(gain, taking_part.astype(np.bool_), scenario)
    f, p, band = decide(of)
    settings = of.put(f, scenario.f_min), of.put(p, scenario.p_min)
    if scenario.bandwidth_split == "equal":
        return settings
    return *settings, of.put(band, 0.0)

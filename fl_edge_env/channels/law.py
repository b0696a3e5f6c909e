"""Laws of gains, as the nodes and the weights of sums."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from fl_edge_env.typing import FloatArray

# Nodes in which a density is summed up.
DENSITY_NODES = 24


class GainLaw(NamedTuple):
    """Gains that each device may have, and how likely.

    The expectation of g(h) is ``sum(probability * g(gain), axis=-1)``: exactly where gains are
    discrete, else by a quadrature rule. Both have shape (..., N, J); gains are positive, and
    probabilities sum to one over the last axis.
    """

    gain: FloatArray
    probability: FloatArray


class FadingLaw(NamedTuple):
    """The variation of the gain of a device around its mean.

    A device keeps the fading of the round before with probability `persistence`; else it gets a new
    one, a factor on the mean gain with the `law`, shape (J,). `repeats` is the probability that two
    independent fadings are equal: zero for a density, and more where it has atoms.
    """

    persistence: float
    law: GainLaw
    repeats: float


def unknown_fading(persistence: float = 0.0, repeats: float = 0.0) -> FadingLaw:
    """Fading of which no more is known: exponential power, kept in [0.1, 5]."""
    return FadingLaw(persistence, rice_power_law(0.0, 0.1, 5.0), repeats)


def density_nodes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes x and weights of an integral over [low, high], ``sum(weight * g(x), axis=-1)``.

    It is the Gauss-Legendre rule in the logarithm of x: what is summed up, such as ``1 / ln(1 + s
    x)``, varies with the logarithm, and is smooth in it. Shape (..., J).
    """
    node, weight = np.polynomial.legendre.leggauss(DENSITY_NODES)
    middle, half = 0.5 * np.log(low * high), 0.5 * np.log(high / low)
    x = np.exp(middle[..., None] + half[..., None] * node)
    return x, half[..., None] * weight * x


@lru_cache(maxsize=32)
def rice_power_law(factor: float, least: float, most: float) -> GainLaw:
    """The law of the power of Rician fading that is cut to an interval, shape (J,).

    The power is that of a line of sight and of scattered waves, with mean one, ``x = |sqrt(K) +
    z|^2 / (1 + K)`` with z complex normal, ``E|z|^2 = 1`` and K the factor, 0 for Rayleigh fading.
    What lies beyond an end of the interval is an atom there.
    """
    degrees, shift, scale = 2.0, 2.0 * factor, 2.0 * (1.0 + factor)
    below = float(special.chndtr(scale * least, degrees, shift))
    inside = float(special.chndtr(scale * most, degrees, shift)) - below
    # The amplitude is off its middle by more than r with probability exp(-(1 + K) r^2) at most.
    middle, reach = np.sqrt(factor / (1.0 + factor)), np.sqrt(28.0 / (1.0 + factor))
    low = min(max(least, max(middle - reach, 0.0) ** 2), most)
    high = max(min(most, (middle + reach) ** 2), low * (1.0 + 1e-9))
    x, weight = density_nodes(np.array(low), np.array(high))
    root = 2.0 * np.sqrt(factor * (1.0 + factor) * x)
    # exp(-K - (1 + K) x) I0(root), with the exponential inside the Bessel function
    exponent = -((np.sqrt((1.0 + factor) * x) - np.sqrt(factor)) ** 2)
    density = (1.0 + factor) * np.exp(exponent) * special.i0e(root)
    return with_atoms(least, x, most, below, weight * density, inside)


def with_atoms(
    least: FloatArray | float,
    x: FloatArray,
    most: FloatArray | float,
    below: FloatArray | float,
    inside_weight: FloatArray,
    inside: FloatArray | float,
) -> GainLaw:
    """A density on an interval, and atoms at its ends, shape (..., J + 2).

    `x` are the nodes inside and `inside_weight` their weights times the density, scaled to the
    probability `inside`; `below` is that of the atom at `least`, and the one at `most` has the
    rest.
    """
    shape = x.shape[:-1]
    low, high, first, middle = (
        np.broadcast_to(values, shape)[..., None] for values in (least, most, below, inside)
    )
    total = inside_weight.sum(axis=-1, keepdims=True)
    # A density so narrow that no node has weight has them all in one place.
    share = np.where(total > 0.0, inside_weight, 1.0)
    share = share / share.sum(axis=-1, keepdims=True)
    last = np.maximum(1.0 - first - middle, 0.0)
    weights = np.concatenate([first, share * middle, last], axis=-1)
    return GainLaw(
        np.concatenate([low, x, high], axis=-1), weights / weights.sum(axis=-1, keepdims=True)
    )


def same_for_all(law: GainLaw, previous: FloatArray) -> GainLaw:
    """A law of shape (J,) or (N, J) for gains of shape (..., N)."""
    shape = (*np.shape(previous), law.gain.shape[-1])
    return GainLaw(*(np.broadcast_to(part, shape) for part in law))


def kept_or_new(previous: FloatArray, kept: float, new: GainLaw) -> GainLaw:
    """The law of gains that stay with the probability `kept`, and else have the law `new`.

    The gain that stays is the first node, shape (..., N, J + 1) for `previous` of shape (..., N).
    """
    first = np.asarray(previous)[..., None]
    likely = np.full(first.shape, kept), (1.0 - kept) * new.probability
    return GainLaw(np.concatenate([first, new.gain], axis=-1), np.concatenate(likely, axis=-1))

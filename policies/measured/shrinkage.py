"""Estimates for many devices of which some have few rows: each leans on the others.

All logarithms are natural. The model of a quantity whose logarithm is x, of device n in row i::

    x_ni = m_n + s_n e_ni,   m_n ~ N(mu, tau^2),   d0 s0^2 / s_n^2 ~ chi^2(d0),

with e_ni of variance one. Of two successive rows of a device the e have a correlation that is zero
or given, and further ones are correlated through those in between (a Markov chain).

- *Own mean and variance* by generalised least squares. A row whose correlation with the one before
  is r tells ``(1 - r) / (1 + r)`` as much of the mean as a row of its own; their sum k_n is the
  information of a device, its number of rows where they are independent. Its mean x_n has the
  variance ``v_n = s_n^2 / k_n``.
- *Variances* as in [Smyth]_: ``s_n^2 = (d0 s0^2 + d_n s^2) / (d0 + d_n)`` with the device's own
  s^2 and its degrees of freedom ``d_n = k_n - 1``. d0 follows from the spread of log s^2; s0^2 is
  the mean of all, ``sum d_n s^2 / sum d_n``, which very small ones do not draw down.
- *Means* as in [Efron]_: ``m_n = x_n + B_n (mu - x_n)`` with ``B_n = v_n / (v_n + tau^2)``. mu is
  the mean with the weights ``w_n = 1 / (v_n + tau^2)``, and tau^2 the number with which ``sum w_n
  (x_n - mu)^2`` is what it is on average, N - 1 [Paule]_. m_n is known up to the variance
  ``B_n tau^2 + B_n^2 / sum w``, and of a device without rows B is one.

References
----------
.. [Efron] Efron and Morris, "Data analysis using Stein's estimator and its generalizations",
   Journal of the American Statistical Association, 1975.
.. [Paule] Paule and Mandel, "Consensus values and weighting factors", Journal of Research of the
   National Bureau of Standards, 1982.
.. [Smyth] Smyth, "Linear models and empirical Bayes methods for assessing differential expression
   in microarray experiments", Statistical Applications in Genetics and Molecular Biology, 2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import polygamma, psi

from fl_edge_env.typing import FloatArray, IntArray

# The largest persistence; with 1 nothing would ever be drawn anew.
MOST_PERSISTENCE = 0.99
# Below this a variance of a logarithm is rounding.
_LEAST_VARIANCE = 1e-16
# Own variances count as at least this part of the pooled one: of none there is no logarithm.
_LEAST_RATIO = 1e-4
# A persistence is told from none if twice the logarithm of the likelihood is higher by this, the
# 95 % quantile of chi^2 with one degree of freedom.
_SURE = 3.84


class Law(NamedTuple):
    """Law of a logarithm on each device, shape (N + 1,): last a device of which there are no rows.

    `mean` m_n, and `mean_variance`, how well it is known; `variance` s_n^2 and the degrees of
    `freedom` with which it is known; `own`, the weight 1 - B_n of a device's own rows in its mean.
    """

    mean: FloatArray
    mean_variance: FloatArray
    variance: FloatArray
    freedom: FloatArray
    own: FloatArray

    @property
    def relative_error(self) -> FloatArray:
        """Standard error of ``exp(m + s^2 / 2)``, the mean of the quantity, over the mean."""
        return np.sqrt(self.mean_variance + self.variance**2 / (2.0 * self.freedom))


class _Own(NamedTuple):
    """What the rows of each device say alone; see the module."""

    rows: IntArray
    information: FloatArray
    freedom: FloatArray
    mean: FloatArray
    squares: FloatArray


def estimate(
    value: FloatArray, device: IntArray, count: int, correlation: FloatArray | float = 0.0
) -> Law:
    """Estimate the laws of logarithms; see the module.

    The rows are in the order of the devices, 0 to `count` - 1, and of time. Each has a
    `correlation` with the one before, which counts where that is of the same device.
    """
    own = _own(value, device, count, correlation)
    variance, freedom = _variances(own)
    # One over v_n, which is zero where there are no rows.
    precision = np.append(own.information, 0.0) / np.maximum(variance, _LEAST_VARIANCE)
    known = own.rows > 0
    mu, tau2 = centre_and_spread(own.mean[known], 1.0 / precision[:-1][known])
    lean = 1.0 / (1.0 + precision * tau2)
    mean = np.append(own.mean, mu)
    mean += lean * (mu - mean)
    mean_variance = lean * tau2 + lean**2 / (precision * lean).sum()
    return Law(mean, mean_variance, variance, freedom, 1.0 - lean)


def centre_and_spread(estimates: FloatArray, variances: FloatArray) -> tuple[float, float]:
    """Mean mu and variance tau^2 of what is known by estimates of these variances [Paule]_."""

    def centre(tau2: float) -> tuple[float, float]:
        weight = 1.0 / (variances + tau2)
        mu = float(weight @ estimates / weight.sum())
        return mu, float(weight @ (estimates - mu) ** 2) - (len(estimates) - 1)

    mu, excess = centre(0.0)
    if excess <= 0 or len(estimates) == 1:  # whose excess is rounding
        return mu, 0.0
    # Weights are at most 1 / tau^2, so that nothing is in excess at the plain variance; at twice
    # that, no rounding puts it there.
    most = 2.0 * float(np.var(estimates, ddof=1))
    tau2 = float(brentq(lambda tau2: centre(tau2)[1], 0.0, most, xtol=1e-12 * most))
    return centre(tau2)[0], tau2


def persistence(value: FloatArray, device: IntArray, count: int, apart: FloatArray) -> float:
    """Probability rho that a device keeps its draw from round to round, in [0, 0.99].

    Then the correlation of two rows that are d rounds apart is ``rho**d``. Rows as for `estimate`;
    `apart` is the distance from the row before [rounds]. Each device's rows are brought to one
    variance, and rho maximises the restricted likelihood of a normal law, in which no device's own
    mean makes the others look less alike than they are [Patterson]_. As it goes by variances and
    correlations alone, it needs no normal law for being right on average. Zero where none is sure.

    .. [Patterson] Patterson and Thompson, "Recovery of inter-block information when block sizes are
       unequal", Biometrika, 1971.
    """
    own = _own(value, device, count, 0.0)
    freedom = int((own.rows - 1)[own.rows > 0].sum())
    scale = np.sqrt(np.maximum(_variances(own)[0], _LEAST_VARIANCE))[device]
    if freedom == 0 or own.squares.sum() <= _LEAST_VARIANCE * freedom:
        return 0.0
    scaled, again = (value - own.mean[device]) / scale, device[1:] == device[:-1]

    def deviance(rho: float) -> float:
        correlation = rho**apart
        fitted = _own(scaled, device, count, correlation)
        return float(
            freedom * np.log(fitted.squares.sum())
            + np.log1p(-(correlation[1:][again] ** 2)).sum()
            + np.log(fitted.information[fitted.rows > 0]).sum()
        )

    best = minimize_scalar(deviance, bounds=(0.0, MOST_PERSISTENCE), method="bounded")
    return float(best.x) if deviance(0.0) - best.fun > _SURE else 0.0


def inverse_trigamma(value: FloatArray) -> FloatArray:
    """The y with ``trigamma(y) = value``, by Newton steps on 1 / trigamma ([Smyth]_, appendix)."""
    y = 0.5 + 1.0 / value
    for _ in range(30):
        trigamma = polygamma(1, y)
        y = y + trigamma * (1.0 - trigamma / value) / polygamma(2, y)
    return y


def _own(value: FloatArray, device: IntArray, count: int, correlation: FloatArray | float) -> _Own:
    def of_devices(values: FloatArray) -> FloatArray:
        return np.bincount(device, values, count).astype(np.float64)

    again = np.append(False, device[1:] == device[:-1])
    r = np.where(again, correlation, 0.0)
    information = of_devices((1.0 - r) / (1.0 + r))
    before = np.append(0.0, value[:-1])
    mean = of_devices((value - r * before) / (1.0 + r)) / np.maximum(information, _LEAST_VARIANCE)
    # What a device kept was drawn once.
    drawn = of_devices(1.0 - (again & (value == before)))
    rest = value - mean[device]
    fresh = (rest - r * np.append(0.0, rest[:-1])) / np.sqrt(1.0 - r**2)
    rows = np.bincount(device, minlength=count)
    freedom = np.minimum(information, drawn) - 1.0
    return _Own(rows, information, freedom, mean, of_devices(fresh**2))


def _variances(own: _Own) -> tuple[FloatArray, FloatArray]:
    """Variances that lean on each other and their degrees of freedom, shape (N + 1,)."""
    freedom = np.append(np.maximum(own.freedom, 0.0), 0.0)
    several, most = freedom > 0, float(freedom.sum())
    if most == 0:
        return freedom, np.ones(len(freedom))
    variance = np.append(own.squares / np.maximum(own.rows - 1, 1), 0.0)
    pooled = float(freedom @ variance / most)
    alike = np.full(len(freedom), pooled), np.full(len(freedom), most)
    if pooled <= _LEAST_VARIANCE:
        return alike
    half = 0.5 * freedom[several]
    logarithm = np.log(np.maximum(variance[several], _LEAST_RATIO * pooled))
    _, spread = centre_and_spread(logarithm - psi(half) + np.log(half), polygamma(1, half))
    if spread == 0.0:
        return alike
    prior = 2.0 * float(inverse_trigamma(np.array(spread)))
    total = prior + freedom
    return (prior * pooled + freedom * variance) / total, np.minimum(total, most)

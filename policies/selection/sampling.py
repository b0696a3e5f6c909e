"""Selectors that sample devices by the norms of their updates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_or_zero
from fl_edge_env.typing import FloatArray, Info
from policies.selection.selector import Candidates, Selector

# Fraction of uniform sampling. Norms date from a device's last participation: without this fraction
# a device with a small norm would hardly be drawn again, and then with an unbounded weight.
_UNIFORM_SHARE = 0.1
# Bisection: halvings of the logarithm, and the least relative distance to the shortest time.
_HALVINGS = 80
_LEAST_DISTANCE = 1e-60


class _NormSampling(Selector):
    """Samples by each device's newest update norm, and a fraction uniformly."""

    samples = True
    uses_update_norms = True

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Begin with equal norms, until they are reported; see `Selector.start`."""
        return {"norm": np.ones((*batch, self.scenario.num_devices))}

    def learn(self, info: Info) -> None:
        """Keep the `update_norms` of the `participants`; see `Selector.learn`."""
        known = self.memory["norm"]
        self.memory["norm"] = np.where(info["participants"], info["update_norms"], known)

    def _mixed(self, q: FloatArray) -> FloatArray:
        mixed: FloatArray = (1.0 - _UNIFORM_SHARE) * q + _UNIFORM_SHARE / q.shape[-1]
        return mixed


class OptimalSampling(_NormSampling):
    """Samples devices in proportion to the norms of their weighted updates.

    Chen, Horváth and Richtárik, "Optimal client sampling for federated learning", TMLR 2022:
    ``q_n ~ w_n ||delta_n||`` minimises the variance of the aggregate. In the paper every device
    trains and reports its norm in every round, and devices are sampled independently. Here all
    devices report once before the first round, and participants in each round; they are K draws
    with replacement. A tenth of the draws is uniform, because norms become outdated.
    """

    name = "Optimal sampling"

    def select(self, candidates: Candidates) -> FloatArray:  # noqa: ARG002 - the norms decide
        """Sample by the newest norms; see `Selector.select`."""
        return self._mixed(norm_probabilities(self.scenario.weights * self.memory["norm"]))


class AdaptiveSampling(_NormSampling):
    """Samples devices by their times and update norms, to minimise the time to converge.

    Luo et al., "Tackling system and statistical heterogeneity for federated learning with
    adaptive client sampling", INFOCOM 2022: the time to reach a loss is proportional to
    ``(sum q T) (sum w^2 G^2 / q + C)``, the mean time of a draw times the number of rounds. G is a
    bound on a device's gradients, here its newest update norm; all devices report one before the
    first round. A tenth of the draws is uniform, because norms become outdated. T is a device's
    time at the resources it would get alone.

    Parameters
    ----------
    scenario : Scenario
        The system.
    constant : float
        C, the part of the number of rounds that does not depend on sampling, in units of G^2. The
        authors estimate it from trial runs.
    """

    name = "Adaptive sampling"

    def __init__(self, scenario: Scenario, *, constant: float = 0.0) -> None:
        super().__init__(scenario)
        self._constant = finite_or_zero("constant", constant)

    def select(self, candidates: Candidates) -> FloatArray:
        """Sample by times and newest norms; see `Selector.select`."""
        error = (self.scenario.weights * self.memory["norm"]) ** 2
        return self._mixed(adaptive_probabilities(candidates.time, error, self._constant))


def norm_probabilities(norm: FloatArray) -> FloatArray:
    """Probabilities in proportion to the norms, (..., N); uniform if all are zero.

    ``norm / sum norm`` minimises ``sum norm^2 / q``.
    """
    total = norm.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        q: FloatArray = np.where(total > 0, norm / total, 1.0 / norm.shape[-1])
    return q


def adaptive_probabilities(time: FloatArray, error: FloatArray, constant: float) -> FloatArray:
    """Minimise ``(sum q T) (sum B / q + C)`` over the simplex.

    The times T [s] are positive, the errors B and the constant C at least zero; T and B have shape
    (..., N). At the minimum ``q_n ~ sqrt(B_n / (T_n - m))`` with ``m = M C / (S + C)``, M as
    ``sum q T`` and S as ``sum B / q``. The root m is in [0, min T), over the devices with an error.
    Bisection finds its distance to min T, which may be tiny. A device without error is used if its
    time is below m: then it is m.
    """
    counts = error > 0
    shortest = np.where(counts, time, np.inf).min(axis=-1, keepdims=True)
    shortest = np.where(np.isfinite(shortest), shortest, 1.0)  # without errors q is uniform
    longer = np.where(counts, time - shortest, 0.0)

    def at(distance: FloatArray) -> FloatArray:
        return norm_probabilities(np.sqrt(error / (longer + distance)))

    low = _LEAST_DISTANCE * shortest
    high = shortest.copy()
    if constant == 0:
        return at(high)
    for _ in range(_HALVINGS):
        distance = np.sqrt(low * high)
        q = at(distance)
        mean_time = np.sum(q * time, axis=-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(q > 0, error / q, 0.0).sum(axis=-1, keepdims=True)
        too_far = (shortest - distance) * (share + constant) < mean_time * constant
        low = np.where(too_far, low, distance)
        high = np.where(too_far, distance, high)
    return _with_fastest(at(high), time, error, constant, shortest)


def _with_fastest(
    q: FloatArray, time: FloatArray, error: FloatArray, constant: float, shortest: FloatArray
) -> FloatArray:
    """The minimum with the fastest device without error where one is used, and otherwise `q`."""
    counts = error > 0
    free = np.where(counts, np.inf, time)
    least = free.min(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        others = np.where(counts, np.sqrt(least / constant * error / (time - least)), 0.0)
    rest = 1.0 - others.sum(axis=-1, keepdims=True)
    fastest = np.arange(time.shape[-1]) == free.argmin(axis=-1)[..., None]
    used = (least < shortest) & (rest > 0) & counts.any(axis=-1, keepdims=True)
    return np.where(used, np.where(fastest, rest, others), q)

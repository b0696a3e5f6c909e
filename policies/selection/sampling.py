"""Selectors that sample devices by the norms of their updates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.typing import FloatArray, Info
from policies.selection.selector import Candidates, Selector

# Fraction of uniform sampling. Norms date from a device's last participation: without this fraction
# a device with a small norm would hardly be drawn again, and then with an unbounded weight.
_UNIFORM_SHARE = 0.1


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
        return (1.0 - _UNIFORM_SHARE) * q + _UNIFORM_SHARE / q.shape[-1]


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
    ``(sum q T) (sum w^2 G^2 / q)``, the mean time of a draw times the number of rounds, which is
    least with ``q_n ~ w_n G_n / sqrt(T_n)``. The authors add to the second factor a constant that
    they estimate from trial runs. G is a bound on a device's gradients, here its newest update
    norm; all devices report one before the first round. A tenth of the draws is uniform, because
    norms become outdated. T is a device's time at the resources it would get alone.
    """

    name = "Adaptive sampling"

    def select(self, candidates: Candidates) -> FloatArray:
        """Sample by times and newest norms; see `Selector.select`."""
        norm = self.scenario.weights * self.memory["norm"]
        return self._mixed(norm_probabilities(norm / np.sqrt(candidates.time)))


def norm_probabilities(norm: FloatArray) -> FloatArray:
    """Probabilities in proportion to the norms, (..., N); uniform if all are zero.

    ``norm / sum norm`` minimises ``sum norm^2 / q``.
    """
    total = norm.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, norm / total, 1.0 / norm.shape[-1])

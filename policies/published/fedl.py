"""FEDL: energy of all against the time of computing and of uploading, each in closed form."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number
from fl_edge_env.typing import FloatArray
from policies.published.uploads import Cohort, decide_for_cohort, root
from policies.resources import TakingPart
from policies.selection import RoundRobin, Scheduler

# Relative precision of the time for uploads: what it misses costs the square of it.
_PRECISION = 1e-8


class FEDL(Scheduler):
    """The resources of FEDL, for devices in turns: `FEDLResources` with round robin.

    With K = N everybody takes part in every round, as in the paper.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.
    kappa : float
        See `FEDLResources`.

    Raises
    ------
    ValueError
        If `kappa` is not positive.
    """

    def __init__(self, scenario: Scenario, *, kappa: float = 1.0) -> None:
        super().__init__(RoundRobin(scenario), resources=FEDLResources(kappa))
        self.name = "FEDL"


class FEDLResources:
    """The f, p and parts of the band that minimise ``sum E + kappa (T_compute + T_upload)``.

    Tran, Bao, Zomaya, Nguyen and Hong, "Federated learning over wireless networks: optimization
    model design and analysis", INFOCOM 2019. Nobody uploads before all have computed, so that the
    two phases are two problems:

    - *Computing* (their Sub1): at a given ``T_compute`` a device has the least frequency in its
      range with which it is done. The best time leaves three groups: bottlenecks at their largest
      frequency, devices at their least one, and the others, which are done together. With only
      these, ``T_compute^3 = sum alpha cycles^3 / kappa``.
    - *Uploading* (their Sub2): parts of the time in which a device has the whole band. At the same
      energies and the same time these are parts of the band, ``b_n / B = tau_n / T_upload``: both
      depend on the product of time and band alone (see `policies.published.uploads`).

    Read in the authors' code, github.com/nhatminh/FEDL-INFOCOM (julia-INFOCOM). The abstract claims
    closed forms and no numbers. What is different here:

    - In turns, a device has its range of power while it has the whole band; here while it has its
      part, for the whole phase, and where that binds there is no closed form but a root.
    - The environment lets a device upload as soon as it has computed, so that a round may be
      shorter than the sum of both phases, and devices do not finish together.
    - The local accuracy, their third problem, is given: it is the system's number of epochs.
    - In an equal system each part of the band is ``B / K``, and only f and p are chosen.

    Parameters
    ----------
    kappa : float
        Worth of a second [J/s]. The authors try 1e-4 to 1e4; the default is ours.

    Raises
    ------
    ValueError
        If `kappa` is not positive and finite.
    """

    __name__ = "FEDL"

    def __init__(self, kappa: float = 1.0) -> None:
        self.kappa = finite_number("kappa", kappa)

    def __call__(
        self,
        channel_gain: FloatArray,
        queue: FloatArray,
        scenario: Scenario,
        taking_part: TakingPart,
    ) -> tuple[FloatArray, ...]:
        """Decide for a cohort; while it is unknown, static resources. See `ResourceRule`."""
        return decide_for_cohort(self._decide, channel_gain, queue, scenario, taking_part)

    def _decide(self, of: Cohort) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The f, p and parts of the band of a cohort."""
        f = of.cycles / self.compute_time(of)
        window = self._upload_time(of)
        window = np.broadcast_to(window, of.real.shape)
        band, _ = of.split(window, np.ones(window.shape))
        return np.clip(f, of.f_min, of.f_max), of.power(window, band), band

    def compute_time(self, of: Cohort) -> FloatArray:
        """The best ``T_compute`` [s], shape (..., 1)."""
        # One second more saves `sum alpha (cycles / T)^3` joules over the devices that are not at
        # their least frequency. Those are the ones with the longest times there.
        longest = np.where(of.real, of.cycles / of.f_min, 0.0)
        order = np.argsort(-longest, axis=-1)
        longest = np.take_along_axis(longest, order, axis=-1)
        cubes = np.take_along_axis(np.where(of.real, of.capacitance * of.cycles**3, 0.0), order, -1)
        together = np.cbrt(np.cumsum(cubes, axis=-1) / self.kappa)
        best: FloatArray = np.minimum(together, longest).max(axis=-1, keepdims=True)
        return np.maximum(best, of.largest(of.cycles / of.f_max))

    def _upload_time(self, of: Cohort) -> FloatArray:
        """The best ``T_upload`` [s], shape (..., 1)."""
        ready = np.zeros(of.real.shape)
        low, high = (of.together(p, ready)[0] for p in (of.p_max, of.p_min))

        def cost(time: FloatArray) -> FloatArray:
            """What a second more costs, on a scale from -1 to 1."""
            window = np.broadcast_to(time, ready.shape)
            band, price = of.split(window, np.ones(ready.shape))
            energy = of.total(of.worth_of_time(window, band, price))
            return (self.kappa + energy) / (self.kappa + np.abs(energy))

        return root(cost, low, high, _PRECISION)

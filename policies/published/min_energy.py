"""The least energy of a cohort by a completion time, over frequencies, powers and the band."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number
from fl_edge_env.typing import FloatArray
from policies.published.uploads import Cohort, decide_for_cohort, root
from policies.resources import TakingPart
from policies.selection import RoundRobin, Scheduler

# Logarithms of prices of the band [J/Hz]: the first step of a search, and what is no price.
_STEP, _NOTHING = 4.0, -300.0
# Relative precision of that logarithm.
_PRECISION = 1e-10


class MinEnergy(Scheduler):
    """The resources of least energy, for devices in turns: `LeastEnergy` with round robin.

    With K = N everybody takes part in every round, as in the paper.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.
    completion_time, stretch : float, optional
        See `LeastEnergy`.

    Raises
    ------
    ValueError
        If a number is wrong.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        completion_time: float | None = None,
        stretch: float | None = None,
    ) -> None:
        rule = LeastEnergy(completion_time=completion_time, stretch=stretch)
        super().__init__(RoundRobin(scenario), resources=rule)
        self.name = "Min energy"


class LeastEnergy:
    """The f, p and parts of the band that minimise ``sum E`` of a cohort by a completion time.

    Yang, Chen, Saad, Hong and Shikh-Bahaei, "Energy efficient federated learning over wireless
    communication networks", IEEE Transactions on Wireless Communications, 2021. They iterate over
    blocks of variables; here the same problem, which is convex, is solved through the price of the
    band: at a price each device has the best time for its upload, and the price is that at which
    the band is used up.

    The problem was read in the code of the paper's figures, published by an unnamed account
    (github.com/BrokenBunny/Energy-efficient-federated-learning, TimeEnergyWei2.m), which gives it
    to a solver. A summary of the abstract claims up to 59.5 % less energy than conventional
    federated learning. What is different here:

    - The local accuracy, which they choose as well, is given: it is the system's number of epochs,
      and the completion time is that of one round.
    - The power has a least value, too. A device uploads during the whole of its time, and does
      not have more band than it could use at that power.
    - Where the cohort cannot be done by then, it is as fast as it can: at the largest frequencies
      and powers, finishing together.
    - In an equal system each part of the band is ``B / K``, and only f and p are chosen.

    Parameters
    ----------
    completion_time : float, optional
        Time of a round [s]. By default `stretch` times the shortest in which the cohort can finish.
    stretch : float, optional
        At least one; 1.5 by default, which is our choice, as the paper tries many times. In place
        of `completion_time`.

    Raises
    ------
    ValueError
        If a number is wrong, or both are given.
    """

    __name__ = "least energy"

    def __init__(
        self, *, completion_time: float | None = None, stretch: float | None = None
    ) -> None:
        if completion_time is not None and stretch is not None:
            raise ValueError(
                f"stretch stands in place of completion_time: give one of them, got {stretch!r} "
                f"and {completion_time!r}"
            )
        self.stretch = 1.5 if stretch is None else finite_number("stretch", stretch)
        if self.stretch < 1:
            raise ValueError(f"stretch must be at least 1, got {stretch!r}")
        self.completion_time = completion_time
        if completion_time is not None:
            self.completion_time = finite_number("completion_time", completion_time)

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
        ready = of.waiting + of.cycles / of.f_max
        shortest, fastest = of.together(of.p_max, ready)
        end = self.stretch * shortest if self.completion_time is None else self.completion_time
        in_time = end > shortest * (1 + 1e-9)
        span = np.where(in_time, end, 2.0 * shortest) - of.waiting
        window, band = _least_energy(of, span)
        f = np.clip(of.cycles / (span - window), of.f_min, of.f_max)
        return (
            np.where(in_time, f, of.f_max),
            np.where(in_time, of.power(window, band), of.p_max),
            np.where(in_time, band, fastest),
        )


def _least_energy(of: Cohort, span: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Times for uploads [s] and parts of the band [Hz] with which the energy is least.

    Within `span` seconds a device computes and uploads.
    """
    whole = of.scenario.bandwidth_hz
    shared = of.scenario.bandwidth_split == "shared"
    part = np.full(span.shape, whole if shared else whole / of.scenario.cohort_size)
    # Nobody uploads faster than alone. From `middle` on, computing fills the time that is left.
    low, high = of.upload_time(of.p_max, part), span - of.cycles / of.f_max
    middle = np.clip(span - of.cycles / of.f_min, low, high)

    def parts(window: FloatArray, price: FloatArray) -> FloatArray:
        return of.band_at_price(window, np.ones(window.shape), price) if shared else part

    def windows(price: FloatArray) -> FloatArray:
        def idle(window: FloatArray) -> FloatArray:
            """What a second more to upload costs [W], apart from faster computing."""
            return of.worth_of_time(window, parts(window, price), price)

        def busy(window: FloatArray) -> FloatArray:
            """What a second more to upload costs, on a scale from -1 to 1."""
            computing, other = of.capacitance * (of.cycles / (span - window)) ** 3, idle(window)
            return (computing + other) / (computing + np.abs(other))

        # With the least power before `middle`, a longer upload only makes computing faster.
        window = np.where(busy(middle) >= 0, middle, root(busy, middle, high))
        early = (idle(middle) > 0) & (middle > low)  # at the least power, say
        if early.any():
            window = np.where(early, root(idle, low, middle), window)
        return window

    if not shared:
        return windows(np.zeros((*span.shape[:-1], 1))), part

    def excess(log_price: FloatArray) -> FloatArray:
        price = np.exp(log_price)
        return np.log(of.total(parts(windows(price), price)) / whole)

    # A start: the mean worth of the band at equal parts, uploading half of the time.
    start = of.total(0.5 * high * of.slope(0.5 * high, part / of.real.shape[-1]))
    above = below = np.log(start / np.count_nonzero(of.real, axis=-1)[..., None])
    step = _STEP
    while (dearer := excess(above) > 0).any():
        above = np.where(dearer, above + step, above)
        step *= 2.0
    step = _STEP
    while (cheaper := (excess(below) < 0) & (below > _NOTHING)).any():
        below = np.where(cheaper, below - step, below)
        step *= 2.0
    price = np.exp(root(excess, below, above, _PRECISION))
    window = windows(price)
    return window, parts(window, price)

"""OCEAN: as many devices as their energy queues are worth, within a fixed time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fl_edge_env import Allocation, Scenario, physics
from fl_edge_env.checks import available, finite_number, observed, positive_number, real_array
from fl_edge_env.decision import membership
from fl_edge_env.typing import FloatArray, IntArray
from policies.base import Policy
from policies.published.uploads import Cohort
from policies.selection.selector import smallest

# Worth of energy where a queue is empty, over the budget: it decides between devices without any.
_LEAST_WORTH = 1e-6


class OCEAN(Policy):
    """The cohort, and the parts of the band, worth most: ``V |S| - sum_S q_k E_k(b_k)``.

    Xu and Wang, "Client selection and bandwidth allocation in wireless federated learning networks:
    a long-term perspective", IEEE Transactions on Wireless Communications, 2021. Every round takes
    at most a fixed time. A device that takes part uploads until then, with the energy of
    `policies.published.uploads`, and its queue ``q_k <- max(q_k + E_k - budget, 0)`` makes energy
    dear as it grows. The best cohort of a size holds those with the least cost at equal parts. With
    the time and the upload common to all, and no energy of computing, this is the order of
    ``q_k / h_k`` and therefore the optimum, the paper's theorem; elsewhere it is a heuristic.

    Known from memory: of the paper only the abstract could be read, which has no numbers. It
    claims that OCEAN "far outperforms benchmarks that ignore the long-term effect". What is
    different here:

    - The paper has no frequencies. All devices compute at the middle of their ranges, and the
      energy of computing counts in the queues and in the choice.
    - A round has from one to K devices: with no device worth its energy, that which costs least.
    - The power has a range: a device does not get more band than it can use at the least power,
      nor less than it needs at the largest. In an equal system everybody has ``B / K``.
    - The weight of a participation is the same in all rounds (the paper's "uniform" pattern), and
      queues are never reset: they are the environment's.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.
    round_time : float, optional
        Time of a round [s]. By default the deadline of the scenario, or if it has none the time of
        the mean device in the middle of the ranges at its mean gain; this choice is ours.
    V : float, optional
        Worth of a participation [J^2]. By default the square of the energy that the budget allows
        a device each time, if all take part equally often; this choice is ours. The energy exceeds
        the budget by about V over the energy of a participation, divided by the number of rounds.

    Raises
    ------
    ValueError
        If a number is not positive.
    """

    def __init__(
        self, scenario: Scenario, *, round_time: float | None = None, V: float | None = None
    ) -> None:
        super().__init__(scenario)
        share = min(scenario.cohort_size / scenario.num_devices, 1.0)
        if V is None:
            V = float(np.mean(scenario.energy_budget_j / share) ** 2)
        if round_time is None:
            round_time = scenario.deadline_s
            if round_time == math.inf:
                middle = scenario.f_mid, scenario.p_mid
                time, _ = physics.time_and_energy(scenario.mean_gain, *middle, scenario)
                round_time = float(np.mean(time))
        self.V = finite_number("V", V)
        self.round_time = positive_number("round_time", round_time)

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Try the best cohort of each size; see `Policy.decide`."""
        gain, queue = (real_array("channel_gain", value) for value in observed(observation))
        scenario, present = self.scenario, available(observation)
        if present is None:
            present = np.ones(gain.shape, dtype=np.bool_)
        f = np.broadcast_to(scenario.f_mid, gain.shape)
        window = self.round_time - scenario.waiting_time - physics.compute_time(f, scenario)
        window = np.maximum(np.broadcast_to(window, gain.shape), 1e-9 * self.round_time)
        worth = np.maximum(queue, _LEAST_WORTH * scenario.energy_budget_j)
        most = min(scenario.cohort_size, scenario.num_devices)
        whole = scenario.bandwidth_hz
        equal = scenario.bandwidth_split == "equal"
        every = Cohort(gain, np.ones_like(present), scenario)
        need = every.band_at_power(window, every.p_max)
        able = present & (need <= (whole / scenario.cohort_size if equal else whole))

        # In no time: the device that needs least of the band, with all of it.
        best_value = np.full((*gain.shape[:-1], 1), -np.inf)
        cohort: IntArray = _filled(smallest(np.minimum(need, 1e300), present, 1), most)
        fallback = membership(cohort, gain.shape[-1])
        bandwidth, p = whole * fallback, np.where(fallback, every.p_max, every.p_min)
        computing = physics.compute_energy(f, scenario)
        for size in range(1, most + 1):
            part = whole / (scenario.cohort_size if equal else size)
            parts = np.full(gain.shape, part)
            # At the least power: with an equal part it is done before its time.
            least = every.upload_time(every.p_min, parts) if equal else window
            uploading = every.p_min * least
            cost = worth * (computing + np.maximum(every.energy(window, parts), uploading))
            chosen = smallest(np.minimum(cost, 1e300), able, size)
            members = membership(chosen, gain.shape[-1])
            enough = np.count_nonzero(members, axis=-1, keepdims=True) == size
            # Rows without so many devices are solved for one, and not taken.
            solved = np.where(enough, members, np.arange(gain.shape[-1]) == 0)
            of = Cohort(gain, solved, scenario)
            windows, worths = of.take(window), of.take(worth)
            feasible = of.total(of.band_at_power(windows, of.p_max)) <= whole * (1 + 1e-9)
            band, _ = of.split(windows, worths)
            power = of.power(windows, band)
            energy = of.take(computing) + power * np.minimum(of.upload_time(power, band), windows)
            value = self.V * size - of.total(worths * energy)
            better = enough & (feasible | equal) & (value > best_value)
            best_value = np.where(better, value, best_value)
            cohort = np.where(better, _filled(chosen, most), cohort)
            bandwidth = np.where(better, of.put(band, 0.0), bandwidth)
            p = np.where(better, of.put(power, scenario.p_min), p)
        shares = None if equal else np.minimum(bandwidth, whole)
        return Allocation(np.array(f), p, cohort=cohort, bandwidth=shares)


def _filled(cohort: IntArray, size: int) -> IntArray:
    """A cohort (..., k) with -1 up to shape (..., size)."""
    places = [(0, 0)] * (cohort.ndim - 1) + [(0, size - cohort.shape[-1])]
    return np.pad(cohort, places, constant_values=-1)

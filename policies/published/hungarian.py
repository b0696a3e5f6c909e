"""Users, resource blocks and powers by packet errors: Chen et al., 2021."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fl_edge_env import Allocation, Scenario, physics
from fl_edge_env.checks import available, finite_number, observed, positive_number
from fl_edge_env.typing import BoolArray, FloatArray
from policies.base import Policy
from policies.selection.selector import smallest
from policies.state import check_state

# Of the authors' code.
_AUTHORS_THRESHOLD = 1.08
# By how much more than a limit is not by rounding, relative.
_ROUNDING = 1e-9
# Of the logarithm of the range of powers.
_HALVINGS = 50


class Hungarian(Policy):
    """The K devices from which most data arrive, each with the largest power that it may have.

    Chen, Yang, Saad, Yin, Poor and Cui, "A joint learning and communications framework for
    federated learning over wireless networks", IEEE Transactions on Wireless Communications, 2021:
    an assignment of devices to resource blocks that maximises ``sum D_n exp(-m / s_n)``, the data
    that arrive without packet errors at the signal-to-noise ratios s, over the devices that meet a
    limit of time and one of energy. The rule, m = 1.08 and the limits of 0.5 s and 3 mJ were read
    in the authors' code (github.com/mzchen0/Wireless-FL), which has one power. That power is best
    as large as the limit of energy allows is the paper's (from memory); it follows from time and
    errors, which fall with power, and energy, which rises.

    Deviations: the K blocks of the band are alike, as no interference tells them apart. The value
    of a device is then the same in every block, so that the Hungarian method has nothing to find:
    an optimal assignment gives the blocks to the K devices of the largest values. The limits are
    the scenario's where none are given. Computing frequencies are fixed in the paper; here power
    comes first, on which errors depend, and the frequency is what the limit of energy leaves. Where
    nobody meets the limits, the best device takes part, as a round needs one. Gains that the server
    observes are taken for the present ones. Limits are those of a round: budgets over many rounds
    are no part of the rule, and devices that are chosen often may exceed theirs.

    Parameters
    ----------
    scenario : Scenario
        The system.
    threshold : float, optional
        m, positive. By default the scenario's `waterfall_threshold`, and without packet errors
        that of the authors' code, with which good channels come first among equal data.
    time_limit : float, optional
        Longest time of a participant [s], positive; by default the scenario's `deadline_s`.
    energy_limit : float, optional
        Most energy of a participant in a round [J], positive. By default that with which a device
        that takes part as often as under uniform sampling meets its budget, as for static
        resources.

    Raises
    ------
    ValueError
        If a number is outside its range.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        threshold: float | None = None,
        time_limit: float | None = None,
        energy_limit: float | None = None,
    ) -> None:
        super().__init__(scenario)
        own = scenario.waterfall_threshold or _AUTHORS_THRESHOLD
        self._threshold = own if threshold is None else finite_number("threshold", threshold)
        longest = scenario.deadline_s if time_limit is None else time_limit
        self._longest = positive_number("time_limit", longest)
        if energy_limit is None:
            uniform = np.full(scenario.num_devices, 1.0 / scenario.num_devices)
            share = physics.participation_probability(uniform, scenario.cohort_size)
            self._most: FloatArray = scenario.energy_budget_j / share
        else:
            limit = finite_number("energy_limit", energy_limit)
            self._most = np.full(scenario.num_devices, limit)

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Choose powers, then devices; see `Policy.decide`."""
        scenario = self.scenario
        gain, _ = check_state(*observed(observation), scenario)
        f, p = self.resources(gain)
        time, energy = physics.time_and_energy(gain, f, p, scenario)
        margin = 1.0 + _ROUNDING
        allowed = (time <= margin * self._longest) & (energy <= margin * self._most)
        present = available(observation)
        if present is None:
            present = np.ones(gain.shape, dtype=np.bool_)
        # The logarithm, as a probability may be too small for a number.
        noise = scenario.noise_power_w
        value = np.log(scenario.num_samples) - self._threshold * noise / (gain * p)
        cohort = smallest(-value, allowed & present, scenario.cohort_size)
        nobody = cohort[..., 0] < 0
        cohort[nobody, 0] = smallest(-value, present, 1)[nobody, 0]
        return Allocation(f, p, cohort=cohort)

    def resources(self, channel_gain: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The largest powers with which the limit of energy holds, and the frequencies it leaves.

        The energy of an upload rises with its power, so that halving the range finds it. Where even
        the least f and p take more than the limit, they are these. Shapes are (..., N).
        """
        scenario = self.scenario
        rest = self._most - physics.compute_energy(scenario.f_min, scenario)

        def fits(p: FloatArray) -> BoolArray:
            upload = physics.upload_time(channel_gain, p, scenario)
            within: BoolArray = p * upload <= rest
            return within

        low = np.broadcast_to(scenario.p_min, channel_gain.shape)
        high = np.broadcast_to(scenario.p_max, channel_gain.shape)
        low = np.where(fits(high), high, low)
        for _ in range(_HALVINGS):
            p = np.sqrt(low * high)
            within = fits(p)
            low, high = np.where(within, p, low), np.where(within, high, p)
        p = np.clip(low, scenario.p_min, scenario.p_max)  # roots round
        left = self._most - p * physics.upload_time(channel_gain, p, scenario)
        f = np.sqrt(np.maximum(left, 0.0) / scenario.energy_per_hz2)
        return np.clip(f, scenario.f_min, scenario.f_max), p

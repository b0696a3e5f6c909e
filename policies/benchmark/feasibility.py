"""The constraints of a policy: the energy realized, and who takes part."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import FloatArray

# A policy within its budgets on average is called infeasible in at most this share of its runs.
FALSE_ALARMS = 0.05


class EnergyTolerance(NamedTuple):
    """Relative excess of energy over the budget: of each device (N,), and of the mean."""

    device: FloatArray
    mean: float


def energy_tolerance(scenario: Scenario, num_rounds: int) -> EnergyTolerance:
    """Share of its budget by which a device may exceed it by luck alone, over R rounds.

    A device whose energy meets its budget on average over m participations spends the budget in
    lumps of 1/m. How often it takes part varies by chance, and it may have spent one lump more than
    it has earned so far.

    Notes
    -----
    Let a device spend at most ``budget / rho`` each time it takes part, with ``rho`` the smaller of
    its shares of the rounds when the K places are shared out by the data and when evenly,
    ``min(K w, K / N, 1)``. The excess over its expected energy is a martingale with
    steps of at most one lump and a variance of at most ``m = rho R`` lumps. By Freedman's
    inequality [1]_ it exceeds s lumps with probability at most
    ``exp(-s^2 / (2 m + 2 s / 3))``, which equals d for

        s = L / 3 + sqrt((L / 3)^2 + 2 L m),    L = ln(1 / d).

    The tolerance is ``(1 + s) / m``, with ``d = 0.05 / N`` for each device and 0.05 for their mean,
    whose lumps are the ``K R`` participations of all. It falls as one over the square root of R.

    References
    ----------
    .. [1] Freedman, "On tail probabilities for martingales", Annals of Probability 3(1), 1975.
    """
    even = scenario.cohort_size / scenario.num_devices
    lumps = num_rounds * np.minimum(participation_target(scenario), even)
    device = _tolerance(lumps, FALSE_ALARMS / scenario.num_devices)
    total = np.array(float(num_rounds * scenario.cohort_size))
    return EnergyTolerance(device, float(_tolerance(total, FALSE_ALARMS)))


def _tolerance(lumps: FloatArray, probability: float) -> FloatArray:
    third = math.log(1.0 / probability) / 3.0
    luck = third + np.sqrt(third**2 + 6.0 * third * lumps)
    tolerance: FloatArray = (1.0 + luck) / lumps
    return tolerance

"""How f and p are chosen, whoever takes part."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Scenario, physics
from fl_edge_env.typing import FloatArray


def static_resources(channel_gain: FloatArray, scenario: Scenario) -> tuple[FloatArray, FloatArray]:
    """The resources of Uni-S: power at the middle of its range, frequency from what energy remains.

    f solves ``(E_cmp + E_up) (1 - (1 - 1/N)^K) = budget``, moved to its range; where uploading
    alone exceeds the budget, f is the smallest. A device that takes part as often as under
    uniform sampling then meets its budget.

    Parameters
    ----------
    channel_gain : ndarray, shape (..., N)
        Channel gains.
    scenario : Scenario
        The system.

    Returns
    -------
    f, p : ndarray, shape (..., N)
        Frequencies [Hz] and powers [W].
    """
    p = np.broadcast_to(scenario.p_mid, channel_gain.shape).copy()
    upload_energy = p * physics.upload_time(channel_gain, p, scenario)
    uniform = np.full(channel_gain.shape, 1.0 / scenario.num_devices)
    participation = physics.participation_probability(uniform, scenario.cohort_size)
    remaining = np.maximum(scenario.energy_budget_j / participation - upload_energy, 0.0)
    f = np.sqrt(2.0 * remaining / (scenario.capacitance * scenario.cycles_per_round))
    return np.clip(f, scenario.f_min, scenario.f_max), p

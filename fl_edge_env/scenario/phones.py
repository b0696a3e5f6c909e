"""Measured speeds of phones."""

from __future__ import annotations

import numpy as np

from fl_edge_env.typing import FloatArray

# Quantiles of the scores of 333 phones in the floating-point test of AI Benchmark's list of
# 2019/20, as collected in the repository of FLASH (Yang et al., WWW 2021).
QUANTILES = 0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0
SCORES = 105, 218, 274, 392, 755, 1327, 1548, 1696, 2035, 2621, 3414, 3691, 4310
_MEDIAN = 1548


def phone_speeds(num_devices: int, *, seed: int = 0) -> FloatArray:
    """Speeds of phones over that of the median phone, from 0.07 to 2.8, shape (N,).

    They come from the measured quantiles, with straight lines between them. Each of N equal parts
    of the distribution gives one phone, so that a few phones already stand for all; the seed is
    that of their order, and of the place of each within its part.
    """
    rng = np.random.default_rng(seed)
    level = (np.arange(num_devices) + rng.random(num_devices)) / num_devices
    return rng.permutation(np.interp(level, QUANTILES, SCORES)) / _MEDIAN


def phone_factors(num_devices: int, *, seed: int = 0) -> dict[str, FloatArray]:
    """Factors on the fields of a system that make its devices phones of measured speeds.

    Frequencies grow with the speed, and the capacitance falls with its third power, so that every
    phone takes the same power at full speed. A round's computing then takes a slow phone as much
    longer, and as much more energy, as it is slower; its budget is as much larger, so that it binds
    one phone like another.
    """
    speed = phone_speeds(num_devices, seed=seed)
    return {
        "f_min": speed,
        "f_max": speed,
        "capacitance": speed**-3,
        "energy_budget_j": 1.0 / speed,
    }

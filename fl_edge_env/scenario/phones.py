"""Measured speeds of phones."""

from __future__ import annotations

import numpy as np

from fl_edge_env.typing import FloatArray

# Quantiles of the scores of 333 phones in the floating-point test of AI Benchmark's list of
# 2019/20, as collected in the repository of FLASH (Yang et al., WWW 2021).
PHONE_SCORES: tuple[tuple[float, float], ...] = (
    (0.00, 105.0),
    (0.05, 218.0),
    (0.10, 274.0),
    (0.20, 392.0),
    (0.30, 755.0),
    (0.40, 1327.0),
    (0.50, 1548.0),
    (0.60, 1696.0),
    (0.70, 2035.0),
    (0.80, 2621.0),
    (0.90, 3414.0),
    (0.95, 3691.0),
    (1.00, 4310.0),
)
_MEDIAN = dict(PHONE_SCORES)[0.5]


def phone_speeds(num_devices: int, *, seed: int = 0) -> FloatArray:
    """Speeds of phones over that of the median phone, from 0.07 to 2.8, shape (N,).

    They come from the measured quantiles, with straight lines between them. Each of N equal parts
    of the distribution gives one phone, so that a few phones already stand for all; the seed is
    that of their order, and of the place of each within its part.
    """
    rng = np.random.default_rng(seed)
    level = (np.arange(num_devices) + rng.random(num_devices)) / num_devices
    share, score = np.array(PHONE_SCORES).T
    return rng.permutation(np.interp(level, share, score)) / _MEDIAN


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

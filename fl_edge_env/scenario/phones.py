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
    """Speeds of phones relative to the median phone, from 0.07 to 2.8, shape (N,).

    The sampling is stratified: each of N equally likely parts of the distribution, which is linear
    between the measured quantiles, gives one phone, so that even a few phones are representative.
    The seed determines their order and each phone's position within its part.
    """
    rng = np.random.default_rng(seed)
    level = (np.arange(num_devices) + rng.random(num_devices)) / num_devices
    return rng.permutation(np.interp(level, QUANTILES, SCORES)) / _MEDIAN


def phone_factors(num_devices: int, *, seed: int = 0) -> dict[str, FloatArray]:
    """Factors that turn a scenario's devices into phones of measured speeds.

    Frequencies are proportional to the speed, and the capacitance to its inverse cube, so that
    every phone draws the same power at full speed. A phone at half the speed then takes twice as
    long to compute a round and spends twice the energy; its budget doubles, so that it is equally
    tight for all phones.
    """
    speed = phone_speeds(num_devices, seed=seed)
    return {
        "f_min": speed,
        "f_max": speed,
        "capacitance": speed**-3,
        "energy_budget_j": 1.0 / speed,
    }

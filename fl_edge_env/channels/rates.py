"""Measured rates as channel gains."""

from __future__ import annotations

import numpy as np

from fl_edge_env.typing import FloatArray


def gain_of_rate(
    rate_bps: FloatArray, *, share_hz: float, power_w: float, noise_power_w: float
) -> FloatArray:
    """Channel gain with which a device uploads at a rate [bit/s], the inverse of equation (5).

    A rate was measured at some power in some bandwidth, which are rarely known. With a reference
    for both, ``h = (N0 / p) (2**(r / b) - 1)``; in a system with this noise power a device that
    sends with p in a share of b has the measured rate.
    """
    gain: FloatArray = noise_power_w / power_w * np.expm1(np.log(2.0) * rate_bps / share_hz)
    return gain

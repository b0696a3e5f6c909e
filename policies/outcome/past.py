"""What a policy can expect of the coming gains if it knows only the past."""

from __future__ import annotations

import numpy as np

from fl_edge_env import CellChannel, Scenario
from fl_edge_env.typing import FloatArray


def expected_gain(gain: FloatArray, age: FloatArray, scenario: Scenario) -> FloatArray:
    """Gain at which an upload at full power takes the mean time of the coming upload, (..., N).

    A device had the `gain` in the round `age` rounds before the coming one; infinity if its gain is
    not known. With any frequency and power, the mean time and energy in the coming round are at
    least those at the expected gain; ``docs/outcome.md`` has the proof. Raises `ValueError` if the
    channel is not a `CellChannel` with Rayleigh fading.
    """
    channel = scenario.channel
    if not isinstance(channel, CellChannel) or channel.fading != "rayleigh":
        raise ValueError(f"channel must be a CellChannel with Rayleigh fading, got {channel!r}")
    fading, probability = new_fading(channel)
    snr = scenario.p_max / scenario.noise_power_w
    anew = snr[:, None] * channel.device_mean(scenario.num_devices)[:, None] * fading
    stays = channel.persistence**age
    time = stays / np.log1p(snr * gain) + (1.0 - stays) * (probability / np.log1p(anew)).sum(-1)
    expected: FloatArray = np.expm1(1.0 / time) / snr
    return expected


def new_fading(channel: CellChannel) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a quadrature over Rayleigh fading, to 14 digits in the default interval.

    The fading power is exponential with mean 1, clipped to its interval.
    """
    ends = np.array([channel.fading_min, channel.fading_max])
    at_ends = np.array([-np.expm1(-ends[0]), np.exp(-ends[1])])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half = 0.5 * np.log(ends[1] / ends[0])  # of the interval of the fading's logarithm
    between = ends[0] * np.exp(half * (1.0 + nodes))
    inside = half * weights * between * np.exp(-between)
    return np.concatenate([ends, between]), np.concatenate([at_ends, inside])

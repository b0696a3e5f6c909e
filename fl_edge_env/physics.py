"""Rates, times and energies of one round: equations (5) to (16) of the paper.

Every function is pure and broadcasts over leading batch dimensions; a per-device quantity has
shape (..., N). SI units throughout: hertz, watt, joule, second, bit.

Source: Gao et al., "Online Client Scheduling and Resource Allocation for Efficient Federated
Edge Learning".
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env.typing import BoolArray, FloatArray, System

# Relative tolerance for rounding: within it no device is late, and no sum misses its bound.
ROUNDING = 1e-9


def upload_rate(
    channel_gain: FloatArray, p: FloatArray, system: System, bandwidth: FloatArray | None = None
) -> FloatArray:
    """Upload rate of each device [bit/s], equation (5): FDMA with B/K hertz for each draw.

    The paper calls N0 a density, but its figures are only reproduced if N0 is the total noise power
    in one draw's part of the band, as here. With `bandwidth` [Hz], (..., N), each device has its
    own part, with the same noise density, ``N0 K / B``; a device with none is treated as having an
    equal part.
    """
    part: FloatArray | float = system.bandwidth_hz / system.cohort_size
    noise: FloatArray | float = system.noise_power_w
    if bandwidth is not None:
        own = np.where(bandwidth > 0, bandwidth, part)
        part, noise = own, noise * (own / part)
    return (part / math.log(2)) * np.log1p(channel_gain * p / noise)


def upload_time(
    channel_gain: FloatArray, p: FloatArray, system: System, bandwidth: FloatArray | None = None
) -> FloatArray:
    """Upload time of each device [s], equation (6); arguments as in `upload_rate`."""
    return system.upload_bits / upload_rate(channel_gain, p, system, bandwidth)


def compute_time(f: FloatArray, system: System) -> FloatArray:
    """Time of local epochs [s] at CPU frequency `f` [Hz], equation (8)."""
    return system.cycles_per_round / f


def compute_energy(f: FloatArray, system: System) -> FloatArray:
    """Energy of local epochs [J] at CPU frequency `f` [Hz], equation (12)."""
    return system.energy_per_hz2 * f**2


def time_and_energy(
    channel_gain: FloatArray,
    f: FloatArray,
    p: FloatArray,
    system: System,
    bandwidth: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Time [s] and energy [J] of each device if it takes part in the round, (9) and (15).

    The time covers overhead, download, computing and upload, the energy computing and upload.
    Channel gains h_n, CPU frequencies f [Hz], transmission powers p [W] and bandwidths [Hz], by
    default equal parts of the band, have shape (..., N).
    """
    upload = upload_time(channel_gain, p, system, bandwidth)
    device_time = compute_time(f, system) + upload + system.waiting_time
    device_energy = compute_energy(f, system) + p * upload  # upload: equation (14)
    return device_time, device_energy


def by_deadline(
    channel_gain: FloatArray,
    f: FloatArray,
    p: FloatArray,
    system: System,
    bandwidth: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, BoolArray | None]:
    """`time_and_energy` up to the system's deadline, and the late devices; None without one."""
    device_time, device_energy = time_and_energy(channel_gain, f, p, system, bandwidth)
    if system.deadline_s == math.inf:
        return device_time, device_energy, None
    return cut(system.deadline_s, device_time, device_energy, f, p, system)


def cut(
    end: FloatArray | float,
    device_time: FloatArray,
    device_energy: FloatArray,
    f: FloatArray,
    p: FloatArray,
    system: System,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Cut times [s] and energies [J] at the end of the round, and mark the late devices.

    `end` [s] is a number or has shape (..., 1). Rounding makes no device late: devices that finish
    together are late together or not at all. A late device is charged its energy until the end:
    overhead and download take none, then it computes at power ``alpha f**3 / 2``, the energy of
    equation (12) over the time of equation (8), and then uploads at power p.
    """
    late = device_time > (1.0 + ROUNDING) * end
    working = np.maximum(end - system.waiting_time, 0.0)
    computing = np.minimum(working, compute_time(f, system))
    until = 0.5 * system.capacitance * f**3 * computing + p * (working - computing)
    return np.minimum(device_time, end), np.where(late, until, device_energy), late


def participation_probability(q: FloatArray, cohort_size: int) -> FloatArray:
    """Probability that a device is drawn at least once, ``1 - (1 - q)**K``, equation (16).

    Computed from one draw by repeated doubling, with sums and products of positive terms only: full
    relative precision for tiny `q`, and exact at q = 1.
    """
    probability = q
    for bit in f"{cohort_size:b}"[1:]:
        probability = probability * (2.0 - probability)  # twice as many draws
        if bit == "1":
            probability = probability + q * (1.0 - probability)  # one more
    return probability


def expected_maximum(value: FloatArray, q: FloatArray, cohort_size: int) -> FloatArray:
    """Expected largest of K values drawn with replacement by probabilities `q`, shape (...).

    With the values in ascending order and F their cumulative probability, it is ``sum_i value_(i)
    (F_i**K - F_(i-1)**K)``. For device times this is the exact expected round time, which the paper
    approximates by ``sum_n q_n T_n``, equation (11).
    """
    if value.shape != q.shape:
        value, q = np.broadcast_arrays(value, q)
    order = value.argsort(axis=-1)
    ordered = np.take_along_axis(value, order, axis=-1)
    power = np.take_along_axis(q, order, axis=-1).cumsum(axis=-1) ** cohort_size
    # Summation by parts: the largest value less the expected shortfall.
    shortfall = ((ordered[..., 1:] - ordered[..., :-1]) * power[..., :-1]).sum(axis=-1)
    return ordered[..., -1] * power[..., -1] - shortfall

"""A device's cheapest way to meet a deadline, compiled.

The least energy with which it finishes in time is reached at one price of energy in time, at which
Theorems 2 and 3 give its f and p. The search for that goes along ln(1 + snr p) where the gain is
known, and along p where only the law of it is: a *place* is a value of that variable.

Numba caches a compiled function by the date of the file it stands in, and what is imported from
`policies.p2.kernel` stands there: after a change of that, change this file too, or remove its
``__pycache__``.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from policies.p2.kernel import Device, expected_log, power_equation

# Division by zero gives inf as in numpy, which lets the compiler use vector instructions.
_compiled = njit(cache=True, error_model="numpy")

# How far inside a range, relative, a search turns round.
_INSIDE = 1e-12


@_compiled
def place_from(p: float, log: float, law: Any) -> float:
    """The place of a power, of which ln(1 + snr p) or the harmonic mean is known too."""
    if len(law) == 0:
        return log
    return p


@_compiled
def place_of(p: float, device: Device, law: Any) -> float:
    """The place of a power."""
    if len(law) == 0:
        return math.log1p(device.snr * p)
    return p


@_compiled
def log_of(place: float, device: Device, law: Any) -> float:
    """ln(1 + snr p) at a place, or the harmonic mean of the nodes'."""
    if len(law) == 0:
        return place
    log, _, _, _ = expected_log(place, device.snr, law.probability)
    return float(log)


@_compiled
def power_at(place: float, device: Device, law: Any) -> float:
    """The power at a place."""
    p = place
    if len(law) == 0:
        if place >= device.log_max:
            return device.p_max
        p = math.expm1(place) / device.snr
    return min(max(p, device.p_min), device.p_max)


@_compiled
def _most_rate(device: Device) -> float:
    """Energy saved by a second more than the least time."""
    rate = 0.0
    if device.f_min < device.f_max:
        rate = device.capacitance * device.f_max**3
    if device.p_min < device.p_max:
        rate = max(rate, device.rate_max)
    return rate


@_compiled
def _on_expected_time(
    deadline: float, place: float, least: float, log_min: float, device: Device, law: Any
) -> tuple[float, float, float, float]:
    """`on_time` for a gain of which the law is known; the place is the power.

    The root lies between the power at which f must be the largest and that at which it may be the
    smallest. Outside, Newton's method on the concave `expected_log` leads to a place just inside;
    inside, it is Newton's method on the logarithm of the condition in that of p, which stops short
    of those two.
    """
    cycles, upload, alpha = device.cycles, device.upload, device.capacitance
    f_min, f_max = device.f_min, device.f_max
    p_min, p_max = device.p_min, device.p_max
    if deadline <= least:
        return f_max, p_max, _most_rate(device), 0.0
    both = deadline - device.download  # time to compute and upload
    if cycles / f_min + upload / log_min <= both:
        return f_min, p_min, 0.0, 0.0
    log_low = upload / (both - cycles / f_max)
    log_high = upload / (both - cycles / f_min) if both > cycles / f_min else math.inf
    aim_low, aim_high = (1.0 + _INSIDE) * log_low, (1.0 - _INSIDE) * log_high
    snr, weights = device.snr, law.probability
    bottom, top = 0.0, math.inf
    p = min(max(place, p_min), p_max)
    rest, rate, growth, log, slope = 0.0, 0.0, 0.0, 0.0, 0.0
    for _ in range(100):
        log, slope, rate, growth = expected_log(p, snr, weights)
        rest = both - upload / log
        to_low, to_high = p + (aim_low - log) / slope, p + (aim_high - log) / slope
        if log < log_low:
            excess, new = -1.0, to_low
        elif log > log_high:
            excess, new = 1.0, to_high
        else:
            excess = math.log(rate * rest**3 / (alpha * cycles**3))
            steep = growth * p / rate + 3.0 * upload * slope * p / (log * log * rest)
            new = p * math.exp(-excess / steep)
            new = max(new, to_low) if excess > 0.0 else min(new, to_high)
        if excess >= 0.0:
            top = p
        if excess <= 0.0:
            bottom = p
        if bottom >= top:
            break
        new = min(max(new, p_min), p_max)
        if not bottom < new < top:  # an end of the range is tried once
            new = 0.5 * (max(bottom, p_min) + min(top, p_max))
        moved = abs(new - p)
        p = new
        if moved <= 1e-14 * p:
            break
    log, slope, rate, growth = expected_log(p, snr, weights)
    rest = both - upload / log
    if log >= (1.0 - 3.0 * _INSIDE) * log_high:
        f = f_min
    elif log <= (1.0 + 3.0 * _INSIDE) * log_low:
        f = f_max
    else:
        f = min(max(cycles / rest, f_min), f_max)
    inside = p_min < p < p_max
    if not inside:
        rate = alpha * f**3
    stretch = 0.0  # the time that a unit of the rate brings
    if f_min < f < f_max:
        stretch += cycles / (3.0 * f * rate)
    if inside:
        stretch += upload * slope / (log * log * growth)
    return f, p, rate, 1.0 / stretch if stretch > 0.0 else 0.0


@_compiled
def on_time(
    deadline: float, place: float, least: float, log_min: float, device: Device, law: Any
) -> tuple[float, float, float, float]:
    """The f and the place of the p with which a device meets the deadline at the least energy.

    Where f is in the inside of its range, the energy saved by a second more to compute is
    alpha f^3, the price of Theorem 2; where p is, that saved by a second more to upload is
    ((1 + x) ln(1 + x) - x) / snr with x = snr p, the price of Theorem 3. The time is split so that
    the two agree, as far as the ranges allow: one root, sought from ``place`` on, which may be any
    number. A device that cannot meet the deadline, because ``least`` is its least time, goes as
    fast as it can; ``log_min`` is ln(1 + snr p_min), or the harmonic mean of the nodes'.

    Returns
    -------
    f, place : float
        Frequency [Hz], and the place of the power.
    rate : float
        Energy saved by a second more, ``1 / y`` [J/s].
    bend : float
        How much that falls with each second [J/s^2].
    """
    if len(law) > 0:
        f, p, rate, bend = _on_expected_time(deadline, place, least, log_min, device, law)
        return f, p, rate, bend
    cycles, upload, log, snr = device.cycles, device.upload, place, device.snr
    alpha, f_min, f_max = device.capacitance, device.f_min, device.f_max
    log_max = device.log_max
    if deadline <= least:
        return f_max, log_max, _most_rate(device), 0.0
    both = deadline - device.download  # time to compute and upload
    if cycles / f_min + upload / log_min <= both:
        return f_min, log_min, 0.0, 0.0
    low = max(log_min, upload / (both - cycles / f_max))
    high = log_max
    if both > cycles / f_min:
        high = min(log_max, upload / (both - cycles / f_min))
    high = max(low, high)
    bottom, top = 0.0, math.inf
    log = min(max(log, low), high)
    price_p, rest, growth = 0.0, 0.0, 0.0
    for _ in range(100):
        growth = math.exp(log)
        price_p = power_equation(math.expm1(log), log) / snr
        rest = both - upload / log
        excess = math.log(price_p * rest**3 / (alpha * cycles**3))
        if excess >= 0.0:
            top = log
        if excess <= 0.0:
            bottom = log
        if bottom >= top:
            break
        slope = growth * log / (snr * price_p) + 3.0 * upload / (log * log * rest)
        new = min(max(log - excess / slope, low), high)
        if not bottom < new < top:  # an end of the range is tried once
            new = 0.5 * (max(bottom, low) + min(top, high))
        moved = abs(new - log)
        log = new  # an end of the range exactly, where the search ends there
        if moved <= 1e-14 * log:
            break
    f = min(max(cycles / rest, f_min), f_max)
    inside = log_min < log < log_max
    rate = price_p if inside else alpha * f**3
    stretch = 0.0  # the time that a unit of the rate brings
    if f_min < f < f_max:
        stretch += cycles / (3.0 * f * rate)
    if inside:
        stretch += upload * snr / (log**3 * growth)
    return f, log, rate, 1.0 / stretch if stretch > 0.0 else 0.0

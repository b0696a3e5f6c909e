"""The weights lambda and V from their scale factors, Section VII-B of the paper."""

from __future__ import annotations

import math
import warnings

import numpy as np

from fl_edge_env import lyapunov, physics
from fl_edge_env.typing import FloatArray, System

# RMS of the excess a0 over RMS of the budgets, below which calibrating V raises a warning; the
# presets have 0.2 and more.
_LEAST_EXCESS = 0.05


def calibrate(system: System, *, lambda_: float | None, V: float | None) -> tuple[float, float]:
    """Return lambda and V, as given or calibrated at mid-range f and p and the mean gain.

    ``lambda = mu T0 / F0``, where T0 is the mean device time at this point and F0 the sampling
    error at ``q = w``, which is one. ``V = nu mean(a0**2) / (T0 + lambda F0)``, where a0 is the
    energy excess at this point and ``q = 1/N``. Raises `ValueError` if they are not finite or V is
    zero, and warns about budgets and deadlines that cannot be met.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        device_time, device_energy = physics.time_and_energy(
            system.mean_gain, system.f_mid, system.p_mid, system
        )
        time_0 = float(np.mean(device_time))
        error_0 = float(lyapunov.sampling_error(system.weights, system.weights))
        if lambda_ is None:
            lambda_ = system.mu * time_0 / error_0
        if V is None:
            uniform = np.full(system.num_devices, 1.0 / system.num_devices)
            participation = physics.participation_probability(uniform, system.cohort_size)
            excess_0 = lyapunov.energy_excess(participation, device_energy, system)
            square = float(np.mean(excess_0**2))
            V = system.nu * square / (time_0 + lambda_ * error_0)
            _warn_of_collapse(V, float(np.sqrt(square)), system.energy_budget_j)
        _warn_of_budget(system)
        _warn_of_deadline(system)
    if not (lambda_ < math.inf and 0 < V < math.inf):
        raise ValueError(
            f"the fields give lambda = {lambda_} and V = {V}, which must be finite, and V "
            "positive: choose another mu, nu or energy_budget_j"
        )
    return lambda_, V


def check_finite(system: System, least_gain: float) -> None:
    """Raise `ValueError` if a time or an energy of the system overflows."""
    worst = np.full(system.num_devices, least_gain)
    with np.errstate(all="ignore"):
        time, _ = physics.time_and_energy(worst, system.f_min, system.p_min, system)
        _, energy = physics.time_and_energy(worst, system.f_max, system.p_max, system)
    for what, values in (("a time", time), ("an energy", energy)):
        if not np.isfinite(values).all():
            raise ValueError(
                f"the fields give {what} of {values.max()} for a device in a round, which must be "
                "finite: choose less extreme values"
            )


def _warn_of_collapse(V: float, excess: float, budget: FloatArray) -> None:
    """Warn if the paper's calibration of V breaks down.

    V0 is proportional to the squared energy excess at the nominal point. If this point just meets
    the budget, V vanishes, and with it the weight of time against energy.
    """
    scale = float(np.sqrt(np.mean(budget**2)))
    if excess < _LEAST_EXCESS * scale:
        warnings.warn(
            f"at mid-range f and p the expected energy is within {excess:.3g} J of the budget of "
            f"{scale:.3g} J: the paper's calibration gives V = {V:.3g} J^2/s, so small that "
            "policies hardly value time; give V directly, or another budget",
            stacklevel=2,
        )


def _warn_of_budget(system: System) -> None:
    """Warn if no sampled decision meets the budgets at the mean gain.

    A device with energy E at its least f and p meets its budget if it is drawn with a probability
    of at most ``budget / E``. The budgets can be met if the corresponding q sum to at least one
    over the devices.
    """
    _, least_energy = physics.time_and_energy(system.mean_gain, system.f_min, system.p_min, system)
    share = np.minimum(system.energy_budget_j / least_energy, 1.0)
    q = -np.expm1(np.log1p(-share[share < 1.0]) / system.cohort_size)
    total = float(q.sum()) + int(np.count_nonzero(share == 1.0))
    if total < 1.0:
        units = ""
        if total < 1e-3:
            units = f": does the noise of {system.noise_power_w:g} W belong to these gains?"
        warnings.warn(
            "no sampled decision meets the energy budgets: at the mean gain, the least frequency "
            f"and the least power, they cover {100 * total:.3g} % of the draws; budgets of "
            f"{float(np.mean(system.energy_budget_j)) / total:.3g} J on average would "
            f"suffice{units}",
            stacklevel=2,
        )


def _warn_of_deadline(system: System) -> None:
    """Warn if every device is late at the mean gain, even at full speed."""
    least, _ = physics.time_and_energy(system.mean_gain, system.f_max, system.p_max, system)
    if float(least.min()) > system.deadline_s:
        warnings.warn(
            f"no device meets the deadline of {system.deadline_s:.6g} s at the mean gain: the "
            f"fastest, device {int(least.argmin())}, takes {float(least.min()):.6g} s at its "
            "largest frequency and power; give a later deadline_s",
            stacklevel=2,
        )

"""The weights lambda and V from their scale factors, Section VII-B of the paper."""

from __future__ import annotations

import numpy as np

from fl_edge_env import lyapunov, physics
from fl_edge_env.typing import FloatArray


def calibrate(
    system: lyapunov.System, gain: FloatArray, f: FloatArray, p: FloatArray, mu: float, nu: float
) -> tuple[float, float]:
    """The weights lambda and V at a nominal operating point of the system.

    ``lambda = mu T0 / F0`` with T0 the mean device time at the point, and F0 the sampling error
    at ``q = w``, which is one. ``V = nu mean(a0**2) / (T0 + lambda F0)`` with a0 the energy
    excess at the point and ``q = 1/N``. The paper's point is the middle of the frequency and
    power ranges at the mean gain.

    Parameters
    ----------
    system : System
        The system; its `lambda_` and `V` are not read.
    gain, f, p : ndarray, shape (N,)
        The point: channel gains, frequencies [Hz] and powers [W].
    mu, nu : float
        Scale factors of lambda and V.

    Returns
    -------
    lambda_ : float
        Weight of the sampling error [s].
    V : float
        Weight of the penalty against the queues [J^2/s].
    """
    device_time, device_energy = physics.time_and_energy(gain, f, p, system)
    time_0 = float(np.mean(device_time))
    error_0 = float(lyapunov.sampling_error(system.weights, system.weights))
    lambda_ = mu * time_0 / error_0
    uniform = np.full(gain.shape, 1.0 / gain.size)
    participation = physics.participation_probability(uniform, system.cohort_size)
    _, excess_0 = lyapunov.energy_excess(participation, device_energy, system)
    return lambda_, nu * float(np.mean(excess_0**2)) / (time_0 + lambda_ * error_0)

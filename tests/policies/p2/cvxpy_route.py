"""P2 along the paper's route, with CVX for the sampling subproblem: the independent reference.

Nothing is shared with the solver: f comes from its formula, p from the Lambert function, and q
from a general convex solver (Clarabel through cvxpy). It is three orders of magnitude slower.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import lambertw

from fl_edge_env import physics
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray
from tests.support import drift_plus_penalty


def solve_p2_cvxpy(
    channel_gain: FloatArray, queue: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Algorithm 2 with a fixed number of iterations and cvxpy in the inner loop; lambda > 0.

    The inner iterations are SUM steps after each update of f and p. Returns f, p and q, shape (N,),
    and the drift-plus-penalty.
    """
    import cvxpy as cp  # takes seconds, which tests of other things need not wait for

    num_devices = scenario.num_devices
    cohort_size = scenario.cohort_size
    slope = cp.Parameter(num_devices, nonneg=True)
    error = cp.Parameter(num_devices, nonneg=True)
    variable = cp.Variable(num_devices, pos=True)
    problem = cp.Problem(
        cp.Minimize(slope @ variable + error @ cp.inv_pos(variable)),
        [cp.sum(variable) == 1, variable <= 1],
    )
    q = np.full(num_devices, 1.0 / num_devices)
    for _ in range(3):
        f, p = _resources(channel_gain, queue, q, scenario)
        time, energy = physics.time_and_energy(channel_gain, f, p, scenario)
        for _ in range(2):
            concave_slope = queue * energy * cohort_size * (1 - q) ** (cohort_size - 1)
            slope_value = scenario.V * time + concave_slope
            error_value = scenario.V * scenario.lambda_ * scenario.weights**2
            # Numbers of order one: q is about 1/N, and only the ratio of the terms matters.
            scale = float(np.mean(slope_value))
            slope.value = slope_value / scale
            error.value = error_value / scale
            problem.solve(solver=cp.CLARABEL)
            q = np.maximum(variable.value, np.finfo(np.float64).tiny)
            q = q / q.sum()
    f, p = _resources(channel_gain, queue, q, scenario)
    # P2's, whatever the scenario counts.
    system = scenario.replace(latency="proxy", deadline_s=math.inf)
    objective = drift_plus_penalty(channel_gain, queue, f, p, q, system)
    return f, p, q, float(objective)


def _resources(
    channel_gain: FloatArray, queue: FloatArray, q: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Theorems 2 and 3; an empty queue leaves the largest frequency and power."""
    price = queue * physics.participation_probability(q, scenario.cohort_size) / (scenario.V * q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        f = np.cbrt(1.0 / (price * scenario.capacitance))
        target = channel_gain / (price * scenario.noise_power_w)
        log = 1.0 + np.real(lambertw((target - 1.0) / np.e, 0))  # ln(1 + h p / N0)
        p = np.expm1(log) * scenario.noise_power_w / channel_gain
    p = np.where(np.isfinite(p), p, np.inf)
    return (
        np.clip(f, scenario.f_min, scenario.f_max),
        np.clip(p, scenario.p_min, scenario.p_max),
    )

"""Checked rounds and systems as arrays for the compiled solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_edge_env.checks import NOT_NEGATIVE, POSITIVE, Range, check_all, finite_number, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray

T = TypeVar("T", bound=np.generic)

# Devices times rows that are worth another thread: about half a millisecond.
_WORTH_A_THREAD = 4000

# Rows of the constants, (CONSTANTS, N); `policies.solvers.device` adds the rows of a round.
CYCLES, UPLOAD, WAITING, NOISE, CAPACITANCE, F_MIN, F_MAX, P_MIN, P_MAX = range(9)
F_SCALE = 9  # 1 / (max - min), or zero if the range is a point
P_SCALE = 10
ERROR = 11  # V lambda w^2
BUDGET = 12  # the energy budget
CONSTANTS = 13


class Rounds(NamedTuple):
    """A batch of rounds and its system, as passed to the kernels."""

    gain: FloatArray  # (B, N)
    queue: FloatArray  # (B, N)
    constants: FloatArray  # (CONSTANTS, N)
    V: float
    cohort_size: int

    def run(self, function: Callable[..., None], *groups: tuple[object, ...]) -> None:
        """Call ``function(begin, end, rounds, *groups)`` for all rounds, in threads if that pays.

        numba recognises plain tuples faster than named ones, so the kernel restores the names.
        """
        count, size = self.queue.shape
        arguments = tuple(self), *map(tuple, groups)
        parts = min(count, count * size // _WORTH_A_THREAD)
        if parts > 1:
            from numba import config

            parts = min(parts, config.NUMBA_NUM_THREADS)  # fewer in the workers of joblib
        if parts <= 1:
            function(0, count, *arguments)
            return
        ends = [count * part // parts for part in range(parts + 1)]
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(lambda part: function(*part, *arguments), pairwise(ends)))


def check_rounds(
    channel_gain: ArrayLike, queue: ArrayLike, scenario: Scenario, V: float | None = None
) -> tuple[Rounds, tuple[int, ...]]:
    """Check gains and queues [J]; return the rounds and the shape (N,) or (B, N).

    V is the weight of the time, by default the scenario's. The arrays are copies, because the
    caller's may change before a certificate is computed.
    """
    V = scenario.V if V is None else finite_number("V", V)
    gains, queues = check_state(channel_gain, queue, scenario)
    arrays = rows(gains), rows(queues), device_constants(scenario)
    return Rounds(*arrays, V, scenario.cohort_size), gains.shape


def rows(values: NDArray[T]) -> NDArray[T]:
    """Copy (N,) or (B, N) values to the one layout, (B, N), for which the kernels are compiled."""
    return np.array(values, order="C", ndmin=2)


def check_state(
    channel_gain: ArrayLike, queue: ArrayLike, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Gains and queues [J] as arrays of shape (N,) or (B, N).

    Raises `ValueError` if a shape is wrong, a gain is not positive and finite, or a queue is
    negative or not finite.
    """
    gains = real_array("channel_gain", channel_gain)
    if gains.ndim not in (1, 2) or gains.shape[-1] != scenario.num_devices or not gains.size:
        raise ValueError(
            f"channel_gain must have shape (N,) or (B, N) with N = {scenario.num_devices} and "
            f"at least one row, got {gains.shape}"
        )
    check_all("channel_gain", gains, POSITIVE)
    return gains, like_gains("queue", queue, gains.shape, NOT_NEGATIVE)


def like_gains(name: str, value: ArrayLike, shape: tuple[int, ...], allowed: Range) -> FloatArray:
    """Numbers checked for a range, in the shape of the gains; (N,) may serve a batch."""
    values = real_array(name, value)
    if values.shape != shape and values.shape != shape[-1:]:
        raise ValueError(f"{name} must have the shape of channel_gain, {shape}, got {values.shape}")
    check_all(name, values, allowed)
    return values if values.shape == shape else np.broadcast_to(values, shape)


# The last scenario and its table. To compare the fields of equal scenarios, such as a copied
# policy's, would take longer than a decision.
_LAST: list[tuple[Scenario | None, FloatArray]] = [(None, np.empty(0))]


def device_constants(scenario: Scenario) -> FloatArray:
    """The table of constants: the devices' properties that all rounds share."""
    known, table = _LAST[0]
    if known is scenario:
        return table
    f_range = scenario.f_max - scenario.f_min
    p_range = scenario.p_max - scenario.p_min
    table = np.zeros((CONSTANTS, scenario.num_devices))
    upload = scenario.upload_bits * scenario.cohort_size * math.log(2) / scenario.bandwidth_hz
    rows_of = {
        CYCLES: scenario.cycles_per_round,
        UPLOAD: upload,
        WAITING: scenario.waiting_time,
        NOISE: scenario.noise_power_w,
        CAPACITANCE: scenario.capacitance,
        F_MIN: scenario.f_min,
        F_MAX: scenario.f_max,
        P_MIN: scenario.p_min,
        P_MAX: scenario.p_max,
        ERROR: scenario.V * scenario.lambda_ * scenario.weights**2,
        BUDGET: scenario.energy_budget_j,
    }
    for row, values in rows_of.items():
        table[row] = values
    np.divide(1.0, f_range, out=table[F_SCALE], where=f_range > 0)
    np.divide(1.0, p_range, out=table[P_SCALE], where=p_range > 0)
    _LAST[0] = scenario, table
    return table

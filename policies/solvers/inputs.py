"""The state of a round and the system, checked, as arrays for the compiled solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_edge_env.checks import all_true, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import FloatArray
from policies.solvers.compiled import run_rows

T = TypeVar("T", bound=np.generic)


class Rounds(NamedTuple):
    """The states of a batch of rounds, in arrays as the kernels take them."""

    gain: FloatArray  # (B, N)
    queue: FloatArray  # (B, N)
    scenario: Scenario

    def run(self, function: Callable[..., None], *arguments: object) -> None:
        """Run a function of a kernel over the rounds."""
        *state, scenario = self
        rows, devices = self.queue.shape
        run_rows(function, rows, devices, *state, device_constants(scenario), *arguments)


def check_rounds(
    channel_gain: ArrayLike, queue: ArrayLike, scenario: Scenario
) -> tuple[Rounds, tuple[int, ...]]:
    """The rounds of gains and queues [J], checked, and the shape (N,) or (B, N) of these."""
    gains, queues = check_state(channel_gain, queue, scenario)
    return Rounds(np.atleast_2d(gains), np.atleast_2d(queues), scenario), queues.shape


def check_state(
    channel_gain: ArrayLike, queue: ArrayLike, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Gains and queues [J] of shape (N,) or (B, N) as arrays for the kernels.

    Raises `ValueError` if a shape is wrong, a gain not positive and finite, or a queue negative or
    not finite.
    """
    gains, queues = real_array("channel_gain", channel_gain), real_array("queue", queue)
    if gains.ndim not in (1, 2) or gains.shape[-1] != scenario.num_devices:
        raise ValueError(
            f"channel_gain must have shape (N,) or (B, N) with N = {scenario.num_devices}, "
            f"got {gains.shape}"
        )
    if queues.shape != gains.shape:
        raise ValueError(
            f"queue must have the shape of channel_gain, {gains.shape}, got {queues.shape}"
        )
    if not gains.size:
        raise ValueError(f"channel_gain must hold at least one row, got shape {gains.shape}")
    # Written so that NaN fails the comparisons.
    if not all_true((gains > 0) & (gains < math.inf)):
        raise ValueError(
            f"channel_gain must be positive and finite, got {gains.min()} to {gains.max()}"
        )
    if not all_true((queues >= 0) & (queues < math.inf)):
        raise ValueError(
            f"queue must be finite and not negative, got {queues.min()} to {queues.max()}"
        )
    return for_kernel(gains), for_kernel(queues)


def for_kernel(values: NDArray[T]) -> NDArray[T]:
    """The values as numba has seen them before: for other layouts it would compile anew."""
    flags = values.flags
    return values if flags.c_contiguous and flags.writeable else np.array(values, order="C")


# The scenario asked for last: a hash of the fields can take longer than a decision.
_latest: list[tuple[Scenario | None, FloatArray]] = [(None, np.empty(0))]


def device_constants(scenario: Scenario) -> FloatArray:
    """The first rows of the table of `policies.solvers.device`, in its order."""
    known, constants = _latest[0]  # at once, as other threads may ask too
    if known is not scenario:
        constants = _constants(scenario)
        _latest[0] = scenario, constants
    return constants


@lru_cache(maxsize=32)
def _constants(scenario: Scenario) -> FloatArray:
    ranges = (scenario.f_max - scenario.f_min, scenario.p_max - scenario.p_min)
    with np.errstate(divide="ignore"):
        scales = [np.where(width > 0, 1.0 / width, 0.0) for width in ranges]
    upload = scenario.upload_bits * scenario.cohort_size * math.log(2) / scenario.bandwidth_hz
    rows = [
        scenario.cycles_per_round,
        upload,
        scenario.waiting_time,
        scenario.noise_power_w,
        scenario.capacitance,
        scenario.f_min,
        scenario.f_max,
        scenario.p_min,
        scenario.p_max,
        *scales,
        scenario.V * scenario.lambda_ * scenario.weights**2,
        scenario.energy_budget_j,
    ]
    constants = np.empty((len(rows), scenario.num_devices))
    for row, values in zip(constants, rows, strict=True):
        row[:] = values
    return constants

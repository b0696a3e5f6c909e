"""What counts as a number, and as an observation, in the arguments of the packages."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import TypeGuard

import numpy as np

from fl_edge_env.typing import FloatArray

_FLOAT64 = np.dtype(np.float64)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether `value` is an integer; True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def as_float(value: float) -> float:
    """A real number as a float, infinite where it is beyond their range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def real_array(name: str, value: object) -> FloatArray:
    """Real numbers as a contiguous array of float64; `name` is for the error.

    Contiguous, because the last bit of a sum may depend on the layout.
    """
    if type(value) is np.ndarray and value.dtype is _FLOAT64 and value.flags.c_contiguous:
        return value
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiu":
            raise TypeError("not real numbers")
        with np.errstate(over="ignore"):  # of a wider type, which then become infinite
            return array.astype(np.float64, order="C", copy=False)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold real numbers, got {value!r}") from None


def observed(observation: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Channel gains and queues [J] of an observation, as they are."""
    try:
        return observation["channel_gain"], observation["queue"]
    except (KeyError, TypeError, IndexError):
        got = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise ValueError(
            f"observation must be a mapping with channel_gain and queue, got {got}"
        ) from None

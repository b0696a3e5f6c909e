"""Gains, queues and available devices of an observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import all_true
from fl_edge_env.typing import BoolArray, FloatArray, Observed


def gains_and_queues(observation: Observed) -> tuple[FloatArray, FloatArray]:
    """Return the channel gains and queues [J] of an observation."""
    try:
        return observation["channel_gain"], observation["queue"]
    except (KeyError, TypeError, IndexError):
        got = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise ValueError(
            f"observation must be a mapping with channel_gain and queue, got {got}"
        ) from None


def available_devices(observation: Mapping[str, NDArray[Any]]) -> BoolArray | None:
    """Return the available devices of an observation as bool, or None if all always are.

    The entry ``available``, shape (N,) or (B, N), is 1 for available devices and 0 for the others;
    the info of a round has the same entry. Raises `ValueError` for other numbers or another shape,
    or if a row has no available device.
    """
    if "available" not in observation:
        return None
    given = np.asarray(observation["available"])
    shape = np.shape(observation.get("channel_gain", given))
    available: BoolArray = given == 1
    if given.shape != shape or not all_true(available | (given == 0)):
        raise ValueError(
            f"the observation's available must have shape {shape} and hold 1 for the available "
            f"devices and 0 for the others, got {given.tolist()}"
        )
    if not available.any(axis=-1).all():
        raise ValueError("the observation's available must be 1 for at least one device, got none")
    return available

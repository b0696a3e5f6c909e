"""What learning agents see and do: features and flat actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from fl_edge_env.allocation import Allocation
from fl_edge_env.checks import real_array
from fl_edge_env.features import Features, Scaling
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, Observed


class FlatView:
    """The features that agents see in one system or a batch, and the actions that they return.

    With ``csi="participants"`` it remembers the number and the mean of the gains that each device
    has measured in an episode. They follow from the observations alone: an age of 1 means a new
    measurement.

    Parameters
    ----------
    scenario : Scenario
        The system.
    batch : tuple of int
        Empty for one system, (B,) for a batch.
    """

    def __init__(self, scenario: Scenario, batch: tuple[int, ...] = ()) -> None:
        self.scaling = Scaling(scenario)
        self.batch = batch
        self._num_devices = scenario.num_devices
        # Shrinkage to the channel's mean, which counts as one measurement of every device.
        self._first = float(scenario.channel.mean)
        self._measurements = np.zeros((*batch, scenario.num_devices))
        self._total = np.zeros((*batch, scenario.num_devices))

    def reset(self, mask: BoolArray | None = None) -> None:
        """Forget all measurements; with a mask, shape (B,), only in those systems."""
        for values in (self._measurements, self._total):
            values[() if mask is None else mask] = 0.0

    def see(self, observation: Observed) -> Features:
        """Remember an observation, once each, and return its features, shape (..., N, F)."""
        if "age" in observation:
            new = np.asarray(observation["age"]) == 1.0
            self._measurements += new
            self._total += np.where(new, observation["channel_gain"], 0.0)
        return self.features(observation)

    def features(self, observation: Observed) -> Features:
        """The features of an observation that is already remembered, shape (..., N, F)."""
        if "age" not in observation:
            return self.scaling.features(observation)
        mean = (self._total + self._first) / (self._measurements + 1.0)
        return self.scaling.features(
            {**observation, "measurements": self._measurements, "remembered_gain": mean}
        )

    def rows(self, action: Any) -> Any:
        """Split a flat action into rows, shape (..., 3, N); an allocation stays as it is.

        Raises `ValueError` for another shape.
        """
        if isinstance(action, Allocation):
            return action
        devices = self._num_devices
        shape = (*self.batch, 3 * devices)
        values = real_array("action", action)
        if values.shape != shape:
            raise ValueError(
                f"action must be an Allocation or an array of shape {shape}, the frequencies, then "
                f"the powers, then the scores of {devices} devices, got shape {values.shape}"
            )
        return values.reshape(*self.batch, 3, devices)


def flat_spaces(scaling: Scaling) -> tuple[Box, Box]:
    """Boxes of flat observations, widened to include 0 (TorchRL pads with it), and of actions."""
    box = scaling.feature_space()
    low = np.minimum(box.low, 0.0)
    high = np.maximum(box.high, 0.0)
    action = Box(-1.0, 1.0, (3 * scaling.scenario.num_devices,), np.float32)
    return Box(low.ravel(), high.ravel(), dtype=np.float32), action

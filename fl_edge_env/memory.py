"""Memory of the gains that participants have measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray


class GainMemory:
    """Number and mean of the gains that each device has measured in an episode.

    It follows from the observations alone: an age of 1 means a new measurement. Observations
    without ages stay as they are, as the server knows all gains. The `shape` is that of the
    observed gains, (N,) or (B, N).
    """

    def __init__(self, scenario: Scenario, shape: tuple[int, ...]) -> None:
        # The channel's mean counts as a first measurement of every device, so that a mean is
        # there from the start, and the first gains are not taken for the device's own mean.
        self._first = float(scenario.channel.mean)
        self.measurements: FloatArray = np.zeros(shape)
        self.total: FloatArray = np.zeros(shape)

    def start(self, mask: BoolArray | None = None) -> None:
        """Forget all; with a mask, shape (B,), in those systems alone."""
        for values in (self.measurements, self.total):
            values[() if mask is None else mask] = 0.0

    def note(self, observation: Mapping[str, FloatArray]) -> None:
        """Take up the measurements of the round before; once for each observation."""
        if "age" in observation:
            new = np.asarray(observation["age"]) == 1.0
            self.measurements += new
            self.total += np.where(new, observation["channel_gain"], 0.0)

    def added_to(self, observation: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """The observation with ``measurements`` and ``remembered_gain``, their mean."""
        if "age" not in observation:
            return observation
        mean = (self.total + self._first) / (self.measurements + 1.0)
        return {**observation, "measurements": self.measurements.copy(), "remembered_gain": mean}

"""Memory of the gains measured by participants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray


class GainMemory:
    """Number and mean of the gains that each device has measured in an episode.

    They follow from the observations alone: an age of 1 means a new measurement. Observations
    without ages stay unchanged, as the server then knows all gains. `shape` is the shape of the
    observed gains, (N,) or (B, N).
    """

    def __init__(self, scenario: Scenario, shape: tuple[int, ...]) -> None:
        # Shrinkage to the channel's mean, which counts as one measurement of every device.
        self._first = float(scenario.channel.mean)
        self.measurements: FloatArray = np.zeros(shape)
        self.total: FloatArray = np.zeros(shape)

    def start(self, mask: BoolArray | None = None) -> None:
        """Forget all measurements; with a mask, shape (B,), only in those systems."""
        for values in (self.measurements, self.total):
            values[() if mask is None else mask] = 0.0

    def note(self, observation: Mapping[str, FloatArray]) -> None:
        """Add the measurements of the previous round; call it once for each observation."""
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

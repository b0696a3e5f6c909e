"""Observations and actions of learning agents: features and flat actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from fl_edge_env.allocation import Allocation
from fl_edge_env.checks import real_array
from fl_edge_env.features import Features, Scaling
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, Observed


class FlatView:
    """The features of the devices in one system or a batch.

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
        # Shrinkage to the channel's mean, which counts as one measurement of every device.
        self._first = float(scenario.channel.mean)
        self._measurements = np.zeros((*batch, scenario.num_devices))
        self._total = np.zeros((*batch, scenario.num_devices))
        # The features of the last observation.
        self.current = np.zeros((*self._total.shape, len(self.scaling.names)), dtype=np.float32)

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
        if "age" in observation:
            mean = (self._total + self._first) / (self._measurements + 1.0)
            memory = {"measurements": self._measurements, "remembered_gain": mean}
            observation = {**observation, **memory}
        self.current = self.scaling.features(observation)
        return self.current


class FlatForm:
    """Turns features into an agent's observation, and its action into rows.

    The agent sees the features of all devices in turn and returns the three rows in turn.

    Attributes
    ----------
    spaces : tuple of Box
        Its observation space, shape (N F,), and action space, shape (3 N,).
    agents : tuple of int
        Leading axes of its observations and actions in one system.
    shared : bool
        Whether the spaces have the same shapes for any number of devices.
    """

    agents: tuple[int, ...] = ()
    shared = False
    holds = "the frequencies, then the powers, then the scores of all devices"

    def __init__(self, scaling: Scaling) -> None:
        box = scaling.feature_space()
        actions = Box(-1.0, 1.0, (3 * len(box.low),), np.float32)
        self.spaces = with_zero(box.low.ravel(), box.high.ravel()), actions

    def seen(self, features: Features) -> Features:
        """The agent's observation of features, shape (..., N, F)."""
        return features.reshape(*features.shape[:-2], -1)

    def rows(self, action: FloatArray, features: Features) -> FloatArray:  # noqa: ARG002
        """Turn the action for the features that the agent has seen into rows, (..., 3, N)."""
        return action.reshape(*action.shape[:-1], 3, -1)

    def checked_rows(self, action: Any, features: Features, name: str = "action") -> Any:
        """Check an action, and turn it into rows; an allocation stays as it is."""
        if isinstance(action, Allocation):
            return action
        values = real_array(name, action)
        shape = (*features.shape[:-2], *self.agents, *self.spaces[1].shape)
        if values.shape != shape:
            raise ValueError(
                f"{name} must be an array of shape {shape}, {self.holds}, got shape {values.shape}"
            )
        return self.rows(values, features)


def with_zero(low: NDArray[Any], high: NDArray[Any]) -> Box:
    """A box with these bounds, widened to include 0, with which TorchRL pads."""
    return Box(np.minimum(low, 0.0), np.maximum(high, 0.0), dtype=np.float32)

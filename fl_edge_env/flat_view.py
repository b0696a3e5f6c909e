"""What learning agents see and do: features and flat actions."""

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
    """An agent's spaces: the features of all devices in turn, and the three rows of an action.

    Subclasses have other spaces for the same features and rows.

    Attributes
    ----------
    scaling : Scaling
        Its features, shape (..., N, F).
    observation_space, action_space : Box
        What an agent sees and returns for one system, shapes (N F,) and (3 N,).
    action_shape : tuple of int
        Shape of the action of one system.
    """

    action_holds = "the frequencies, then the powers, then the scores of all devices"

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.observation_space, self.action_space = self._spaces()
        self.action_shape: tuple[int, ...] = self.action_space.shape

    def _spaces(self) -> tuple[Box, Box]:
        box = self.scaling.feature_space()
        action = Box(-1.0, 1.0, (3 * len(box.low),), np.float32)
        return box_with_zero(box.low.ravel(), box.high.ravel()), action

    def seen(self, features: Features) -> Features:
        """What the agent sees of features, shape (..., N, F)."""
        return features.reshape(*features.shape[:-2], -1)

    def rows(self, action: Any, features: Features, name: str = "action") -> Any:
        """Turn an action into rows, shape (..., 3, N); an allocation stays as it is.

        `features` are those that the agent has seen. Raises `ValueError` for another shape.
        """
        if isinstance(action, Allocation):
            return action
        values = real_array(name, action)
        shape = (*features.shape[:-2], *self.action_shape)
        if values.shape != shape:
            raise ValueError(
                f"{name} must be an array of shape {shape}, {self.action_holds}, "
                f"got shape {values.shape}"
            )
        return self._rows(values, features)

    def _rows(self, action: FloatArray, features: Features) -> FloatArray:
        """The rows of an action of the right shape."""
        return action.reshape(*features.shape[:-2], 3, -1)


def box_with_zero(low: NDArray[Any], high: NDArray[Any]) -> Box:
    """A box with these bounds, widened to include 0, with which TorchRL pads."""
    return Box(np.minimum(low, 0.0), np.maximum(high, 0.0), dtype=np.float32)

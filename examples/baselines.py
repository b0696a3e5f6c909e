"""Random actions and the zero action as policies, which agents should surpass.

fl-edge compare --no-train --policies uni-d examples/baselines.py:ZeroAction
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fl_edge_env import Allocation
from fl_edge_env.allocation import decode_action
from policies import Policy


class RandomAction(Policy):
    """Uniform numbers from the box of actions."""

    width = 1.0

    def reset(self, seed: Any) -> None:
        """Start the random numbers of an episode, or of one for each seed."""
        self.rngs = [np.random.default_rng(each) for each in np.atleast_1d(seed)]

    def decide(self, observation: Any) -> Allocation:
        """Decode an action as the environment does."""
        *batch, devices = observation["channel_gain"].shape
        rows = [self.width * rng.uniform(-1, 1, (3, devices)) for rng in self.rngs]
        return decode_action(np.reshape(rows, (*batch, 3, devices)), self.scenario, 2.0)


class ZeroAction(RandomAction):
    """The middle of all ranges, and uniform sampling."""

    width = 0.0

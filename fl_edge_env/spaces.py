"""The observation and action space that a scenario defines."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from fl_edge_env import physics
from fl_edge_env.scenario import Scenario

# Age of a gain not yet measured [rounds], above every other age in episodes of any length.
NEVER_MEASURED = 2.0**31


def observation_space(scenario: Scenario) -> spaces.Dict:
    """``Dict(channel_gain, queue)`` and the entries that options add; see `FLEdgeEnv`.

    A queue grows in a round by at most the largest energy a device can spend (at the largest f and
    p, an equal part of the band and the worst channel) less its budget. Decisions that give a
    device less bandwidth can exceed this bound.
    """
    shape = (scenario.num_devices,)
    channel = scenario.channel
    worst = np.full(shape, channel.gain_min)
    _, largest_energy = physics.time_and_energy(worst, scenario.f_max, scenario.p_max, scenario)
    overshoot = np.maximum(largest_energy - scenario.energy_budget_j, 0.0)
    # A margin for rounding; a queue that never grows still needs an interval of positive width.
    queue_max = (1 + 1e-9) * scenario.num_rounds * overshoot
    queue_max = np.maximum(queue_max, np.finfo(np.float64).tiny)
    parts: dict[str, spaces.Space[Any]] = {
        "channel_gain": spaces.Box(channel.gain_min, channel.gain_max, shape, np.float64),
        "queue": spaces.Box(np.zeros(shape), queue_max, shape, np.float64),
    }
    if scenario.csi == "participants":
        parts["age"] = spaces.Box(1.0, NEVER_MEASURED, shape, np.float64)
    if scenario.objective == "outcome":
        reach = (1 + 1e-9) * scenario.num_rounds  # a round moves a queue by at most one
        parts["participation_queue"] = spaces.Box(-reach, reach, shape, np.float64)
    if scenario.drops_out:
        parts["available"] = spaces.Box(0.0, 1.0, shape, np.float64)
    return spaces.Dict(parts)


def action_space(scenario: Scenario) -> spaces.Box:
    """``Box(-1, 1, (3, N), float32)`` with rows f, p and q."""
    return spaces.Box(-1.0, 1.0, (3, scenario.num_devices), np.float32)

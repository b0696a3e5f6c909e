"""The system: the dataclass, presets, calibration, files and hardware tiers."""

from fl_edge_env.scenario.scenario import Scenario
from fl_edge_env.scenario.tiers import (
    HARDWARE_TIERS,
    with_phones,
    with_proportional_work,
    with_tiers,
)

__all__ = [
    "HARDWARE_TIERS",
    "Scenario",
    "with_phones",
    "with_proportional_work",
    "with_tiers",
]

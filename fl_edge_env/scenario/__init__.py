"""The system: the dataclass, presets, calibration, files and hardware tiers."""

from fl_edge_env.scenario.scenario import REPORT_FIELDS, Scenario
from fl_edge_env.scenario.tiers import (
    HARDWARE_TIERS,
    with_phones,
    with_proportional_work,
    with_tiers,
)

__all__ = [
    "HARDWARE_TIERS",
    "REPORT_FIELDS",
    "Scenario",
    "with_phones",
    "with_proportional_work",
    "with_tiers",
]

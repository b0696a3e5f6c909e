"""The system: the dataclass, presets, calibration, files and unequal devices."""

from fl_edge_env.scenario.scenario import Scenario
from fl_edge_env.scenario.tiers import with_phones, with_proportional_work

__all__ = ["Scenario", "with_phones", "with_proportional_work"]

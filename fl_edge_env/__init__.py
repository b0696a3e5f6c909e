"""FLEdge: federated learning at the wireless edge as a Gymnasium environment."""

import gymnasium

from fl_edge_env import tasks
from fl_edge_env.allocation import Allocation
from fl_edge_env.channels import (
    CellChannel,
    ExponentialChannel,
    LinkChannel,
    MarkovChannel,
    TraceChannel,
    UplinkChannel,
)
from fl_edge_env.env import FLEdgeEnv
from fl_edge_env.flat import FlatEnv, FlatVectorEnv
from fl_edge_env.scenario import Scenario, with_phones, with_proportional_work
from fl_edge_env.simulator import Simulator
from fl_edge_env.vector_env import FLEdgeVectorEnv

__all__ = [
    "Allocation",
    "CellChannel",
    "ExponentialChannel",
    "FLEdgeEnv",
    "FLEdgeVectorEnv",
    "FlatEnv",
    "FlatVectorEnv",
    "LinkChannel",
    "MarkovChannel",
    "Scenario",
    "Simulator",
    "TraceChannel",
    "UplinkChannel",
    "with_phones",
    "with_proportional_work",
]

_PLAIN = "fl_edge_env.env:FLEdgeEnv", "fl_edge_env.vector_env:FLEdgeVectorEnv"
_FLAT = "fl_edge_env.flat:make_flat", "fl_edge_env.flat:make_flat_vector"


def _register(name: str, entry_points: tuple[str, str], **keywords: object) -> None:
    single, batch = entry_points
    gymnasium.register(
        id=name,
        entry_point=single,
        vector_entry_point=batch,
        order_enforce=False,  # the environment itself reports a missing reset
        disable_env_checker=True,  # the tests run the checker; here it would slow every step
        kwargs=keywords,
    )


_register("FLEdge-v0", _PLAIN)
_register("FLEdgeFlat-v0", _FLAT)
_register("FLEdgeRule-v0", _FLAT, rule=True)
_register("FLEdgeCMDP-v0", _FLAT, objective="outcome")
for _name, _task in tasks.TASKS.items():
    _register(_name, _FLAT, **_task.fields)

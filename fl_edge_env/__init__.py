"""FLEdge: federated learning at the wireless edge as a Gymnasium environment."""

from gymnasium.envs.registration import register

from fl_edge_env.allocation import Allocation
from fl_edge_env.channels import (
    CellChannel,
    ExponentialChannel,
    MarkovChannel,
    RateTraceChannel,
    TraceChannel,
    UplinkChannel,
)
from fl_edge_env.env import FLEdgeEnv
from fl_edge_env.flat import FlatEnv, FlatVectorEnv
from fl_edge_env.scenario import Scenario, with_phones, with_proportional_work, with_tiers
from fl_edge_env.simulator import Simulator
from fl_edge_env.tasks import TASKS
from fl_edge_env.vector_env import FLEdgeVectorEnv

__all__ = [
    "Allocation",
    "CellChannel",
    "ExponentialChannel",
    "FLEdgeEnv",
    "FLEdgeVectorEnv",
    "FlatEnv",
    "FlatVectorEnv",
    "MarkovChannel",
    "RateTraceChannel",
    "Scenario",
    "Simulator",
    "TraceChannel",
    "UplinkChannel",
    "with_phones",
    "with_proportional_work",
    "with_tiers",
]

_PLAIN = "fl_edge_env.env:FLEdgeEnv", "fl_edge_env.vector_env:FLEdgeVectorEnv"
_FLAT = "fl_edge_env.flat:make_flat", "fl_edge_env.flat:make_flat_vector"

for name, (single, batch), fields in (
    ("FLEdge-v0", _PLAIN, {}),
    ("FLEdgeFlat-v0", _FLAT, {}),
    ("FLEdgeCMDP-v0", _FLAT, {"objective": "outcome"}),
    *((name, _FLAT, task.fields) for name, task in TASKS.items()),
):
    register(
        id=name,
        entry_point=single,
        vector_entry_point=batch,
        order_enforce=False,  # the environment itself reports a missing reset
        disable_env_checker=True,  # the tests run the checker; here it would slow every step
        kwargs=fields,
    )

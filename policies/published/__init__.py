"""Algorithms that other groups have published, by the rules of their papers."""

from policies.published.bc_bn2 import UpdateAware
from policies.published.fedl import FEDL, FEDLResources
from policies.published.greedy_latency import GreedyLatency
from policies.published.hungarian import Hungarian
from policies.published.min_energy import LeastEnergy, MinEnergy
from policies.published.ocean import OCEAN

__all__ = [
    "FEDL",
    "OCEAN",
    "FEDLResources",
    "GreedyLatency",
    "Hungarian",
    "LeastEnergy",
    "MinEnergy",
    "UpdateAware",
]

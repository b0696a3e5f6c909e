"""Channel models: how the gain between each device and the server evolves over rounds."""

from fl_edge_env.channels.cell import CellChannel
from fl_edge_env.channels.exponential import ExponentialChannel
from fl_edge_env.channels.links import LinkChannel
from fl_edge_env.channels.markov import MarkovChannel
from fl_edge_env.channels.protocol import ChannelModel
from fl_edge_env.channels.trace import TraceChannel
from fl_edge_env.channels.uplink import UplinkChannel

__all__ = [
    "CellChannel",
    "ChannelModel",
    "ExponentialChannel",
    "LinkChannel",
    "MarkovChannel",
    "TraceChannel",
    "UplinkChannel",
]

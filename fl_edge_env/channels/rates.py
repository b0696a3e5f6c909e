"""Recorded rates, replayed as channel gains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fl_edge_env.channels.trace import TraceChannel, read_trace
from fl_edge_env.channels.uplink import RateReference
from fl_edge_env.checks import read_only
from fl_edge_env.typing import FloatArray


@dataclass(frozen=True, eq=False)
class RateTraceChannel(RateReference, TraceChannel):
    """Replay recorded upload rates, starting over after the last round.

    A rate is converted to the gain with which a device that transmits with `reference_power_w` in a
    bandwidth of `share_hz` has this rate; see `fl_edge_env.channels.uplink.RateReference`. With
    another power or bandwidth its rate differs.

    Parameters
    ----------
    path : str
        File as in `TraceChannel`, with the column ``rate_bps`` [bit/s] instead of ``gain``.
    share_hz : float
        Bandwidth in which the rates were measured, or are assumed to have been [Hz].
    reference_power_w : float
        Transmission power of the measurement, or the assumed one [W].
    noise_power_w : float
        Noise power in a bandwidth of `share_hz` [W]. It should be `share_hz` times the scenario's
        `noise_density_w_hz`, or its `noise_power_w` if it has no density.

    Raises
    ------
    ValueError
        If the file is missing or malformed, or a parameter is outside its range.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        TraceChannel.__post_init__(self)

    @cached_property
    def trace(self) -> FloatArray:
        """The gains of the recorded rates, shape (rounds, N)."""
        return read_only(self.gain_of_rate(read_trace(Path(self.path), "rate_bps")))

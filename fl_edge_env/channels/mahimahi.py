"""Mahimahi's recorded links, as traces of channel gains.

A file of Mahimahi [1]_ (such as ``*.up``) has a line for each packet of 1500 bytes that the link
can send: the time in milliseconds since the start. After the last time it begins again.

References
----------
.. [1] Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015;
   ``mm-link(1)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fl_edge_env.channels.trace import MOST_GAINS, TraceChannel
from fl_edge_env.channels.uplink import gain_of_rate
from fl_edge_env.checks import finite_number, positive_integer
from fl_edge_env.files import as_value_error, atomic_path, check_regular
from fl_edge_env.typing import FloatArray, IntArray

_PACKET_BITS = 8 * 1500
# A line has at most so many characters: 300 years in milliseconds.
_MOST_DIGITS = 13


def read_packets(path: str | Path) -> IntArray:
    """Times at which a link of Mahimahi can send a packet [ms], shape (packets,), ascending.

    A file has one time in a line, the last of which is its duration, and begins again after it.
    Raises `ValueError` for another.
    """
    with as_value_error(f"cannot read the packets of {str(path)!r}: "):
        check_regular(Path(path))
        lines = Path(path).read_text(encoding="ascii").splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not (text.isdigit() and len(text) <= _MOST_DIGITS):
                raise ValueError(f"line {number} must be a time in milliseconds, got {line[:40]!r}")
        times = np.array([int(line) for line in lines], dtype=np.int64)
        if not times.size or times[-1] == 0:
            raise ValueError("it must end at a time above zero")
        if (falls := np.flatnonzero(np.diff(times) < 0)).size:
            before, after = times[falls[0] : falls[0] + 2]
            raise ValueError(
                f"times must ascend, got {after} after {before} in line {falls[0] + 2}"
            )
    return times


def mean_rates(times: IntArray, window_s: float, count: int) -> FloatArray:
    """Mean rates of a link over successive windows of `window_s` seconds [bit/s], shape (count,).

    `times` are those of `read_packets`, which begin again after the last. A packet at the edge of
    two windows belongs to the earlier.
    """
    window_ms = 1e3 * finite_number("window_s", window_s)
    edges = np.round(window_ms * np.arange(positive_integer("count", count) + 1), 6)
    turns, rest = np.divmod(edges, float(times[-1]))
    # A packet at time zero is that of the turn's beginning, and not of the end before it.
    packets = np.where(rest > 0, np.searchsorted(times, rest, side="right"), 0)
    return _PACKET_BITS * np.diff(turns * times.size + packets) / window_s


def record_mahimahi(
    links: Sequence[str | Path],
    path: str | Path,
    *,
    window_s: float,
    rounds: int | None = None,
    share_hz: float = 5e6,
    reference_power_w: float = 0.1,
    noise_power_w: float = 0.01,
    least_rate_bps: float = 1e4,
) -> TraceChannel:
    """Write a trace of gains in which each device has one of Mahimahi's links.

    A round of the trace is a window. As in `UplinkChannel` the gain is the one with which a
    device that sends with a reference power in a reference bandwidth has the mean rate of the
    window.

    Parameters
    ----------
    links : sequence of str or Path
        A file of Mahimahi for each device; one may appear more than once.
    path : str or Path
        The CSV file to write, as `TraceChannel` reads it.
    window_s : float
        Length of a window [s], about that of a round.
    rounds : int, optional
        Number of windows; by default those that begin within the longest file.
    share_hz, reference_power_w, noise_power_w : float
        The reference; see `UplinkChannel`.
    least_rate_bps : float
        Takes the place of smaller rates [bit/s], because gains are positive and a window may have
        no packet.

    Returns
    -------
    TraceChannel
        Of the written file.

    Raises
    ------
    ValueError
        If there is no link, a file is not of the form, a parameter is wrong, a gain is not
        finite, or the trace cannot be written.
    """
    finite_number("window_s", window_s)
    finite_number("share_hz", share_hz)
    finite_number("reference_power_w", reference_power_w)
    finite_number("noise_power_w", noise_power_w)
    finite_number("least_rate_bps", least_rate_bps)
    if Path(path).suffix != ".csv":
        raise ValueError(f"path must end in .csv, got {str(path)!r}")
    if isinstance(links, (str, Path)) or not links:
        raise ValueError(f"links must be one or more files of Mahimahi, got {links!r}")
    recorded = [read_packets(link) for link in links]
    if rounds is None:
        longest = max(int(times[-1]) for times in recorded)
        windows = 1e-3 * longest / window_s  # infinite for a very short window
    else:
        windows = positive_integer("rounds", rounds)
    if windows * len(recorded) > MOST_GAINS:
        raise ValueError(
            f"the trace would have {windows:.3g} rounds of {len(recorded)} devices, more than "
            f"{MOST_GAINS} gains: choose a larger window_s, or fewer rounds"
        )
    count = math.ceil(windows)
    rates = np.stack([mean_rates(times, window_s, count) for times in recorded], axis=1)
    with np.errstate(over="ignore"):
        gains = gain_of_rate(
            np.maximum(rates, least_rate_bps),
            share_hz=share_hz,
            power_w=reference_power_w,
            noise_power_w=noise_power_w,
        )
    if not np.isfinite(gains).all():
        raise ValueError(
            f"a rate of {rates.max():g} bit/s needs a gain without bounds in a share of "
            f"{share_hz:g} Hz: choose a larger share_hz"
        )
    rows = (f"{t},{n},{gain!r}" for (t, n), gain in np.ndenumerate(gains.astype(object)))
    with atomic_path(Path(path)) as temporary:
        temporary.write_text("\n".join(("round,device,gain", *rows)) + "\n", encoding="ascii")
    return TraceChannel(str(path))

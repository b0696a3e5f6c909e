"""Measured links, replayed as channel gains."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from fl_edge_env.channels.recorded import RecordedChannel, Recording
from fl_edge_env.channels.uplink import RateReference
from fl_edge_env.checks import NOT_NEGATIVE, finite_number, positive_integer, read_only, set_checked
from fl_edge_env.files import as_value_error, user_path
from fl_edge_env.tables import COUNTED, first_row, read_table
from fl_edge_env.typing import FloatArray, System

_PACKET_BITS = np.float64(8 * 1500)
_UNITS = {"rate [bit/s]": 1.0, "rate [Mbit/s]": 1e6}


@dataclass(frozen=True, eq=False)
class LinkChannel(RecordedChannel):
    """Replay measured links, of which device n has link ``n mod L``, in the order of file names.

    Each device begins at a second drawn from the seed, and moves on by `step_s` in each round. A
    recording starts over after its end. The rate of a round is `upload_bits` of the scenario over
    the time in which the link delivers them from that second on, so an outage is a delay. The gain
    is the one with which a device that transmits with `p_max` in `share_hz` has this rate, see
    `fl_edge_env.channels.uplink.RateReference`.

    Parameters
    ----------
    path : str
        Folder with a file for each link: packet traces ``*.up``, in which a line is a time [ms] at
        which 1,500 bytes could leave [Mahimahi]_, or ``*.csv`` with the columns ``time [s]`` and
        ``rate [bit/s]`` or ``rate [Mbit/s]``, in which a rate lasts until the next time, and the
        last one as long as the one before.
    step_s : int
        Seconds of the recording from one round to the next.
    share_hz : float, optional
        Bandwidth that has the measured rates [Hz]. By default it is B/K: a device in the cohort
        uploads as fast as its link did. With B, a device would need the whole band for that.

    Raises
    ------
    ValueError
        If the folder has no such file, a file is malformed, or a parameter is outside its range.

    References
    ----------
    .. [Mahimahi] Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015.
    """

    path: str
    step_s: int = 20
    share_hz: float | None = None

    def __post_init__(self) -> None:
        vars(self)["path"] = str(self.path)
        set_checked(self, positive_integer, "step_s")
        self._links  # noqa: B018 - read and check them now

    @property
    def step(self) -> int:  # type: ignore[override]
        """Places from one round to the next: a place is a second."""
        return self.step_s

    @cached_property
    def _links(self) -> list[tuple[FloatArray, FloatArray]]:
        folder = user_path(self.path)
        files = sorted(file for file in folder.glob("*") if file.suffix in _READERS)
        if not files:
            raise ValueError(f"the folder of links {self.path!r} has no .up or .csv files")
        links = []
        for file in files:
            with as_value_error(f"cannot read the link {str(file)!r}: "):
                times, bits = _READERS[file.suffix](file)
                if bits[-1] == 0 or times[-1] < self.step_s:
                    raise ValueError(
                        f"it must deliver something, for at least step_s = {self.step_s} s, got "
                        f"{bits[-1]:g} bits in {times[-1]:g} s"
                    )
                links.append((times, bits))
        return links

    def in_system(self, system: System) -> Self:
        """A copy whose gains give the links' rates in a system."""
        band = system.bandwidth_hz / system.cohort_size
        share = finite_number("share_hz", band if self.share_hz is None else self.share_hz)
        reference = RateReference(share, system.p_max.max(), system.noise_power_w * share / band)
        rates = []
        for times, bits in self._links:
            # Without a common divisor with the step, so that a device comes by all seconds.
            seconds = int(times[-1])
            while math.gcd(seconds, self.step_s) > 1:
                seconds -= 1
            rates.append(delivery_rate(times, bits, system.upload_bits)[:seconds])
        gains = read_only(reference.gain_of_rate(np.concatenate(rates)))
        channel = copy.copy(self)
        vars(channel)["recording"] = Recording(gains, np.array([*map(len, rates)]))
        return super(LinkChannel, channel).in_system(system)


def delivery_rate(times: FloatArray, bits: FloatArray, upload_bits: float) -> FloatArray:
    """Mean rate [bit/s] at which a link delivers an upload, from each whole second on.

    The link has delivered `bits`, shape (P,), from zero on, at the `times` [s], from zero on, with
    a constant rate in between. After the last time it starts over.
    """
    start = np.arange(int(times[-1]))
    due = np.interp(start, times, bits) + upload_bits
    turns = np.ceil(due / bits[-1]) - 1
    rest = due - turns * bits[-1]
    after = np.searchsorted(bits, rest).clip(1, len(bits) - 1)  # the earliest time with these bits
    part = (rest - bits[after - 1]) / (bits[after] - bits[after - 1])
    end = turns * times[-1] + times[after - 1] + part * (times[after] - times[after - 1])
    return upload_bits / (end - start)


def _read_packets(file: Path) -> tuple[FloatArray, FloatArray]:
    """Whole seconds of a packet trace, and the bits until each."""
    table = read_table(file, ["time [ms]"], header=False)
    packets = table.numbers("time [ms]", COUNTED)
    table.check("time [ms]", np.diff(packets, prepend=0) >= 0, "not be before the last one")
    seconds = np.arange(packets[-1] // 1000 + 1, dtype=float)
    return seconds, _PACKET_BITS * np.searchsorted(packets, 1000 * seconds)


def _read_rates(file: Path) -> tuple[FloatArray, FloatArray]:
    """Times of a table of rates, from zero on, and the bits until each."""
    rate = next((name for name in _UNITS if name in first_row(file)), " or ".join(_UNITS))
    table = read_table(file, ("time [s]", rate))
    times = table.numbers("time [s]", NOT_NEGATIVE)
    table.check("time [s]", np.diff(times, prepend=-1) > 0, "be after the last one")
    lasts = np.diff(times, append=2 * times[-1] - times[-2:-1])
    bits = _UNITS[rate] * table.numbers(rate, NOT_NEGATIVE) * lasts
    return np.cumsum([0, *lasts]), np.cumsum([0, *bits])


_READERS = {".up": _read_packets, ".csv": _read_rates}

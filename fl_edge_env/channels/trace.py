"""Recorded gains of each round and device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from fl_edge_env.channels.recorded import RecordedChannel, Recording
from fl_edge_env.checks import POSITIVE, Range, read_only
from fl_edge_env.files import as_value_error, user_path
from fl_edge_env.tables import COUNTED, first_row, read_table
from fl_edge_env.typing import FloatArray, System

_GAIN = Range("be positive and finite (for dB: 10 ** (dB / 10))", POSITIVE.holds)


@dataclass(frozen=True, eq=False)
class TraceChannel(RecordedChannel):
    """Replay recorded gains, starting over after the last round.

    An episode begins at a recorded round drawn from its seed, so seeds give different episodes.

    Parameters
    ----------
    path : str
        CSV file with the columns ``round``, ``device`` and ``gain``, where rounds and devices count
        from zero, and each pair appears once; or with a column ``round`` and then one of gains for
        each device.
    apart : bool
        Whether each device begins at a round of its own, because the gains of a recorded round
        were not measured at the same time.

    Raises
    ------
    ValueError
        If the file is missing or malformed.
    """

    path: str
    apart: bool = False

    def __post_init__(self) -> None:
        vars(self)["path"] = str(self.path)
        self.recording  # noqa: B018 - read and check it now

    @cached_property
    def recording(self) -> Recording:  # type: ignore[override]
        """The recorded gains, a series for each device."""
        gains = _read_trace(Path(self.path))
        lengths = np.full(gains.shape[1], len(gains))
        return Recording(read_only(gains.T.ravel()), lengths)

    def device_mean(self, num_devices: int) -> FloatArray:
        """Mean gain of each device, shape (N,); `ValueError` if the trace has another number."""
        recorded = len(self.recording.lengths)
        if num_devices != recorded:
            raise ValueError(
                f"the trace {self.path!r} has {recorded} devices and the scenario "
                f"{num_devices}: set num_devices={recorded}"
            )
        return super().device_mean(num_devices)

    def in_system(self, system: System) -> Self:
        """The channel itself; warns if all runs play the same rounds, or gains cannot be."""
        recorded = int(self.recording.lengths[0])
        if system.num_rounds >= recorded and not self.apart:
            warnings.warn(
                f"each run of {system.num_rounds} rounds plays all {recorded} recorded rounds: "
                "seeds differ only in where they begin, and intervals over seeds mean little; "
                "record more rounds, play fewer, or give TraceChannel(path, apart=True)",
                stacklevel=2,
            )
        return super().in_system(system)


def _read_trace(path: Path) -> FloatArray:
    """Read the gains of a trace file, shape (rounds, N)."""
    with as_value_error(f"cannot read the trace {str(path)!r}: "):
        path = user_path(path)
        header = first_row(path)
        if header[:1] != ["round"] or {"device", "gain"} & {name.strip() for name in header}:
            table = read_table(path, ("round", "device", "gain"))
            devices = table.numbers("device", COUNTED)
            values = table.numbers("gain", _GAIN)
        else:
            table = read_table(path, [*dict.fromkeys(header)])
            devices = np.zeros(len(table.rows))
            values = np.stack([table.numbers(name, _GAIN) for name in header[1:]], axis=1)
        rounds = table.numbers("round", COUNTED)
        order = np.lexsort((devices, rounds))
        _check_pairs(rounds[order], devices[order])
        return values[order].reshape(1 + int(rounds.max()), -1)


def _check_pairs(rounds: FloatArray, devices: FloatArray) -> None:
    """Raise `ValueError` that names the first of sorted pairs that is wrong."""
    for name, values in (("rounds", rounds), ("devices", devices)):
        if values.min() > 0:
            raise ValueError(f"{name} must count from 0, but begin at {values.min():.0f}")
    num_devices = int(devices.max()) + 1
    due = np.divmod(np.arange(len(rounds)), num_devices)
    wrong = (rounds != due[0]) | (devices != due[1])
    place = int(wrong.argmax()) if wrong.any() else len(rounds)
    pair = f"device {place % num_devices} in round {place // num_devices}"
    if wrong.any() and rounds[place] * num_devices + devices[place] < place:
        pair = f"device {devices[place]:.0f} in round {rounds[place]:.0f}"
        raise ValueError(f"it has {pair} twice")
    if place % num_devices or wrong.any():
        raise ValueError(f"it lacks {pair}")

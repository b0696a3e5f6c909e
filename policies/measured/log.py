"""The log of a federation: a row for each participation of a device in a round.

A CSV or Parquet file with the columns of `MEANING`, in SI units and any order; others are ignored.
A CSV file has their names in its first line, and commas between them. Rounds need not be sorted. A
participation that did not finish has no row.

A second table says when devices were available, with a row for each spell: ``device``, and its
beginning and end ``from_s`` and ``to_s`` [s].
"""

from __future__ import annotations

import difflib
import errno
import io
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_edge_env.checks import is_integer, positive_integer
from fl_edge_env.files import as_value_error, check_regular
from fl_edge_env.typing import BoolArray, FloatArray

MEANING = {
    "round": "number of the round, an integer from 0",
    "device": "who took part, an integer or a name; once in a round",
    "start_s": "when the server sent the messages of the round, by a clock that never goes back "
    "[s]; only differences count",
    "samples": "samples of the device",
    "epochs": "passes over them, fractions too",
    "parameters": "parameters of the model",
    "bytes_up": "size of the upload [bytes]",
    "bytes_down": "size of the download [bytes]; 0 if it was not measured",
    "train_s": "time of training [s]",
    "up_s": "time of the upload [s]",
    "down_s": "time of the download [s]; 0 if it was not measured",
    "energy_j": "energy that the device spent [J]; empty if it was not measured",
    "frequency_hz": "CPU frequency [Hz]; empty if it was not measured",
}
OPTIONAL = ("energy_j", "frequency_hz")
COLUMNS = tuple(name for name in MEANING if name not in OPTIONAL)
SPELL_COLUMNS = ("device", "from_s", "to_s")

_ZERO_ALLOWED = ("bytes_down", "down_s")
_CHUNK_ROWS = 50_000
_MOST_COLUMNS, _LONGEST_LINE = 1_000, 1_000_000
_LONGEST_TEXT = 1_000  # bytes of a device's name, or of a number as text
_LARGEST_INTEGER = 2**53  # what a float holds exactly
_LARGEST = 1e15  # of all other numbers, so that sums and squares of them are finite
_NOTHING = ("nan", "NaN")

# Values that far from the others are named: a thousand is the mistake of milliseconds.
_FAR = 300.0
_SLOWEST_BPS = 10_000.0
_SLOWEST_HZ = 1e6
_LONG_PAUSE = 100.0
_LONG_REST_S = 3600.0


class Log(NamedTuple):
    """A checked log.

    Parameters
    ----------
    table : pandas.DataFrame
        The columns of `MEANING`, sorted by round and then device. ``round`` holds integers,
        ``device`` integers or, if not all are, text; the others floats. An optional column is there
        if something was measured, and NaN where it was not.
    left_out : int
        Older rows that were not kept.
    notes : list of str
        What looks suspect, in sentences.
    """

    table: pd.DataFrame
    left_out: int
    notes: list[str]


def read_log(path: str | Path, most_rows: int = 1_000_000) -> Log:
    """Read and check a log.

    The newest rounds with at most `most_rows` rows together are kept, so that a log of any length
    fits in memory. All rows are checked one by one; what lies between rows, the clock and who took
    part twice, in those that are kept.

    Raises
    ------
    ValueError
        If the file is missing, of another form, or holds values that cannot be; the message names
        the file, the line of a CSV file or the row of another, device, round and value.
    """
    path = Path(path)
    most_rows = positive_integer("most_rows", most_rows)
    with as_value_error(f"cannot read the log {str(path)!r}: "):
        unit = _unit(path)
        chunks = (_checked_rows(chunk, unit) for chunk in _read(path, COLUMNS, OPTIONAL))
        table, left_out = _newest(chunks, most_rows)
        return _checked_log(table, left_out, unit)


def check_table(table: pd.DataFrame, what: str) -> Log:
    """Check a table as `read_log` does that of a file; `what` says what it is, for errors."""
    with as_value_error(f"cannot use {what}: "):
        _check_names(table.columns, COLUMNS)
        return _checked_log(_checked_rows(_numbered(table), "row"), 0, "row")


def read_spells(path: str | Path) -> pd.DataFrame:
    """Read and check a table of availability, see `check_spells`."""
    path = Path(path)
    with as_value_error(f"cannot read the availability {str(path)!r}: "):
        table = pd.concat(list(_read(path, SPELL_COLUMNS)))
        return _checked_spells(table, _unit(path))


def check_spells(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """Spells with the columns ``device from_s to_s``, sorted by device and beginning.

    Raises
    ------
    ValueError
        If one ends before it begins, or two of a device overlap.
    """
    with as_value_error(f"cannot use {what}: "):
        _check_names(table.columns, SPELL_COLUMNS)
        return _checked_spells(_numbered(table), "row")


def append_rows(path: str | Path, rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> None:
    """Add the rows of a round to a log in CSV, which is made if it is not there.

    Either all are written or, as on a full disk, none.

    Parameters
    ----------
    path : str or pathlib.Path
        The file. One that is there must have been made by this function.
    rows : pandas.DataFrame or sequence of mappings
        One for each participation, with all that `COLUMNS` names, and what was measured of
        `OPTIONAL`.

    Raises
    ------
    ValueError
        If the rows are such as `read_log` refuses, or cannot be written.
    """
    path = Path(path)
    what = f"log {str(path)!r}"
    _check_csv(path)
    if not len(rows):
        return
    table = check_table(pd.DataFrame(rows), f"the rows for the {what}").table
    header = ",".join(MEANING) + "\n"
    with as_value_error(f"cannot write the {what}: "):
        check_regular(path)
        # In bytes and unbuffered: one write, of which is known how much was written.
        with path.open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                _check_end(file, header.encode())
            text = table.reindex(columns=[*MEANING]).to_csv(
                index=False, header=False, lineterminator="\n"
            )
            content = (text if size else header + text).encode()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except BaseException:  # an interrupt as well
                file.truncate(size)
                raise


def new_log(path: str | Path) -> Path:
    """The path of a log that `append_rows` can begin; else a `ValueError`."""
    path = Path(path)
    _check_csv(path)
    if path.exists():
        raise ValueError(f"the log {str(path)!r} is there already: give another name")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ValueError(
            f"cannot write the log {str(path)!r}: {str(path.parent)!r} is no folder to write to"
        )
    return path


def append_round(
    path: str | Path, number: int, start_s: float, told: Mapping[int, Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Add to a log what devices tell of their participations in a round, as far as that can be.

    As a federation must not end for its log, there is a warning where `append_rows` has an error: a
    device of which something is missing or wrong has no row, and a round that cannot be written
    none at all.

    Parameters
    ----------
    path : str or pathlib.Path
        As of `append_rows`.
    number : int
        Number of the round.
    start_s : float
        When it started [s].
    told : mapping
        For each device all that `COLUMNS` names but ``round``, ``device`` and ``start_s``, and what
        was measured of `OPTIONAL`; all else is ignored.

    Returns
    -------
    dict
        The columns of the rows, but for ``round``, as `policies.measured.read_flower` takes them;
        also those of a round that could not be written. Empty if there are no rows.
    """
    tables, reasons = [], {}
    for device, values in told.items():
        row = {name: values[name] for name in MEANING if name in values}
        row |= {"round": number, "device": device, "start_s": start_s}
        try:
            tables.append(check_table(pd.DataFrame([row]), f"what device {device} tells").table)
        except ValueError as error:
            reasons[device] = str(error)
    if reasons:
        _warn(
            f"no row in the log {str(path)!r} for device {', '.join(map(str, reasons))} in round "
            f"{number}: {next(iter(reasons.values()))}"
        )
    if not tables:
        return {}
    table = pd.concat(tables)
    try:
        append_rows(path, table)
    except ValueError as error:
        _warn(f"round {number} is not in the log: {error}")
    names = [name for name in MEANING if name in table and name != "round"]
    return {name: table[name].to_list() for name in names}


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)  # who called the strategy


def _check_csv(path: Path) -> None:
    if path.suffix == ".parquet":
        raise ValueError(
            f"cannot write the log {str(path)!r} round by round: give a CSV file instead"
        )


def _check_end(file: Any, header: bytes) -> None:
    file.seek(0)
    if file.read(len(header)) != header:
        raise ValueError(f"its first line is not {header.decode().strip()!r}: give another file")
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        raise ValueError("its last line is cut off: remove that line")


def _unit(path: Path) -> str:
    """How a person counts the rows of a file."""
    return "row" if path.suffix == ".parquet" else "line"


def _numbered(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_axis(np.arange(1, len(table) + 1), axis=0)


def _read(
    path: Path, needed: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Parts of a file that fit in memory; the index says line or row as a person counts them."""
    check_regular(path)
    parts = _read_parquet if path.suffix == ".parquet" else _read_csv
    rows = 0
    for part in parts(path, needed, optional):
        rows += len(part)
        yield part
    if not rows:
        raise ValueError("it must have rows, got none")


def _read_csv(path: Path, needed: Sequence[str], optional: Sequence[str]) -> Iterator[pd.DataFrame]:
    with _opened(path) as file:
        if not file.read(1):
            raise ValueError("it is empty")
    with _opened(path) as file:
        # As values: pandas gives names that come twice others.
        first = pd.read_csv(
            file, header=None, nrows=1, dtype=str, keep_default_na=False, encoding="utf-8-sig"
        )
    names = first.iloc[0].to_list()
    _check_names(names, needed)
    if len(names) > _MOST_COLUMNS:  # short rows are filled up
        raise ValueError(f"it has {len(names)} columns, more than {_MOST_COLUMNS}")
    wanted = [name for name in (*needed, *optional) if name in names]
    # All columns are read, as a row with too many fields is only then an error; and the first row
    # beforehand, where it would be but a warning.
    with _opened(path) as file, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            pd.read_csv(file, nrows=1, index_col=False, encoding="utf-8-sig")
        except pd.errors.ParserWarning:
            raise ValueError("line 2 has more fields than the first") from None
    with (
        _opened(path) as file,
        pd.read_csv(
            file,
            chunksize=_CHUNK_ROWS,
            index_col=False,
            dtype={"device": str},
            # Only what is empty is missing: a device may be called NA.
            keep_default_na=False,
            na_values={name: ["", *(() if name == "device" else _NOTHING)] for name in names},
            skip_blank_lines=False,  # else lines would be miscounted
            low_memory=False,
            encoding="utf-8-sig",
        ) as chunks,
    ):
        for chunk in chunks:
            chunk.index += 2
            yield chunk[wanted].dropna(how="all")


class _Lines(io.FileIO):
    """A file of text, refused at a line that is so long that it would fill the memory."""

    _length = 0  # of the line that has not ended

    def readinto(self, buffer: Any) -> int:
        """See `io.FileIO.readinto`."""
        count = super().readinto(buffer) or 0
        data = bytes(memoryview(buffer)[:count])
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._length = count - end if end else self._length + count
        if self._length > _LONGEST_LINE:
            raise ValueError(f"it has a line of more than {_LONGEST_LINE} bytes")
        return count


def _opened(path: Path) -> io.BufferedReader:
    """A file in CSV as it is: what is packed may grow without end."""
    return io.BufferedReader(_Lines(str(path)))  # errors name it


def _read_parquet(
    path: Path, needed: Sequence[str], optional: Sequence[str]
) -> Iterator[pd.DataFrame]:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ValueError(
            "Parquet needs the package pyarrow: install the extra `train`, for example by "
            'pip install -e ".[train]", or give a CSV file'
        ) from None
    first, schema = 1, pq.read_schema(path)
    _check_names(schema.names, needed)
    wanted = [name for name in (*needed, *optional) if name in schema.names]
    kinds = {name: schema.field(name).type for name in wanted}
    for name, kind in kinds.items():
        if pa.types.is_nested(kind):
            raise ValueError(f"{name} must hold numbers or text, got {kind}")
    # Each text once: a small file may repeat a long one in every row.
    text = [name for name, kind in kinds.items() if not pa.types.is_primitive(kind)]
    # A stream of pages, as one group of rows may hold the whole table.
    with pq.ParquetFile(path, read_dictionary=text, buffer_size=2**20, pre_buffer=False) as file:
        # On a damaged file threads of pyarrow may outlive its error, and crash.
        for batch in file.iter_batches(_CHUNK_ROWS, columns=wanted, use_threads=False):
            for name in text:
                if pa.types.is_dictionary(batch[name].type):
                    _check_longest(name, pc.max(pc.binary_length(batch[name].dictionary)).as_py())
            chunk = batch.to_pandas(ignore_metadata=True, use_threads=False)
            chunk.index += first
            first += len(chunk)
            yield chunk


def _check_longest(name: str, length: int | None) -> None:
    if length is not None and length > _LONGEST_TEXT:
        raise ValueError(f"{name} holds a text of {length} bytes, more than {_LONGEST_TEXT}")


def _check_names(names: Collection[str], needed: Sequence[str]) -> None:
    for name in (*needed, *OPTIONAL):
        if list(names).count(name) > 1:
            raise ValueError(f"it has several columns {name}: leave one of them")
    missing = [name for name in needed if name not in names]
    if not missing:
        return
    # By what they look like in small letters.
    spare = {str(name).strip().lower(): str(name) for name in names if name not in MEANING}
    lacking = []
    for name in missing:
        near = difflib.get_close_matches(name, spare, n=1)
        lacking.append(f"{name} (is it {spare[near[0]]!r}?)" if near else name)
    message = f"it must have the columns {', '.join(needed)}; it lacks {', '.join(lacking)}"
    if len(spare) == len(names) == 1 and any(mark in next(iter(spare)) for mark in ";\t"):
        message += ": there must be commas between the columns"
    raise ValueError(message)


def _devices(column: pd.Series) -> Any:
    """Devices as integers, if all are, and else as text; NaN becomes empty text."""
    codes, distinct = pd.factorize(column.to_numpy(dtype=object), use_na_sentinel=False)
    names = [_device(value) for value in distinct]
    if not all(isinstance(name, int) for name in names):
        names = [str(name) for name in names]
    return np.array(names, dtype=np.int64 if names and isinstance(names[0], int) else object)[codes]


def _device(value: object) -> int | str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if is_integer(value):
        value = str(value)
    if not isinstance(value, str):
        return "" if pd.isna(value) else str(value)  # type: ignore[call-overload]
    # As they are written: 007 is a name.
    try:
        number = int(value)
    except ValueError:
        return value
    return number if str(number) == value and -(2**63) <= number < 2**63 else value


def _numbers(column: pd.Series) -> FloatArray:
    """Numbers, NaN where there is something else."""
    if column.dtype.kind not in "iuf":
        # No truth values, dates or text in them.
        column = pd.to_numeric(column.astype(str), errors="coerce")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _checked_rows(table: pd.DataFrame, unit: str) -> pd.DataFrame:
    """The columns of a log, each row checked on its own."""
    checked = {"round": _numbers(table["round"]), "device": _devices(table["device"])}
    whole = (checked["round"] >= 0) & (checked["round"] == np.floor(checked["round"]))
    _refuse(
        "round", "an integer from 0", ~(whole & (checked["round"] < _LARGEST_INTEGER)), table, unit
    )
    _refuse_names(checked["device"], table, unit)
    checked["round"] = checked["round"].astype(np.int64)
    for name in [name for name in MEANING if name in table and name not in checked]:
        values = checked[name] = _numbers(table[name])
        allowed, right = f"at most {_LARGEST:g}", np.abs(values) <= _LARGEST
        if name == "start_s":
            allowed = f"a number {allowed} in size"
        elif name in _ZERO_ALLOWED:
            allowed, right = f"at least zero and {allowed}", right & (values >= 0)
        else:
            allowed, right = f"positive and {allowed}", right & (values > 0)
        if name in OPTIONAL:
            allowed += " or empty"
            right |= table[name].isna().to_numpy()
        else:
            allowed += "; what was not measured has no row"
        _refuse(name, allowed, ~right, table, unit)
    _refuse(
        "down_s",
        "positive where bytes_down is, and 0 where it is 0, which says that the download was not "
        "measured",
        (checked["down_s"] > 0) != (checked["bytes_down"] > 0),
        table,
        unit,
    )
    return pd.DataFrame(checked, index=table.index)[[name for name in MEANING if name in checked]]


def _refuse(name: str, allowed: str, wrong: BoolArray, table: pd.DataFrame, unit: str) -> None:
    """Raise an error about the first wrong row."""
    if not wrong.any():
        return
    row = int(wrong.argmax())
    value = table[name].iloc[row]
    got = "nothing" if pd.isna(value) else repr(value) if isinstance(value, str) else str(value)
    near = [f"{key} {table[key].iloc[row]}" for key in ("device", "round") if key in table.columns]
    raise ValueError(
        f"{name} must be {allowed}; got {got} in {unit} {table.index[row]} ({', '.join(near)})"
    )


def _refuse_names(devices: Any, table: pd.DataFrame, unit: str) -> None:
    if devices.dtype == object:
        printable = np.array([name != "" and name.isprintable() for name in devices], dtype=bool)
        allowed = "an integer or a name in printable characters"
        _refuse("device", allowed, ~printable, table, unit)


def _newest(chunks: Iterable[pd.DataFrame], most_rows: int) -> tuple[pd.DataFrame, int]:
    """The newest whole rounds with at most so many rows, and how many rows are older."""
    kept: list[pd.DataFrame] = []
    rows = held = 0
    left_out_round = -1  # and those before it

    def cut() -> pd.DataFrame:
        nonlocal left_out_round
        table = pd.concat(kept)
        if len(table) > most_rows:
            # That of the newest row for which there is no room.
            place = len(table) - most_rows - 1
            left_out_round = int(np.partition(table["round"].to_numpy(), place)[place])
            table = table[table["round"] > left_out_round]
            if table.empty:
                raise ValueError(
                    f"round {left_out_round} alone has more rows than the {most_rows} that may be "
                    "kept: raise most_rows"
                )
        return table

    for chunk in chunks:
        rows += len(chunk)
        kept.append(chunk[chunk["round"] > left_out_round])
        held += len(kept[-1])
        if held > 1.5 * most_rows:
            kept = [cut()]
            held = len(kept[0])
    table = cut()
    return table, rows - len(table)


def _checked_log(table: pd.DataFrame, left_out: int, unit: str) -> Log:
    """The log of checked rows, sorted; its rounds checked against each other."""
    if table.empty:
        raise ValueError("it must have rows, got none")
    table["device"] = _devices(table["device"])
    table = table.sort_values(["round", "device"], kind="stable")
    twice = table.duplicated(["round", "device"]).to_numpy()
    if twice.any():
        second = int(twice.argmax())
        device, number = (table[name].iloc[second] for name in ("device", "round"))
        raise ValueError(
            f"a device takes part once in a round, but device {device} has two rows in round "
            f"{number}: {unit} {table.index[second - 1]} and {table.index[second]}"
        )
    table = table.reset_index(drop=True).dropna(axis="columns", how="all")
    rounds = _rounds(table)
    _check_clock(rounds)
    return Log(table, left_out, [*_suspect_rounds(table, rounds), *_suspect_devices(table)])


def _rounds(table: pd.DataFrame) -> pd.DataFrame:
    """For each round its beginning ``start_s``, and ``gap_s`` until the next, NaN for the last."""
    rounds = table.groupby("round")[["start_s"]].min()
    rounds["gap_s"] = rounds["start_s"].shift(-1) - rounds["start_s"]
    return rounds


def _check_clock(rounds: pd.DataFrame) -> None:
    back = (rounds["gap_s"] < 0).to_numpy()
    if back.any():
        index = int(back.argmax())
        (before, after), (start, next_start) = (
            rounds.index[index : index + 2],
            rounds["start_s"].iloc[index : index + 2],
        )
        raise ValueError(
            f"start_s must not go back, but is {start} in round {before} and {next_start} in round "
            f"{after}: give times of one clock that is never set, such as time.monotonic of one "
            f"process, or cut off the rounds up to {before} or from {after}"
        )


def _suspect_rounds(table: pd.DataFrame, rounds: pd.DataFrame) -> list[str]:
    """Times that do not fit the time between rounds; `ValueError` if most do not."""
    notes = []
    taken = table["down_s"] + table["train_s"] + table["up_s"]
    gap = table["round"].map(rounds["gap_s"])
    long = (taken > 2 * gap).to_numpy()
    if long.any():
        row = int(long.argmax())
        example = (
            f"{taken[row]:.6g} s against {gap[row]:.6g} s for device {table['device'][row]} in "
            f"round {table['round'][row]}"
        )
        told = (
            f"{long.sum()} of {gap.notna().sum()} participations (down_s + train_s + up_s) take "
            f"more than twice the time until the next round starts, such as {example}"
        )
        if 2 * long.sum() > gap.notna().sum():
            raise ValueError(f"{told}: are train_s, up_s and down_s in milliseconds? Give seconds")
        notes.append(f"{told}.")
    gaps = rounds["gap_s"].dropna()
    longest = taken.groupby(table["round"]).max().reindex(gaps.index)
    idle, rest = float((gaps / longest).median()), float((gaps - longest).median())
    if idle > _FAR:
        notes.append(
            f"Half the rounds take more than {idle:.6g} times as long as their longest "
            "participation: is start_s in milliseconds?"
        )
    elif rest > _LONG_REST_S:
        notes.append(
            f"Half the rounds take {rest:.6g} s or more beside their longest participation: are "
            "all times in milliseconds?"
        )
    paused = gaps[gaps > _LONG_PAUSE * gaps.median()]
    if len(paused):
        notes.append(
            f"Between the starts of round {paused.index[0]} and the next lie "
            f"{paused.iloc[0]:.6g} s, and half the rounds take at most {gaps.median():.6g} s: "
            f"taken as a pause, of which there are {len(paused)}."
        )
    return notes


def _suspect_devices(table: pd.DataFrame) -> list[str]:
    """What is far from other devices, or too slow, or rare."""
    notes = []
    bits_per_second = 8 * table["bytes_up"] / table["up_s"]
    measures = {
        "seconds per sample and epoch (train_s)": table["train_s"]
        / (table["samples"] * table["epochs"]),
        "bit/s of uploads (up_s)": bits_per_second,
    }
    for what, values in measures.items():
        typical = values.groupby(table["device"]).median()
        # On a logarithmic scale the middle of two is as far from one as from the other.
        middle = float(np.exp(np.log(typical).median()))
        far = typical[(typical > _FAR * middle) | (typical < middle / _FAR)]
        notes += [
            f"Device {device} has {value:.6g} {what}, and the median of all devices is "
            f"{middle:.6g}: are its times in milliseconds?"
            for device, value in far.iloc[:3].items()
        ]
        if len(far) > 3:
            notes.append(f"So have {len(far) - 3} more devices.")
    if (rate := float(bits_per_second.median())) < _SLOWEST_BPS:
        notes.append(
            f"Half the uploads have at most {rate:.3g} bit/s: are times in milliseconds, or is "
            "bytes_up in kilobytes?"
        )
    if "frequency_hz" in table and (hz := float(table["frequency_hz"].median())) < _SLOWEST_HZ:
        notes.append(
            f"Half the frequencies are {hz:.6g} Hz or less: is frequency_hz in GHz or MHz?"
        )
    counts = table["device"].value_counts(sort=False)
    once = list(counts.index[counts == 1])
    if once:
        some = ", ".join(map(str, once[:3])) + (", ..." if len(once) > 3 else "")
        notes.append(
            f"{len(once)} of {len(counts)} devices have one row alone ({some}): what is said of "
            "them leans on the others."
        )
    return notes


def _checked_spells(table: pd.DataFrame, unit: str) -> pd.DataFrame:
    if table.empty:
        raise ValueError("it must have rows, got none")
    devices = _devices(table["device"])
    _refuse_names(devices, table, unit)
    checked = pd.DataFrame({"device": devices}, index=table.index)
    for name in ("from_s", "to_s"):
        checked[name] = _numbers(table[name])
        wrong = ~(np.abs(checked[name].to_numpy()) <= _LARGEST)
        _refuse(name, f"a number at most {_LARGEST:g} in size", wrong, table, unit)
    ended = (checked["to_s"] <= checked["from_s"]).to_numpy()
    _refuse("to_s", "after from_s", ended, table, unit)
    checked = checked.sort_values(["device", "from_s"], kind="stable")
    before = checked.shift()
    overlap = (
        (checked["device"] == before["device"]) & (checked["from_s"] < before["to_s"])
    ).to_numpy()
    if overlap.any():
        second = int(overlap.argmax())
        raise ValueError(
            f"spells of a device must not overlap, but those in {unit} "
            f"{checked.index[second - 1]} and {checked.index[second]} of device "
            f"{checked['device'].iloc[second]} do"
        )
    return checked.reset_index(drop=True)

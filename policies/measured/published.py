"""What others publish of real federations, in the columns of our log.

FedScale [1]_ comes with two files, both pickles of a dictionary with an entry for each client:

- the capacity of devices, ``{"computation": ms, "communication": kbit/s}``: the time of inference
  for one sample, and the rate of its link in both directions, in units of 1024 bits;
- their availability, ``{"active": [s, ...], "inactive": [s, ...], "finish_time": s, ...}``: when
  spells begin and end, and after how long all starts again.

.. [1] F. Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at
   Scale", ICML 2022, https://github.com/SymbioticLab/FedScale
"""

from __future__ import annotations

import io
import pickle
import pickletools
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fl_edge_env.checks import finite_number, finite_or_zero
from fl_edge_env.files import as_value_error, check_regular, in_bytes
from policies.measured.log import COLUMNS, OPTIONAL, SPELL_COLUMNS, check_spells, check_table

_BYTES_PER_PARAMETER = 4
_BITS_PER_KBIT = 1024  # as FedScale's server counts the size of a model
_TRAINING_OVER_INFERENCE = 3  # a backward pass takes twice the time of a forward pass
_MOST_BYTES = 2**29
_MOST_SPELLS = 10_000_000


def read_fedscale_devices(
    path: str | Path, *, samples: float, parameters: float, epochs: float = 1.0
) -> pd.DataFrame:
    """A log of one round in which all of FedScale's clients take part.

    Its times are those that FedScale's simulator counts: three times that of inference for each
    sample that is trained, and the model, 4 bytes a parameter, down and up at the client's rate.

    Parameters
    ----------
    path : str or pathlib.Path
        The capacity of devices.
    samples, epochs : float
        Samples of each client, and passes over them.
    parameters : float
        Parameters of the model.

    Returns
    -------
    pandas.DataFrame
        As `Log.table`.

    Raises
    ------
    ValueError
        If the file is missing or of another form.
    """
    samples = finite_number("samples", samples)
    parameters = finite_number("parameters", parameters)
    epochs = finite_number("epochs", epochs)
    size = _BYTES_PER_PARAMETER * parameters
    rows = []
    with as_value_error(f"cannot read FedScale's devices {str(path)!r}: "):
        for client, entry in _clients(Path(path), "computation", "communication"):
            inference_ms, kbit_per_s = (
                finite_number(f"{name} of client {client!r}", entry[name])
                for name in ("computation", "communication")
            )
            transfer_s = 8 * size / (_BITS_PER_KBIT * kbit_per_s)
            train_s = _TRAINING_OVER_INFERENCE * inference_ms / 1000 * samples * epochs
            rows.append((client, train_s, transfer_s, transfer_s))
        table = pd.DataFrame(rows, columns=["device", "train_s", "up_s", "down_s"])
        table = table.assign(
            round=0,
            start_s=0.0,
            samples=samples,
            epochs=epochs,
            parameters=parameters,
            bytes_up=size,
            bytes_down=size,
        )
        return check_table(table, "its clients").table


def read_fedscale_availability(path: str | Path) -> pd.DataFrame:
    """Spells in which FedScale's clients are available, until all starts again.

    As in FedScale's simulator a client is available from each time in ``active`` to that at the
    same place in ``inactive``, as far as it comes before ``finish_time``.

    Returns
    -------
    pandas.DataFrame
        The columns ``device from_s to_s``, as `policies.measured.read_spells` gives them.

    Raises
    ------
    ValueError
        If the file is missing or of another form, or spells of a client overlap.
    """
    rows: list[tuple[Any, float, float]] = []
    with as_value_error(f"cannot read FedScale's availability {str(path)!r}: "):
        for client, entry in _clients(Path(path), "active", "inactive", "finish_time"):
            finish = finite_number(f"finish_time of client {client!r}", entry["finish_time"])
            begins, ends = (_times(client, name, entry[name]) for name in ("active", "inactive"))
            if len(ends) < len(begins):
                raise ValueError(
                    f"client {client!r} becomes active {len(begins)} times, and inactive only "
                    f"{len(ends)} times"
                )
            # The simulator does not look at further ends either.
            for begin, end in zip(begins, ends, strict=False):
                if end < begin:
                    raise ValueError(f"client {client!r} is active from {begin} to {end}")
                if begin < min(end, finish):
                    rows.append((client, begin, min(end, finish)))
            if len(rows) > _MOST_SPELLS:
                raise ValueError(f"it must have at most {_MOST_SPELLS} spells")
        return check_spells(pd.DataFrame(rows, columns=[*SPELL_COLUMNS]), "its clients")


def read_flower(metrics: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """The log of a run of Flower whose strategy kept a row for each participation.

    Parameters
    ----------
    metrics : mapping
        ``result.train_metrics_clientapp``: for each round a ``MetricRecord``, in which the columns
        of the log but for ``round`` are lists with an entry for each participation. Others are
        ignored.

    Returns
    -------
    pandas.DataFrame
        As `Log.table`.

    Raises
    ------
    ValueError
        If the run is of a strategy that keeps means over the clients, or the rows are such as
        `policies.measured.read_log` refuses.
    """
    needed = [name for name in COLUMNS if name != "round"]
    columns: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, *OPTIONAL)}
    for number, record in metrics.items():
        if not any(name in record for name in needed):
            continue  # nobody took part
        for name in needed:
            if not isinstance(record.get(name), list):
                raise ValueError(
                    f"round {number} of Flower's metrics must hold {name} as a list with an entry "
                    f"for each participation, got {reprlib.repr(record.get(name))}"
                )
        lists = {name: record[name] for name in (*needed, *OPTIONAL) if name in record}
        rows = len(lists["device"])
        if any(len(values) != rows for values in lists.values()):
            lengths = ", ".join(f"{name} {len(values)}" for name, values in lists.items())
            raise ValueError(
                f"round {number} of Flower's metrics must hold lists of one length, got {lengths}"
            )
        for name, values in columns.items():
            values += [number] * rows if name == "round" else lists.get(name, [None] * rows)
    if not columns["round"]:
        found = sorted({name for record in metrics.values() for name in record})
        raise ValueError(
            f"Flower's metrics must hold a list with an entry for each participation, got "
            f"{', '.join(found) or 'none'} for {len(metrics)} rounds: most strategies keep means "
            "over the clients alone, from which no device can be told. Use PolicyStrategy of "
            "train_fl.federation, which keeps the log, or write the log with "
            "policies.measured.append_rows"
        )
    return check_table(pd.DataFrame(columns), "Flower's metrics").table


def _clients(path: Path, *needed: str) -> list[tuple[Any, dict[str, Any]]]:
    """The entries of a pickled dictionary of dictionaries."""
    check_regular(path)
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"it must have at most {in_bytes(_MOST_BYTES)}, got {in_bytes(size)}")
    content = path.read_bytes()
    _check_memory(content)
    clients = _Plain(io.BytesIO(content)).load()
    if not isinstance(clients, dict) or not clients:
        raise ValueError(
            f"it must hold a dictionary with an entry for each client, got {reprlib.repr(clients)}"
        )
    for client, entry in clients.items():
        missing = [n for n in needed if not isinstance(entry, dict) or n not in entry]
        if missing:
            raise ValueError(
                f"each client needs {' and '.join(needed)}; client {client!r} has "
                f"{reprlib.repr(entry)}"
            )
    return list(clients.items())


class _Plain(pickle.Unpickler):
    """Reads dictionaries, lists, numbers and text, and runs nothing: all else needs a class."""

    def find_class(self, module: str, name: str) -> Any:
        raise _more_than_plain(f"{module}.{name}")


def _check_memory(content: bytes) -> None:
    """Refuse two ways to crash before a class is asked for: huge tables, and nested keys."""
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise ValueError(f"it announces {argument} objects, more than it has bytes")
        if "TUPLE" in operation.name:
            raise _more_than_plain("a tuple")


def _more_than_plain(what: str) -> ValueError:
    return ValueError(
        f"it holds {what}, and files of FedScale hold dictionaries, lists, numbers and text alone: "
        "other objects, NumPy's numbers too, could run code when they are unpickled"
    )


def _times(client: Any, name: str, values: object) -> list[float]:
    if not isinstance(values, list):
        raise ValueError(
            f"{name} of client {client!r} must be a list of times, got {reprlib.repr(values)}"
        )
    told = f"each time in {name} of client {client!r}"
    return [finite_or_zero(told, value) for value in values]

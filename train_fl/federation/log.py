"""The log of a federation, of which `fl_edge_env.Scenario.from_log` makes a scenario."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fl_edge_env.scenario.from_log import COLUMNS


def begin_log(path: Path) -> None:
    """Make a log without rows; `ValueError` if it cannot be made, or is there already."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(_lines([dict(zip(COLUMNS, COLUMNS, strict=True))]))
    except OSError as error:
        raise ValueError(f"cannot begin the log {str(path)!r}: {error.strerror}") from None


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add whole rows to a log, all or none; a column without a value is empty.

    As a federation must not end for its log, there is a warning where they cannot be written.
    """
    try:
        with path.open("ab", buffering=0) as file:
            size, lines = file.tell(), _lines(rows).encode()
            if file.write(lines) < len(lines):  # as on a full disk
                os.truncate(path, size)
                raise OSError("no room for it")
    except OSError as error:
        warnings.warn(
            f"a round is not in the log {str(path)!r}: {error}", RuntimeWarning, stacklevel=3
        )


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n").writerows(rows)
    return text.getvalue()

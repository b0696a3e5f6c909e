"""Tables in CSV files, read strictly: nothing in a file is ignored but empty rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env.checks import Range
from fl_edge_env.files import check_regular
from fl_edge_env.typing import FloatArray

COUNTED = Range("be an integer from 0", lambda x: (x >= 0) & (x < math.inf) & (x == np.floor(x)))


class Table(NamedTuple):
    """The texts of each column, and the number of each row in the file, from 1."""

    columns: dict[str, list[str]]
    rows: list[int]

    def check(self, name: str, right: ArrayLike, must: str) -> None:
        """Raise `ValueError` with the text of a column in the first row that is not right."""
        place = int(np.argmin(right))
        if not np.all(right):
            text, row = self.columns[name][place], self.rows[place]
            raise ValueError(f"{name} must {must}, got {text!r} in row {row}")

    def numbers(self, name: str, allowed: Range, *, optional: bool = False) -> FloatArray:
        """A column's numbers, shape (rows,), checked; NaN for empty fields if `optional`."""
        numbers = np.array([_number(text) for text in self.columns[name]])
        right, must = allowed.holds(numbers), allowed.must
        if optional:
            right, must = right | [text == "" for text in self.columns[name]], f"{must}, or empty"
        self.check(name, right, must)
        return numbers


def read_table(path: Path, names: Sequence[str]) -> Table:
    """Read a table with these columns in any order, named by its first row.

    `ValueError` if columns are missing, unknown or repeated, or fields or all rows are missing.
    """
    check_regular(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = [*enumerate(csv.reader(file, strict=True), start=1)] or [(1, [])]
    if sorted(header[1]) != sorted(names):
        got = ", ".join(header[1])
        raise ValueError(f"its first row must name the columns {', '.join(names)}, got {got}")
    rows = [(number, row) for number, row in rows if any(row)]
    if not rows:
        raise ValueError("it must have rows, got none")
    for number, row in rows:
        if len(row) != len(names):
            raise ValueError(
                f"a row must have {len(names)} fields, got {','.join(row)!r} in row {number}"
            )
    columns = map(list, zip(*(row for _, row in rows), strict=True))
    return Table(dict(zip(header[1], columns, strict=True)), [number for number, _ in rows])


def _number(text: str) -> float:
    """The number that a text is, NaN if it is none."""
    try:
        return math.nan if "_" in text else float(text)  # Python's own numbers may have underscores
    except ValueError:
        return math.nan

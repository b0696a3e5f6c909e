"""Tables in CSV files, read strictly: only empty rows are ignored."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fl_edge_env.checks import Range
from fl_edge_env.files import check_regular
from fl_edge_env.typing import FloatArray

COUNTED = Range("be an integer from 0", lambda x: (x >= 0) & (x < math.inf) & (x == np.floor(x)))


class Table(NamedTuple):
    """The text fields of each column, and the number of each row in the file, from 1."""

    columns: dict[str, list[str]]
    rows: list[int]

    def check(self, name: str, right: ArrayLike, must: str) -> None:
        """Raise `ValueError` that quotes a column in the first row for which `right` is false."""
        place = int(np.argmin(right))
        if not np.all(right):
            text = self.columns[name][place]
            row = self.rows[place]
            raise ValueError(f"{name} must {must}, got {text!r} in row {row}")

    def numbers(self, name: str, allowed: Range, *, optional: bool = False) -> FloatArray:
        """Return a column's numbers, shape (rows,), checked; empty fields are NaN if `optional`."""
        numbers = np.array([_number(text) for text in self.columns[name]])
        right = allowed.holds(numbers)
        must = allowed.must
        if optional:
            right = right | [text == "" for text in self.columns[name]]
            must = f"{must}, or empty"
        self.check(name, right, must)
        return numbers


def _rows(path: Path) -> Iterator[list[str]]:
    """The fields of each row, unchecked."""
    check_regular(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, strict=True)


def first_row(path: Path) -> list[str]:
    """Names of a table's columns, unchecked."""
    return next(_rows(path), [])


def read_table(path: Path, names: Sequence[str], *, header: bool = True) -> Table:
    """Read a table whose first row names these columns, in any order, or without such a row.

    Raises `ValueError` for wrong or repeated columns, missing or surplus fields, or no rows.
    """
    found = first_row(path) if header else list(names)
    if sorted(found) != sorted(names):
        got = ", ".join(map(repr, found)) or "an empty row"  # quotes show spaces
        raise ValueError(f"its first row must name the columns {', '.join(names)}, got {got}")
    texts = []  # of all rows: as many lists as rows take a second to collect
    numbers = []
    for number, row in enumerate(_rows(path), start=1):
        if len(row) != len(names) and any(row):
            raise ValueError(
                f"a row must have {len(names)} fields, got {','.join(row)!r} in row {number}"
            )
        if any(row) and number > header:
            texts += row
            numbers.append(number)
    if not numbers:
        raise ValueError("it must have rows, got none")
    columns = {name: texts[place :: len(names)] for place, name in enumerate(found)}
    return Table(columns, numbers)


def _number(text: str) -> float:
    """Convert a text to a number; NaN if it is not one."""
    try:
        return math.nan if "_" in text else float(text)  # Python allows underscores in numbers
    except ValueError:
        return math.nan

"""Tables of a comparison for LaTeX."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pandas as pd

from policies.benchmark.tables import (
    STATUS_TOLD,
    Board,
    Column,
    by_policy,
    comparison_columns,
    is_ok,
    over_seeds,
    ranked,
)

# Columns that are at least so important are in the tables.
_IMPORTANT = 4
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def comparison_latex(boards: Mapping[str, Board], label: str) -> str:
    """Tables of a comparison for LaTeX, with the package booktabs: one for each named setting.

    They have the columns that matter most. Policies that are not ok stand below a line. A table is
    labelled ``tab:`` and the `label`, and its number where there are several.
    """
    told = "% Needs \\usepackage{booktabs}.\n"
    columns = comparison_columns(list(boards.values()), "status", leader=True)
    for number, (name, board) in enumerate(boards.items()):
        kept = [column for column in columns[number] if column.importance >= _IMPORTANT]
        caption = f"{name}. {over_seeds(board.summary)}. {STATUS_TOLD}"
        lines = [
            r"\begin{table*}",
            rf"\caption{{{_latex(caption)}}}",
            rf"\label{{tab:{label}{f'-{number + 1}' if len(boards) > 1 else ''}}}",
            r"\centering\small",
            rf"\begin{{tabular}}{{l{'r' * len(kept)}}}",
            r"\toprule",
            *_heads(kept),
            r"\midrule",
            *_rows(board.summary, kept),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
        told += "\n".join(lines) + "\n"
    return told


def _heads(columns: Sequence[Column]) -> list[str]:
    """The names of the columns in two rows, and above them to what they belong."""
    groups, rules, place = [""], "", 2
    for group, each in itertools.groupby(columns, lambda column: column.group):
        wide = len(list(each))
        groups.append(rf"\multicolumn{{{wide}}}{{c}}{{{group}}}")
        rules += rf"\cmidrule(lr){{{place}-{place + wide - 1}}}"
        place += wide
    upper, lower = zip(*(column.header.split("\n") for column in columns), strict=True)
    names = [_row(["", *upper]), _row(["policy", *lower])]
    return [" & ".join(groups) + r" \\", rules, *names]


def _rows(summary: pd.DataFrame, columns: Sequence[Column]) -> list[str]:
    runs = dict(by_policy(summary))
    rows: list[str] = []
    for name in ranked(summary):
        if not is_ok(runs[name]) and rows and r"\midrule" not in rows:
            rows.append(r"\midrule")
        rows.append(_row([name, *(column.cells.get(name, "–") for column in columns)]))
    return rows


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    """A text as LaTeX prints it as it is."""
    return "".join(_LATEX.get(sign, sign) for sign in text)

"""Tables of a comparison for LaTeX."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import pandas as pd

from policies.benchmark.console import shown
from policies.benchmark.tables import (
    Board,
    Column,
    by_policy,
    caption,
    comparison_columns,
    is_ok,
    over_seeds,
    ranked,
)

# Columns that are at least so important are in the tables.
_IMPORTANT = 6
# A row that begins with a bracket or a star would end as an option of the row before.
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ν": r"$\nu$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def comparison_latex(boards: Mapping[str, Board], label: str, *, leader: bool = False) -> str:
    """Tables of a comparison for LaTeX, with the package booktabs: one for each named setting.

    They have the columns that matter most, and below each, as its caption, what they mean. Times
    are compared with those of the first policy of a summary or of the `leader`, and policies that
    are not ok stand below a line. A table is labelled ``tab:`` and the `label`, and its number
    where there are several.
    """
    told = "% Needs \\usepackage{booktabs}.\n"
    columns = comparison_columns(list(boards.values()), "status", leader=leader)
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", label)
    for number, (name, board) in enumerate(boards.items()):
        kept = [column for column in columns[number] if column.importance >= _IMPORTANT]
        text = f"{name}. {over_seeds(board.summary)}. {caption(kept, board)}"
        lines = [
            r"\begin{table*}",
            rf"\caption{{{_latex(text)}}}",
            rf"\label{{tab:{label}{f'-{number + 1}' if len(boards) > 1 else ''}}}",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\abovetopsep}{4pt}",
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
    names, runs = ranked(summary), dict(by_policy(summary))
    rows = [_row([name, *(column.cells.get(name, "–") for column in columns)]) for name in names]
    good = sum(is_ok(runs[name]) for name in names)
    return rows[:good] + [r"\midrule"] * (0 < good < len(rows)) + rows[good:]


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    """A text in one line as LaTeX prints it as it is, per cent and minus as they are set there."""
    line = " ".join(shown(text, "utf-8").split())
    line = "".join(_LATEX.get(sign, sign) for sign in line).replace(r" \%", r"~\%")
    return re.sub(r"(^|, )-(?=\d)", r"\1$-$", line)

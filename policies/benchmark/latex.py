"""Tables of a comparison for LaTeX."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from policies.benchmark.tables import Board, Column, caption, sheets

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
    text = "% Needs \\usepackage{booktabs}.\n"
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", label)
    every = sheets(list(boards.values()), leader=leader)
    for number, ((name, board), sheet) in enumerate(zip(boards.items(), every, strict=True), 1):
        columns = [column for column in sheet.columns if column.importance >= _IMPORTANT]
        explained = f"{name}. {sheet.title}. {caption(columns, board)}"
        rows = [
            _row([name, *(column.cells.get(name, "–") for column in columns)])
            for name in sheet.names
        ]
        if 0 < sheet.good < len(rows):
            rows.insert(sheet.good, r"\midrule")
        lines = [
            r"\begin{table*}",
            rf"\caption{{{_latex(explained)}}}",
            rf"\label{{tab:{label}{f'-{number}' if len(boards) > 1 else ''}}}",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\abovetopsep}{4pt}",
            rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
            r"\toprule",
            *_heads(columns),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
        text += "\n".join(lines) + "\n"
    return text


def _heads(columns: Sequence[Column]) -> list[str]:
    """The groups of the columns with rules below them, and the names of the columns in two rows."""
    groups, rules, place = "", "", 2
    for group, each in itertools.groupby(columns, lambda column: column.group):
        wide = len(list(each))
        groups += rf" & \multicolumn{{{wide}}}{{c}}{{{group}}}"
        rules += rf"\cmidrule(lr){{{place}-{place + wide - 1}}}"
        place += wide
    upper, lower = zip(*(column.header.split("\n") for column in columns), strict=True)
    return [groups + r" \\", rules, _row(["", *upper]), _row(["policy", *lower])]


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    """A text in one line as LaTeX prints it as it is, per cent and minus as they are set there."""
    line = " ".join(text.split())
    line = "".join(_LATEX.get(sign, sign) for sign in line).replace(r" \%", r"~\%")
    return re.sub(r"(^|, )-(?=\d)", r"\1$-$", line)

"""Tables of a comparison for LaTeX."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from policies.benchmark.comparison import Comparison
from policies.report.tables import Column, sheet_of

# A page has no room for columns of these quantities.
_LEFT_OUT = ("worst_tenth_accuracy", "longer", "spent_ratio", "aggregate_noise", "never_seen")
# LaTeX would read a bracket or star at the start of a row as an option of the row before.
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


def comparison_latex(
    comparisons: Mapping[str, Comparison], label: str, *, leader: bool = False
) -> str:
    """Tables of a comparison for LaTeX, with the package booktabs: one for each named setting.

    They show the main columns. Times are compared with the first policy of a summary or with the
    `leader`, and policies that are not ok are below a rule. A table's label is ``tab:`` and
    `label`, followed by a number if there are several tables.
    """
    text = "% Needs \\usepackage{booktabs}.\n"
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", label)
    for number, (name, comparison) in enumerate(comparisons.items(), 1):
        sheet = sheet_of(comparison, leader=leader)
        columns = [column for column in sheet.columns if column.quantity not in _LEFT_OUT]
        explained = f"{name}. {sheet.title}. {comparison.notes}"
        rows = [
            _row([name, *(column.cells.get(name, "–") for column in columns)])
            for name in sheet.names
        ]
        if 0 < sheet.good < len(rows):
            rows.insert(sheet.good, r"\midrule")
        lines = [
            r"\begin{table*}",
            rf"\caption{{{_latex(explained)}}}",
            rf"\label{{tab:{label}{f'-{number}' if len(comparisons) > 1 else ''}}}",
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
    """Header rows: groups of columns with rules below them, and two rows of column names."""
    groups = ""
    rules = ""
    place = 2
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
    """One line of text with LaTeX's special characters escaped; per cent and minus are typeset."""
    line = " ".join(text.split())
    line = "".join(_LATEX.get(sign, sign) for sign in line).replace(r" \%", r"~\%")
    return re.sub(r"(^|, )-(?=\d)", r"\1$-$", line)

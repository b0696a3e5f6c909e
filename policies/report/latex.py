"""Tables of a comparison for LaTeX."""

from __future__ import annotations

from policies.benchmark.comparison import Comparison
from policies.report.tables import table_texts

# A page has no room for columns of these quantities.
_LEFT_OUT = ("worst_tenth_accuracy", "longer", "spent_ratio", "aggregate_noise", "never_seen")
_TABLE = r"""%% Needs \usepackage{booktabs}.
\begin{table*}
\caption{%s}
\centering\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\abovetopsep}{4pt}
\begin{tabular}{l*{%d}{r}}
\toprule
%s
\bottomrule
\end{tabular}
\end{table*}
"""
_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # Which LaTeX would read at the start of a row as an option of the row before.
        "[": "{[}",
        "*": "{*}",
        "–": "--",
        "±": r"$\pm$",
        "λ": r"$\lambda$",
        "μ": r"$\mu$",
        "ν": r"$\nu$",
    }
)


def comparison_latex(name: str, comparison: Comparison) -> str:
    """The main columns of a setting's table, for LaTeX with the package booktabs."""
    texts = table_texts(comparison)
    texts = texts.without([column for column in texts.columns if column.quantity in _LEFT_OUT])
    caption = f"{name}. {texts.title}. {comparison.notes}".translate(_ESCAPES)
    headers = [column.header.split("\n") for column in texts.columns]
    cells = [*zip(["", "policy"], *headers, strict=True), *texts.rows()]
    rows = [" & ".join(cell.translate(_ESCAPES) for cell in row) + r" \\" for row in cells]
    rows.insert(2, r"\midrule")
    return _TABLE % (caption, len(headers), "\n".join(rows))

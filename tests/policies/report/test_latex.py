"""Tables for LaTeX: the printed cells, and names as they are."""

from __future__ import annotations

import pandas as pd
import pytest

from policies.benchmark.comparison import Comparison
from policies.report.latex import comparison_latex


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("mine", "mine"),
        ("a_b & 5 % {c} #$", r"a\_b \& 5 \% \{c\} \#\$"),
        (
            "\\end{tabular} ~^",
            r"\textbackslash{}end\{tabular\} \textasciitilde{}\textasciicircum{}",
        ),
        ("[1mm] <|>", r"{[}1mm] \textless{}\textbar{}\textgreater{}"),
        ("* λ – ±", r"{*} $\lambda$ -- $\pm$"),
    ],
)
def test_latex__is_the_ranked_table_with_escaped_names(name, escaped):
    rows = [
        {"policy": policy, "seed": seed, "status": status, "excess": 0.2, "never_seen": 0}
        | {"total_time": 11.0 + seed, "priced_time": 21.0 + seed}
        for policy, status in (("bad", "over budget"), (name, "ok"))
        for seed in (0, 1, 2)
    ]
    text = comparison_latex(name, Comparison(pd.DataFrame(rows), notes="100 % of both."))
    assert (
        text
        == rf"""% Needs \usepackage{{booktabs}}.
\begin{{table*}}
\caption{{{escaped}. Mean and 95 \% interval over 3 seeds. 100 \% of both.}}
\centering\footnotesize\setlength{{\tabcolsep}}{{4pt}}\setlength{{\abovetopsep}}{{4pt}}
\begin{{tabular}}{{l*{{4}}{{r}}}}
\toprule
 & total & priced &  & excess, \\
policy & time, s & time, s & status & \% \\
\midrule
{escaped} & 12.0$\pm$2.5 & 22.0$\pm$2.5 & ok & 20 \\
bad & 12.0$\pm$2.5 & 22.0$\pm$2.5 & over budget & 20 \\
\bottomrule
\end{{tabular}}
\end{{table*}}
"""
    )

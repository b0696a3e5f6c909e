"""Tables for LaTeX: as many cells everywhere, and names as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

from policies.benchmark.comparison import Comparison
from policies.report.latex import comparison_latex

SPECIALS = "\\{}$&#^_~%<>|[]*-,±–λ 1a"
# What LaTeX prints for what it is given.
PRINTED = {f"\\{sign}": sign for sign in "&%$#_{}"} | {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"$\pm$": "±",
    r"$\lambda$": "λ",
    "$-$": "-",
    "{[}": "[",
    "{]}": "]",
    "{*}": "*",
    "~": " ",
}


def printed(given: str) -> str:
    return re.sub("|".join(map(re.escape, PRINTED)), lambda match: PRINTED[match[0]], given)


def board(statuses: Mapping[str, str], **columns: object) -> Comparison:
    """Three runs of each policy with these statuses."""
    rows = [
        {"policy": name, "seed": seed, "total_time": 10.0 + seed + place, "excess": 0.2}
        | {"priced_time": 20.0 + seed + place, "gap": -0.02 * seed}
        | {"status": status, "status_reason": "why"}
        | columns
        for place, (name, status) in enumerate(statuses.items())
        for seed in range(3)
    ]
    return Comparison(pd.DataFrame(rows), 0.9, "Luck: 100 % {a_b}.")


def lines_of(table: str) -> list[list[str]]:
    """The cells of each line of a tabular, checked to be as many as it has columns."""
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", table)
    body = table.partition(r"\toprule")[2].partition(r"\bottomrule")[0].splitlines()
    groups = [int(wide) for wide in re.findall(r"\\multicolumn\{(\d+)\}", table)]
    ends = [1 + sum(groups[: place + 1]) for place in range(len(groups))]
    rules = re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", table)
    assert rules == [(str(e - g + 1), str(e)) for g, e in zip(groups, ends, strict=True)]
    assert ends[-1] == len(columns)
    lines = []
    for line in (line for line in body if line and not re.match(r"\\(mid|cmid)rule", line)):
        assert line.endswith(r" \\")
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        spans = [int(wide) for wide in re.findall(r"\\multicolumn\{(\d+)\}", line)]
        assert len(cells) - len(spans) + sum(spans) == len(columns)
        # LaTeX would take these as options of the end of the line before.
        assert not line.lstrip().startswith(("[", "*"))
        lines.append([cell.strip() for cell in cells])
    return lines


@example(["[x", "*y", "\\a", "\\end{tabular}"])
@given(st.lists(st.text(SPECIALS, min_size=1).filter(str.strip), min_size=2, max_size=4))
def test_latex__each_line_has_a_cell_for_each_column(names):
    odd = board(dict.fromkeys(names, "ok"), final_accuracy=0.5)
    text = comparison_latex(dict.fromkeys(names, odd), names[0])
    tables = text.split(r"\begin{table*}")[1:]
    heads = [lines_of(table)[:3] for table in tables]
    assert len(tables) == len(set(names))
    assert all(head == heads[0] for head in heads)
    found = {printed(line[0]) for line in lines_of(tables[0])[3:]}
    assert found == {" ".join(name.replace("–", "--").split()) for name in names}
    assert re.fullmatch(r"(tab:[A-Za-z0-9.-]+ ?)+", " ".join(re.findall(r"label\{(.*?)\}", text)))


def test_latex__policies_that_are_not_ok_are_below_a_line():
    def table(**statuses: str) -> str:
        return comparison_latex({"digits": board(statuses)}, "runs/a b", leader=True)

    text = table(first="over budget", second="ok", third="ok")
    assert [line[0] for line in lines_of(text)[3:]] == ["second", "third", "first"]
    assert re.search(r"^third.*\n\\midrule\nfirst", text, re.MULTILINE)
    assert text.count(r"\midrule") == 2
    assert table(first="ok").count(r"\midrule") == table(first="leaves out").count(r"\midrule") == 1
    assert r"Luck: 100~\% \{a\_b\}." in text
    assert r"\label{tab:runs-a-b}" in text
    # Means of 11, 12 and 13 s, a minus that is no hyphen, and a half width.
    (line,) = (line for line in lines_of(text) if line[0] == "second")
    assert line[1:] == [r"12.0$\pm$2.5", r"22.0$\pm$2.5", "ok", "20", r"$-$2.0$\pm$5.0"]

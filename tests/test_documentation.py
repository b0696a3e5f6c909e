"""The code blocks of pages run and print the output shown, and what pages link to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from policies import POLICIES
from policies.resources import RESOURCES
from tests.support import ROOT
from train_fl.command_line import main

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
SLOW = dict.fromkeys(["README", "train_an_agent"], pytest.mark.slow)  # they train agents


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of Python, each with the output that the page shows before the next one."""
    pattern = r"^```python\n(.*?)^```(?:(?:(?!```).)*?^```output\n(.*?)^```)?"
    return re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SLOW.get(page.stem, ()), id=page.stem)
        for page in PAGES
        if blocks(page)
    ],
)
def test_page__code_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block, output in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)
        printed = capsys.readouterr().out.split()
        for word, expected in zip(printed, output.split(), strict=bool(output)):
            # The last digits of what is trained are the processor's.
            assert word == expected or float(word) == pytest.approx(float(expected), 0.2, 0.01)


def test_pages__links_and_names_of_programs_lead_to_files():
    for page in PAGES:
        for name in re.findall(r"examples/(\w+\.py)", page.read_text()):
            assert (ROOT / "examples" / name).exists(), f"{page.name}: {name}"
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.usefixtures("plain_pictures")
def test_columns__of_all_results_are_explained(tmp_path):
    main(f"compare --rounds 2 --seeds 1 --policies lroa --workers 1 --out {tmp_path}".split())
    tables = [*tmp_path.glob("*.csv"), *ROOT.glob("docs/leaderboards/*.csv")]
    columns = {name for table in tables for name in pd.read_csv(table, nrows=0)}
    page = set(re.findall(r"`(\w+)`", (ROOT / "docs/columns.md").read_text()))
    assert len(tables) > 4
    assert {re.sub("_(low|high)$", "", name) for name in columns} <= page


def test_catalogue__has_all_policies_and_resources():
    page = (ROOT / "docs/policies.md").read_text()
    assert {name for name in [*POLICIES, *RESOURCES] if f"\n`{name}`" not in page} == set()

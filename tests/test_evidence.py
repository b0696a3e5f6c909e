"""Tables of pages equal the stored files, and every file belongs to a result."""

from __future__ import annotations

import re
import sys

import pytest

from fl_edge_env import Scenario
from policies.registry import make_policy
from tests.support import ROOT
from train_fl.commands.leaderboard_file import read_leaderboard

sys.path.insert(0, str(ROOT / "docs"))

import evidence  # docs is no package
from evidence_figures import FIGURES
from evidence_pages import PAGES, standings

INDEX = evidence.index()
LEADERBOARDS = {
    name: file[1]
    for name, result in INDEX.items()
    if (file := re.search(r"fl-edge leaderboard (examples\S+)", result["command"]))
}


@pytest.mark.parametrize("page", PAGES)
def test_tables__equal_the_stored_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert evidence.rewritten(text) == text


def test_rewritten__replaces_tables_and_nothing_else(monkeypatch):
    page = "4\n\n<!-- evidence: a-b -->\n\n{}\n\n<!-- end -->\n\n4\n\n<!-- end -->\n"
    monkeypatch.setitem(evidence.TABLES, "a-b", lambda: "| 5 |\n\\1")
    for old in ("| 4 |\n\n4", ""):
        assert evidence.rewritten(page.format(old)) == page.format("| 5 |\n\\1")


def test_files__belong_to_results_and_figures_are_shown():
    files = {path for result in INDEX.values() for path in result["files"]}
    kept = {str(p.relative_to(ROOT)) for p in (ROOT / "docs/evidence").glob("*.[ct]*")}
    kept |= {str(p.relative_to(ROOT)) for p in (ROOT / "docs/leaderboards").iterdir()}
    assert kept - {"docs/evidence/index.toml"} <= files
    assert all((ROOT / path).exists() for path in [*files, *FIGURES])
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    assert all(figure.name in pages for figure in (ROOT / "examples/figures").iterdir())
    for name, result in INDEX.items():
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", result["commit"])
        commands = [part for part in result["command"].split("&&") if "fl-edge" in part]
        assert all(f"--out runs/evidence/{name}" in command for command in commands)


@pytest.mark.parametrize("name", LEADERBOARDS)
def test_leaderboard__has_what_its_file_says(name):
    stored = standings(name).reset_index()
    labels = {}
    settings = read_leaderboard(ROOT / LEADERBOARDS[name])
    assert list(stored["setting"].unique()) == [one.name for one in settings]
    small = Scenario.cifar10(num_devices=4)
    for one in settings:
        for each in one.policies:
            key = str(each)
            if key not in labels:  # a policy takes a second to make
                kind = each.name.partition("@")[0]
                labels[key] = each.label or make_policy(kind, small, **each.options).name
        rows = stored[stored["setting"] == one.name]
        assert set(rows["scheduler"]) == {labels[str(each)] for each in one.policies}
        assert set(rows["seeds"].dropna()) == {len(one.options.seed_range())}

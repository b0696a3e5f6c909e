"""Pages say what the files of results say, and these are what their commands give."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fl_edge_env import Scenario
from policies.registry import make_policy
from train_fl.commands.leaderboard_file import read_leaderboard

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import evidence  # noqa: E402 - docs is no package
from evidence_files import Standings, n  # noqa: E402
from evidence_pages import PAGES, Block, told  # noqa: E402

INDEX = evidence.index()
LEADERBOARDS = {
    name: file[1]
    for name, result in INDEX.items()
    if (file := re.search(r"fl-edge leaderboard (\S+)", result["command"]))
}


@pytest.mark.parametrize("page", PAGES)
def test_page__says_what_the_files_say(page):
    text = (ROOT / page).read_text()
    assert evidence.rewritten(page, text, told(page)) == text


def test_results__are_there_and_what_is_there_is_a_result():
    files = {path for result in INDEX.values() for path in result["files"]}
    kept = {str(p.relative_to(ROOT)) for p in (ROOT / "docs/evidence").glob("*.[ct]*")}
    kept |= {str(p.relative_to(ROOT)) for p in (ROOT / "docs/leaderboards").iterdir()}
    assert kept - {"docs/evidence/index.toml"} <= files
    assert all((ROOT / path).exists() for path in files)
    for result in INDEX.values():
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", result["commit"])


@pytest.mark.parametrize("name", INDEX)
def test_command__writes_to_its_folder_and_is_on_a_page(name):
    whole = INDEX[name]["command"]
    commands = [command for command in whole.split("&&") if "fl-edge" in command]
    assert all(f"--out runs/evidence/{name}" in command for command in commands)
    if name != "large-weights":  # which its page gives in other words
        pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        texts = " ".join(plain(page.read_text()) for page in pages)
        assert plain(re.sub(r" --out \S+|COLUMNS=\S+ ", "", whole)) in texts


def plain(text: str) -> str:
    """A text without breaks, each script of a command as `fl-edge`."""
    text = re.sub(r"(\\\n|\s)+", " ", text).strip()
    for script, command in (("reproduce_paper", "reproduce"), ("compare", "compare")):
        text = text.replace(f"python examples/{script}.py", f"fl-edge {command}")
    return text


@pytest.mark.parametrize("name", LEADERBOARDS)
def test_standings__have_the_settings_schedulers_and_seeds_of_the_file(name):
    table, labels = Standings(name).rows.reset_index(), {}
    settings = read_leaderboard(ROOT / LEADERBOARDS[name])
    assert list(table["setting"].unique()) == [one.name for one in settings]
    small = Scenario.cifar10(num_devices=4)
    for one in settings:
        for each in one.schedulers:
            if (key := str(each)) not in labels:  # a policy takes a second to make
                kind = each.name.partition("@")[0]
                labels[key] = each.label or make_policy(kind, small, **each.options).name
        rows = table[table["setting"] == one.name]
        assert set(rows["scheduler"]) == {labels[str(each)] for each in one.schedulers}
        assert set(rows["seeds"].dropna()) == {len(one.options.seed_range())}


def test_rewritten__replaces_numbers_and_tables_and_nothing_else():
    page = "It takes\n 4 days, -1.2±0.3 % more.\n\n<!-- evidence: t -->\n\n{}\n\n<!-- end -->\n4"
    parts = f"takes {n(5.25, '.1f')} days, {n('1.0±0.1')} % more", Block("t", "| 5 |\n| 6 |")
    expected = page.replace("4 days, -1.2±0.3", "5.2 days, 1.0±0.1").format("| 5 |\n| 6 |")
    assert evidence.rewritten("page.md", page.format("| 4 |"), parts) == expected
    for missing in (f"It lasts {n(4)} days", n(4), Block("u", "4")):  # or there twice
        with pytest.raises(ValueError, match=r"page\.md: "):
            evidence.rewritten("page.md", page, [missing])

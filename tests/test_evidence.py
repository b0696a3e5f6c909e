"""Pages say what the files of results say, and these are what their commands give."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

from fl_edge_env import Scenario
from policies.registry import make_policy
from train_fl import command_line
from train_fl.commands.leaderboard_file import FileSetting, read_leaderboard

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import evidence  # noqa: E402 - docs is no package
import evidence_files  # noqa: E402
import evidence_pages  # noqa: E402
from evidence_files import MARK, n  # noqa: E402
from evidence_pages import Block, Claim, Part  # noqa: E402

INDEX = evidence.index()
PAGES = sorted({part.page for part in evidence_pages.PARTS})
# Results whose pages give their commands in other words.
NOT_TOLD = {"large-weights"}
# A part of each leaderboard without training that is played again within a minute.
REPLAYS = [
    ("system", "cell", ("uni-s", "best-channel:static")),
    ("uploads", "CIFAR-10, 4 bits", ("uni-d", "round-robin:dynamic")),
    ("work", "phones, work by speed", ("uni-s",)),
]


def leaderboards() -> dict[str, list[FileSetting]]:
    found = {}
    for name, result in INDEX.items():
        file = re.search(r"fl-edge leaderboard (\S+)", result["command"])
        if file:
            found[name] = read_leaderboard(ROOT / file[1])
    return found


def words(command: str) -> list[str]:
    """The name of a command and its options, of a script in examples that of its command."""
    given = [word for word in shlex.split(command) if not word.startswith("COLUMNS=")]
    if given[:1] == ["fl-edge"]:
        return given[1:]
    assert given[0] == "python"
    called = re.search(r'main\(\["([\w-]+)"', (ROOT / given[1]).read_text())
    return [called[1], *given[2:]] if called else []


@pytest.mark.parametrize("page", PAGES)
def test_page__says_what_the_files_say(page):
    text = (ROOT / page).read_text()
    assert evidence.rewritten(page, text, evidence.parts_of(page)) == text


def test_results__are_there_and_on_pages():
    assert {name for part in evidence_pages.PARTS for name in part.results} == set(INDEX)
    for result in INDEX.values():
        assert result["minutes"] > 0
        assert evidence.is_there(result)
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", result["commit"])
    kept = {str(p.relative_to(ROOT)) for p in (ROOT / "docs/evidence").glob("*.[ct]*")}
    kept |= {str(p.relative_to(ROOT)) for p in (ROOT / "docs/leaderboards").iterdir()}
    files = {path for result in INDEX.values() for path in result["files"]}
    assert kept - {"docs/evidence/index.toml"} <= files


@pytest.mark.parametrize("name", INDEX)
def test_command__has_options_that_exist_and_writes_to_its_folder(name):
    loop = r"for seed in [\d ]+; do (.*?); done;"
    whole = re.sub(loop, r"\1 &&", INDEX[name]["command"]).replace("$seed", "0")
    for command in whole.split("&&"):
        if given := words(command):
            command_line.parse(command_line._COMMANDS[given[0]](), given[1:])
            assert f"--out runs/evidence/{name}" in command


@pytest.mark.parametrize("part", evidence_pages.PARTS, ids=lambda p: f"{p.page} {p.results}")
def test_command__is_that_of_the_page(part):
    pages = (ROOT / part.page, ROOT / "docs/leaderboard.md")  # which names those of the others
    text = " ".join(plain(page.read_text()) for page in pages)
    for name in part.results:
        if name not in NOT_TOLD:
            assert plain(re.sub(r" --out \S+|COLUMNS=\S+ ", "", INDEX[name]["command"])) in text


def plain(text: str) -> str:
    """A text without breaks, each script of a command as `fl-edge`."""
    text = re.sub(r"(\\\n|\s)+", " ", text).strip()
    for script, command in (("reproduce_paper", "reproduce"), ("compare", "compare")):
        text = text.replace(f"python examples/{script}.py", f"fl-edge {command}")
    return text


@pytest.mark.parametrize("name", leaderboards())
def test_standings__have_the_settings_schedulers_and_seeds_of_the_file(name):
    table, labels = evidence_files.standings(name).rows.reset_index(), {}
    told = leaderboards()[name]
    assert list(table["setting"].unique()) == [one.name for one in told]
    small = Scenario.cifar10(num_devices=4)
    for one in told:
        for each in one.schedulers:
            if (key := str(each)) not in labels:  # a policy takes a second to make
                kind = each.name.partition("@")[0]
                labels[key] = each.label or make_policy(kind, small, **each.options).name
        rows = table[table["setting"] == one.name]
        assert set(rows["scheduler"]) == {labels[str(each)] for each in one.schedulers}
        assert set(rows["seeds"].dropna()) == {len(one.options.seed_range())}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting", "schedulers"), REPLAYS)
def test_standings__are_what_the_command_gives_today(name, setting, schedulers, tmp_path):
    values = tomllib.loads((ROOT / f"examples/leaderboards/{name}.toml").read_text())
    (one,) = [each for each in values.pop("settings") if each["name"] == setting]
    listed = one.get("schedulers", values.get("schedulers"))
    assert set(schedulers) <= {each for each in listed if isinstance(each, str)}
    one |= {"schedulers": list(schedulers)}
    (tmp_path / "part.toml").write_text(tomli_w.dumps(values | {"settings": [one]}))
    command = [
        Path(sys.executable).with_name("fl-edge"),
        "leaderboard",
        "part.toml",
        "--out",
        "out",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    new = pd.read_csv(tmp_path / "out/leaderboard.csv").set_index("scheduler")
    old = evidence_files.standings(name).rows.loc[setting]
    numbers = [c for c in new.select_dtypes("number") if not c.startswith(("rank", "longer"))]
    assert len(new) == len(schedulers)
    np.testing.assert_allclose(new[numbers], old.loc[new.index, numbers].astype(float), rtol=1e-6)
    assert list(new["status"]) == list(old.loc[new.index, "status"])


def rewritten(text: str, *told) -> str:
    return evidence.rewritten("page.md", text, [Part("page.md", (), lambda: iter(told))])


def test_rewritten__replaces_numbers_and_tables_and_nothing_else():
    page = "It takes\n 4 days, -1.2±0.3 % more.\n\n<!-- evidence: t -->\n\n{}\n\n<!-- end -->\n4"
    told = f"takes {n(5.25, '.1f')} days, {n('1.0±0.1')} % more"
    expected = page.replace("4 days, -1.2±0.3", "5.2 days, 1.0±0.1").format("| 5 |\n| 6 |")
    assert rewritten(page.format("| 4 |"), told, Block("t", "| 5 |\n| 6 |")) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("It takes 4 days.", f"It lasts {n(4)} days."),
        ("It takes 4 days. It takes 5 days.", f"It takes {n(4)} days."),
        ("<!-- evidence: t -->\n\n4\n\n<!-- end -->", Block("u", "4")),
        ("All are ok.", Claim("All are ok.", False)),
    ],
)
def test_rewritten__refuses_what_is_not_there_once_or_not_so(text, told):
    with pytest.raises(ValueError, match=r"page\.md: "):
        rewritten(text, told)


def test_run__leaves_files_and_index_as_they_are_if_the_command_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(evidence, "INDEX", tmp_path / "index.toml")
    told = {"minutes": 1, "files": {"kept/a.txt": "printed"}}
    for command in ("echo 1", "echo 2; false"):
        evidence.INDEX.write_text(tomli_w.dumps({"a": told | {"command": command}}))
        if command.endswith("false"):
            with pytest.raises(subprocess.CalledProcessError):
                evidence.run("a")
            assert "commit" not in evidence.index()["a"]
        else:
            evidence.run("a")
            assert not evidence.is_stale(evidence.index()["a"])
        assert (tmp_path / "kept/a.txt").read_text() == "1\n"


def test_interval__has_the_digits_of_its_half_rounded_up():
    assert evidence_files.interval(10.0, 9.8766, 10.1234) == "10.00±0.13"
    assert evidence_files.interval(123.4, 111.1, 135.7) == "123±13"
    assert evidence_files.interval(1.0, 0.99999, 1.00001, most=2) == "1.00±0.01"
    assert MARK not in evidence_files.interval(1.0, 1.0, 1.0)

"""Commands of README and documentation have options that exist, run, and print what is shown."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import ROOT
from train_fl import command_line

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
# What a command holds that is not run here, and why.
LEFT_OUT = {
    "<": "a place holder",
    "leaderboards/": "takes more than ten minutes",
    "fashion_mnist": "needs data that is not installed with the package",
    "--device cuda": "needs a GPU",
    "agents/cifar10.zip": "takes an agent that another command trains",
    "flwr run": "needs an extra that is not in `all`",
    "ray start": "needs several machines",
    "suite-1 my_file": "needs a policy of one's own",
}
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```|`((?:python examples/|fl-edge )[^`]*)`", re.M | re.S)
# What is not run of a block: installing, testing, remarks.
NOT_RUN = re.compile(
    r"^(?:(?:cd|pip|python -m|pytest|ruff|sphinx-build|\.) ?.*?(?:$|&& ))+|  +#.*$"
)


class Command(NamedTuple):
    """A command or script of a page, and the text block that follows before the next one."""

    page: str
    text: str
    printed: str


def commands() -> list[Command]:
    found: list[Command] = []
    for page in PAGES:
        for kind, block, inline in BLOCK.findall(page.read_text()):
            if kind == "text" and found and found[-1].page == page.name:
                found[-1] = found[-1]._replace(printed=found[-1].printed or block)
            if kind == "sh":
                text = "\n".join(NOT_RUN.sub("", line) for line in block.splitlines()).strip()
            else:  # a program's name alone is no command
                text = " ".join(inline.split()) if len(inline.split()) > 2 else ""
            if text:
                found.append(Command(page.name, text, ""))
    return found


def to_run() -> list[Command]:
    kept: dict[str, Command] = {}
    for command in commands():
        if not any(part in command.text for part in LEFT_OUT):
            told = kept.get(command.text)
            kept[command.text] = told if told and told.printed else command
    return list(kept.values())


def options() -> list[list[str]]:
    """The command of `fl-edge` and its options in each line that has no place to fill."""
    found = set()
    for command in commands():
        for line in re.split(r"\n|;|&&", command.text.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            if words[:1] == ["do"]:
                words = words[1:]
            if words[:1] == ["python"] and len(words) > 1 and words[1].startswith("examples/"):
                called = re.search(
                    r'sys\.argv\.insert\(1, "([\w-]+)"', (ROOT / words[1]).read_text()
                )
                words = ["fl-edge", called[1], *words[2:]] if called else []
            if words[:1] == ["fl-edge"] and len(words) > 1 and not re.search(r"[<$…]|\.\.\.", line):
                found.add(tuple(words[1:]))
    return [list(words) for words in sorted(found)]


@pytest.mark.parametrize("words", options(), ids=" ".join)
def test_command__has_options_that_exist(words):
    if words[-1] in ("--policies", "--help"):  # these are asked for words that are not there
        return
    command_line.parse(command_line._COMMANDS[words[0]](), words[1:])


@pytest.mark.slow
@pytest.mark.parametrize("command", to_run(), ids=lambda c: f"{c.page}: {c.text[:70]}")
def test_command__runs_and_prints_what_the_page_shows(command, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = os.environ | {
        "COLUMNS": "110",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-ec", command.text],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    printed = [line.split() for line in done.stdout.splitlines()]
    # Rows of numbers: titles and captions are wrapped as the terminal is wide.
    rows = [line for line in command.printed.splitlines() if len(re.findall(r"\d", line)) > 8]
    # Of trained models the last digits are the processor's.
    luck = 0.5 if "accuracy" in command.printed else 0.0
    for row in rows:
        found = any(alike(row.split(), line, luck) for line in printed)
        assert found, f"no {row!r} in:\n{done.stdout}"


def alike(row: list[str], other: list[str], luck: float) -> bool:
    """Whether two rows say the same, means with intervals to a share of them.

    Where V is small, the last digits follow the machine's.
    """

    def near(word: str, said: str) -> bool:
        try:
            (mean, *interval), (other_mean, *_) = (
                [float(part) for part in text.split("±")] for text in (word, said)
            )
        except ValueError:
            return word == said
        by_luck = luck * interval[0] if interval else 0.0
        return word == said or mean == pytest.approx(other_mean, rel=2e-3, abs=by_luck)

    return len(row) == len(other) and all(map(near, row, other))

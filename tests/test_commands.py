"""Commands of README and documentation have options that exist, and run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from train_fl import command_line

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
# What a command holds that is not run here, and why.
LEFT_OUT = {
    "<": "a place holder",
    "leaderboards/": "takes more than ten minutes",
    "leaderboard suite-1": "takes more than ten minutes",
    "fashion_mnist": "needs data that is not installed with the package",
    "data/uplinks": "needs measured links, which users bring",
    "--dataset pets": "needs images, which users bring",
    "--device cuda": "needs a GPU",
    "agents/cifar10.zip": "takes an agent that another command trains",
    "rule.zip": "takes an agent that another command trains",
    "my_file.py": "takes a file of the reader's",
    "mine.py": "takes a file of the reader's",
    "docker": "needs a container engine",
    "flwr run": "needs an extra that is not in `all`",
    "ray start": "needs several machines",
}
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```|`((?:python examples/|fl-edge )[^`]*)`", re.M | re.S)
# What is not run of a block: installing, testing, remarks.
NOT_RUN = re.compile(
    r"^(?:(?:cd|pip|python -m|pytest|ruff|sphinx-build|\.) ?.*?(?:$|&& ))+|  +#.*$", re.M
)
SCRIPTS = {
    "python examples/compare.py": "fl-edge compare",
    "python examples/leaderboard.py": "fl-edge leaderboard",
}


def commands() -> dict[str, str]:
    """The blocks of shell commands and the commands within sentences, with their pages."""
    found: dict[str, str] = {}
    for page in PAGES:
        for kind, block, inline in BLOCK.findall(page.read_text()):
            text = NOT_RUN.sub("", block).strip() if kind == "sh" else " ".join(inline.split())
            if kind == "sh" or text.count(" ") > 1:  # a program's name alone is no command
                found.setdefault(text, page.name)
    return found


def options() -> list[str]:
    """The commands of `fl-edge` with their options, except those with a place to fill."""
    text = "\n".join(commands()).replace("\\\n", " ")
    for script, command in SCRIPTS.items():
        text = text.replace(script, command)
    lines = {line.strip() for line in re.findall(r"\bfl-edge ([a-z][^\n;&]*)", text)}
    # The last two ask for words that are not there.
    left_out = re.compile(r"[<$…]|\.\.\.|--policies$|--help$")
    return sorted(line for line in lines if not left_out.search(line))


@pytest.mark.parametrize("line", options())
def test_command__has_options_that_exist(line):
    name, *words = shlex.split(line, comments=True)
    command_line.parse(command_line._COMMANDS[name](), words)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "page"), commands().items())
def test_command__runs(text, page, tmp_path):
    for part, reason in LEFT_OUT.items():
        if part in text:
            pytest.skip(reason)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", text],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page}: {done.stderr[-2000:]}"

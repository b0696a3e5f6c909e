"""The scripts in `examples`: each is its command, and the two of one's own are short."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMAND = ("-c", "from train_fl.command_line import main; main()")
SYSTEM = "--rounds 6 --num-devices 10 --scenario digits"


def written(folder: Path, *arguments: str) -> dict[str, bytes]:
    """The results that a process leaves in a folder."""
    folder.mkdir()
    subprocess.run([sys.executable, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    paths = [path for path in folder.rglob("*") if path.suffix in (".csv", ".gif", ".png")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("script", "command", "arguments"),
    [
        ("compare", "compare", f"{SYSTEM} --no-train --seeds 2 --workers 1"),
        ("reproduce_paper", "reproduce", "bound --scenarios digits --rounds 6 --seeds 1 --nu 1e5"),
        ("evaluate_agents", "evaluate-agents", f"{SYSTEM} --seeds 2 --workers 1"),
        ("animate", "animate", "--out a.gif --rounds 6 --num-devices 10"),
    ],
)
def test_script__is_its_command(tmp_path, script, command, arguments):
    options = arguments.split()
    ours = written(tmp_path / "script", str(EXAMPLES / f"{script}.py"), *options)
    assert ours
    assert ours == written(tmp_path / "command", *COMMAND, command, *options)


@pytest.mark.parametrize(
    "script", ["compare", "leaderboard", "reproduce_paper", "train_sb3", "evaluate_agents"]
)
def test_script__help_shows_how_it_is_called(capsys, monkeypatch, script):
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as raised:
        runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    assert raised.value.code == 0
    told = capsys.readouterr().out
    assert f"{script}.py [-h]" in told.splitlines()[0]
    assert f"python examples/{script}.py" in told


@pytest.mark.parametrize(
    ("name", "last"), [("custom_policy", "threshold"), ("custom_scenario", "Uni-S")]
)
def test_custom__examples_are_forty_lines_and_compare_with_the_paper(name, last, capsys):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 45
    runpy.run_path(str(path), run_name="__main__")
    assert last in capsys.readouterr().out.splitlines()[-1]

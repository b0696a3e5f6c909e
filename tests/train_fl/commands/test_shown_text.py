"""Names that look like markup, on a terminal that knows ASCII alone: shown, and no work is lost."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_edge_env import Scenario
from tests.policies import own_policies
from train_fl.command_line import main

ODD = "[/bold]é[red]"
SHOWN = "[/bold]?[red]"  # as the terminal can show it
NAME = "[red]é[bold]"  # of a file
FILE = f"{NAME}.toml"
QUICK = "--rounds 4 --workers 1"
COMMANDS = {
    "compare": f"--scenario {FILE} --no-train --seeds 2 --policies random:static {NAME}.py:Steady",
    "leaderboard": "board.toml --workers 1",
    "reproduce": f"v-sweep --scenarios digits --nu 1e5 --seeds 1 {QUICK}",
    "train": f"--scenario {FILE} --train-rounds 80 --eval-every 40 --num-envs 4",
}


@pytest.fixture
def call(tmp_path, monkeypatch) -> Callable[..., str]:
    """Run a command in a folder; gives what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")

    def run(name: str, options: str, out: str) -> str:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", stream := io.TextIOWrapper(raw, "ascii"))
        main([name, *options.split(), "--out", out])
        stream.flush()
        return raw.getvalue().decode("ascii")

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_command__shows_odd_names_as_they_are(name, call):
    Scenario.digits(num_devices=4, num_rounds=4).save(FILE)
    shutil.copy(own_policies.__file__, f"{NAME}.py")
    Path("board.toml").write_text(
        f'schedulers = ["lroa", {{ name = "{NAME}.py:Steady", label = "{ODD}" }}]\nseeds = 1\n'
        f'rounds = 2\n[[settings]]\nname = "{ODD}"\nscenario = "{FILE}"\n',
        encoding="utf-8",
    )
    told = call(name, COMMANDS[name], ODD).splitlines()
    assert told[-1].endswith(f": {SHOWN}/seed-0" if name == "train" else f": {SHOWN}")
    if name == "leaderboard":
        assert SHOWN in told  # the setting
        assert any(SHOWN in line and line != SHOWN for line in told[:-1])  # the scheduler

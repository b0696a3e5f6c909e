"""Names that look like markup, on a terminal that knows ASCII alone."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from fl_edge_env import Scenario
from tests.policies import own_policies
from train_fl.command_line import main

ODD, SHOWN = "[/bold]é[red]", "[/bold]?[red]"


def test_leaderboard__shows_odd_names_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    Scenario.digits(num_devices=4, num_rounds=4).save(f"{ODD[7:]}.toml")
    shutil.copy(own_policies.__file__, f"{ODD[7:]}.py")
    Path("board.toml").write_text(
        f'schedulers = ["lroa", {{ name = "{ODD[7:]}.py:Steady", label = "{ODD}" }}]\nseeds = 1\n'
        f'rounds = 2\n[[settings]]\nname = "{ODD}"\nscenario = "{ODD[7:]}.toml"\n',
        encoding="utf-8",
    )
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    main(["leaderboard", "board.toml", "--workers", "1", "--out", ODD])
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines[-1] == f"Results: {SHOWN}"
    assert SHOWN in lines  # the setting
    assert any(SHOWN in line and line != SHOWN for line in lines[:-1])  # the scheduler

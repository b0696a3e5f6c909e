"""A folder of results belongs to one command at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from policies.benchmark.commands import folder_lock
from policies.benchmark.commands.folder_lock import only_one
from train_fl.command_line import main


def test_only_one__tells_who_has_the_folder_and_leaves_nothing(tmp_path):
    for _ in range(2):
        with only_one(tmp_path):
            who = f"{str(tmp_path)!r} .process {os.getpid()} on .*, since .*: wait until it has"
            for _ in range(2):
                with pytest.raises(ValueError, match=who), only_one(tmp_path):
                    pass
        assert not list(tmp_path.iterdir())


def test_only_one__is_a_lock_of_the_file_that_others_find(tmp_path, monkeypatch):
    lock = folder_lock._lock

    def just_removed(file):
        """Its last holder has removed the file after it was opened here."""
        (tmp_path / folder_lock.LOCK).unlink()
        monkeypatch.setattr(folder_lock, "_lock", lock)
        return lock(file)

    monkeypatch.setattr(folder_lock, "_lock", just_removed)
    with only_one(tmp_path), pytest.raises(ValueError, match="at work"), only_one(tmp_path):
        pass


def test_only_one__of_a_killed_process_keeps_nobody_out(tmp_path):
    code = (
        "import runpy, sys; from pathlib import Path\n"
        "with runpy.run_path(sys.argv[1])['only_one'](Path(sys.argv[2])):\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, folder_lock.__file__, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(ValueError, match=f"process {process.pid} on"), only_one(tmp_path):
            pass
        process.kill()
    assert list(tmp_path.iterdir())  # it is left, and
    with only_one(tmp_path):
        assert str(os.getpid()) in (tmp_path / folder_lock.LOCK).read_text()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        "compare --scenario digits --no-train --rounds 2 --seeds 1 --policies uni-d",
        "leaderboard {file}",
        "reproduce v-sweep --scenarios digits --rounds 2 --seeds 1",
    ],
)
def test_commands__refuse_a_folder_in_which_another_is_at_work(arguments, tmp_path, capsys):
    file, folder = tmp_path / "settings.toml", tmp_path / "results"
    file.write_text(
        'schedulers = ["uni-d"]\n[[settings]]\nname = "it"\nscenario = "digits"\n'
        "train = false\nrounds = 2\nseeds = 1\n"
    )
    folder.mkdir()
    command = [*arguments.format(file=file).split(), "--workers", "1", "--out", str(folder)]
    with only_one(folder), pytest.raises(SystemExit) as raised:
        main(command)
    assert raised.value.code == 2
    assert "another command is at work" in capsys.readouterr().out
    assert not list(folder.iterdir())

"""A folder of results belongs to one experiment, and to one command at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies.benchmark import bounds
from policies.benchmark.live import RoundsFile
from policies.benchmark.results_folder import _only_one, default_folder
from train_fl.command_line import main
from train_fl.commands.options import CompareOptions

pytestmark = pytest.mark.usefixtures("plain_pictures")
COMMANDS = {
    "compare": "--scenario digits --num-devices 4 --no-train --rounds 2 --seeds 1 --policies uni-d",
    "leaderboard": "{file}",
    "reproduce": "v-sweep --scenarios digits --rounds 2 --seeds 1 --nu 1e5",
}


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    """Run one of the commands in a folder; gives its status and what it prints."""
    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "settings.toml"
    setting = 'name = "it"\nscenario = "digits"\nnum_devices = 4\nrounds = 2\nseeds = 1\n'
    file.write_text(f'schedulers = ["uni-d"]\n[[settings]]\n{setting}')

    def run(name: str, more: str) -> tuple[int, str]:
        arguments = COMMANDS[name].format(file=file)
        if "--resume" in more:
            arguments = "v-sweep" if name == "reproduce" else ""
        status = 0
        try:
            main([name, *arguments.split(), *more.split(), "--workers", "1"])
        except SystemExit as error:
            status = error.code
        return status, " ".join(capsys.readouterr().out.split())

    return run


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands__keep_to_their_folder_and_go_on_in_it(name, call, tmp_path, monkeypatch):
    folder = tmp_path / "results"
    folder.mkdir()
    with _only_one(folder):
        status, said = call(name, f"--out {folder}")
        assert status == 2
        assert f"another command is at work in {str(folder)!r} (process {os.getpid()} on" in said
        assert {path.name for path in folder.iterdir()} == {".lock", ".at-work"}
    assert call(name, f"--out {folder}")[0] == 0
    before = contents(folder)
    (config,) = folder.glob("*.json")
    for path in before:
        if path.parent == folder and path.suffix in (".csv", ".png", ".md"):
            path.unlink()
    status, said = call(name, f"--resume {folder}")
    assert status == 0, said
    assert contents(folder) == before
    # Nobody else's results are replaced, nor are prices searched before that is known.
    monkeypatch.setattr(bounds, "penalty_prices", lambda *_: pytest.fail("searched prices"))
    for other in COMMANDS.keys() - {name}:
        status, said = call(other, f"--out {folder}")
        assert (status, contents(folder)) == (2, before)
        assert f"{str(folder)!r} holds a {json.loads(config.read_text())['experiment']}: " in said


@pytest.mark.parametrize("name", ["compare", "leaderboard"])
def test_paper__a_finished_folder_gives_table_and_figure_and_runs_nothing(
    name, call, tmp_path, monkeypatch
):
    folder = tmp_path / "a_result"
    assert call(name, f"--out {folder}")[0] == 0
    before = contents(folder)
    monkeypatch.setattr("policies.benchmark.jobs.run_episode", lambda *_: pytest.fail("ran"))
    assert call(name, f"--resume {folder} --latex --pdf")[0] == 0
    after = contents(folder)
    added = {path for path in after if path not in before}
    assert {"table.tex", "overview.pdf"} <= {path.name for path in added}
    assert {path.suffix for path in added} == {".tex", ".pdf"}
    assert {path.name for path in before if after[path] != before[path]} == {"config.json"}
    assert r"\label{tab:a-result}" in (folder / "table.tex").read_text()
    # What was asked for once is still wanted by --resume, and no reason to refuse a command.
    (folder / "table.tex").unlink()
    assert call(name, f"--resume {folder}")[0] == 0
    assert contents(folder) == after
    assert call(name, f"--out {folder}")[0] == 0
    assert contents(folder) == after | before
    for path in added:
        path.unlink()
    assert call(name, f"--out {folder} --latex --pdf")[0] == 0
    assert contents(folder) == after
    # Of nobody else's are they overwritten.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.tex").write_text("mine")
    status, said = call(name, f"--out {tmp_path / 'mine'} --latex")
    assert (status, "holds table.tex, which no" in said) == (2, True)
    assert default_folder(CompareOptions(latex=True, pdf=True), "x") == Path("runs") / "x"


def test_compare__replaces_no_results_but_its_own(call, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()

    def refused(more: str, folder) -> str:
        before = contents(folder)
        status, said = call("compare", f"{more} --out {folder}")
        assert (status, contents(folder)) == (2, before)
        return said

    (mine / "summary.csv").write_text("mine")
    assert "holds summary.csv, which no comparison has left there" in refused("", mine)
    (mine / "config.json").mkdir()
    assert "it is not a regular file" in refused("", mine)
    ours = tmp_path / "ours"
    assert call("compare", f"--out {ours}")[0] == 0
    (ours / "notes.csv").write_text("mine")
    assert "holds another comparison, with another mu: give another" in refused("--mu 0.5", ours)
    assert call("compare", f"--out {ours}")[0] == call("compare", f"--resume {ours}")[0] == 0
    assert (ours / "notes.csv").read_text() == "mine"


def test_lock__of_a_killed_process_keeps_nobody_out(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from policies.benchmark.results_folder import _only_one\n"
        "with _only_one(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(ValueError, match=f"process {process.pid} on"), _only_one(tmp_path):
            pass
        process.kill()
    with _only_one(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".at-work").read_text()


def test_folder__writes_through_no_link_of_a_stranger(call, tmp_path):
    mine, folder = tmp_path / "mine.txt", tmp_path / "theirs"
    mine.write_text("kept")
    folder.mkdir()
    for name in (".lock", ".at-work"):
        (folder / name).symlink_to(mine)
        status, said = call("compare", f"--out {folder}")
        assert (status, f"cannot write {str(folder / name)!r}: it is a link" in said) == (2, True)
        (folder / name).unlink()
    (folder / "live").mkdir()
    for kind in (Path.symlink_to, lambda path, _: os.mkfifo(path)):
        file = RoundsFile(folder / "live" / "uni-d.csv")
        kind(file.path, mine)
        with file.recording() as add:
            add({"policy": "uni-d", "seed": 0, "round": 0})
        assert file.path.read_text().splitlines() == ["policy,seed,round", "uni-d,0,0"]
        file.path.unlink()
    assert mine.read_text() == "kept"

"""A folder of results belongs to one experiment, and to one command at a time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from filelock import FileLock

from policies.benchmark import bounds
from policies.benchmark.results_folder import models_of
from train_fl.command_line import main
from train_fl.commands.options import CompareOptions, OutputOptions

pytestmark = pytest.mark.usefixtures("plain_pictures")
COMMANDS = {
    "compare": "--set num_devices=4 --no-train --rounds 2 --seeds 1 --policies uni-d",
    "leaderboard": "{file}",
}


@pytest.fixture
def call(tmp_path, capsys, monkeypatch) -> Callable[..., str]:
    """Run one of the commands with more options, which ends as expected; gives what it prints."""
    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "settings.toml"
    setting = 'name = "it"\nscenario = "digits"\nnum_devices = 4\nrounds = 2\nseeds = 1\n'
    file.write_text(f'schedulers = ["uni-d"]\n[[settings]]\n{setting}')

    def run(name: str, more: str, *, refused: bool = False) -> str:
        arguments = COMMANDS[name].format(file=file)
        with pytest.raises(SystemExit, match=r"^2$") if refused else nullcontext():
            main([name, *arguments.split(), *more.split(), "--workers", "1"])
        return " ".join("".join(capsys.readouterr()).split())

    return run


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands__continue_in_their_folder(name, call, tmp_path, monkeypatch):
    folder = tmp_path / "results"
    call(name, f"--out {folder}")
    before = contents(folder)
    for path in before:
        if path.parent == folder and path.suffix in (".csv", ".png", ".md"):
            path.unlink()
    (folder / "records" / ".fl-edge-part-0.npz").touch()  # left by a killed command
    monkeypatch.setattr("policies.benchmark.run.play", None)  # a function would change the keys
    call(name, f"--out {folder}")
    assert contents(folder) == before


def test_paper__a_repeated_command_adds_table_and_figures(call, tmp_path):
    folder = tmp_path / "a_result"
    call("compare", f"--out {folder}")
    before = contents(folder)
    call("compare", f"--out {folder} --latex --pdf")
    added = contents(folder).keys() - before.keys()
    assert {path.suffix for path in added} == {".tex", ".pdf"}
    assert CompareOptions(output=OutputOptions(latex=True, pdf=True)).result_options() == {}


def test_folder__that_holds_anything_else_is_refused(call, tmp_path, monkeypatch):
    folders = {name: tmp_path / name for name in ("compare", "leaderboard")}
    for name, folder in folders.items():
        call(name, f"--out {folder}")
    (folders["compare"] / "notes.csv").write_text("mine")
    mine = tmp_path / "mine"
    (mine / "config.json").mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "summary.csv").write_text("mine")
    (tmp_path / "file").touch()
    long = tmp_path / ("x" * 256)
    replace = "give another folder with --out, or replace its results with --overwrite"
    for name, more, folder, message in (
        (
            "compare",
            "--set mu=0.5",
            folders["compare"],
            f"holds a comparison with different mu: {replace}",
        ),
        ("compare", "", folders["leaderboard"], f"holds a leaderboard: {replace}"),
        ("leaderboard", "", folders["compare"], f"holds a comparison: {replace}"),
        ("compare", "", other, "holds summary.csv, which does not belong to a comparison"),
        ("compare", "", mine, "holds config.json, which does not belong to a comparison"),
        ("leaderboard", "", tmp_path / "file" / "below", "cannot write to the folder"),
        ("compare", "", long, f"cannot write to the folder {str(long)!r}: File name too long"),
    ):
        before = contents(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(bounds, "penalty_prices", lambda *_: pytest.fail("searched for prices"))
            assert message in call(name, f"{more} --out {folder}", refused=True)
        assert contents(tmp_path) == before
    for more, folder in (("--set mu=0.5", folders["compare"]), ("", other)):
        call("compare", f"{more} --out {folder} --overwrite")
        call("compare", f"{more} --out {folder}")
    assert (folders["compare"] / "notes.csv").read_text() == "mine"
    (other / "models").mkdir()
    for name in ("Uni-D-seed-0.pt", "agent.pt", "pretrained-seed-7.pt"):
        (other / "models" / name).touch()
    config = json.loads((other / "config.json").read_text())
    config["results"] += models_of(["Uni-D"])
    (other / "config.json").write_text(json.dumps(config))
    for folder in (folders["leaderboard"], other):
        call("compare", f"--set mu=0.5 --out {folder} --overwrite")
        assert not [*folder.glob("leaderboard.*"), *folder.glob("models/Uni-D*")]
    kept = {path.name for path in (other / "models").iterdir()}
    assert kept == {"agent.pt", "pretrained-seed-7.pt"}


def test_folder__an_edited_configuration_removes_nothing_else(call, tmp_path):
    edited = ["*", "..", "", "records/*.npz", "models/*.pt"]
    call("compare", f"--out {tmp_path}")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"results": edited}))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "agent.pt").touch()
    before = contents(tmp_path)
    call("compare", f"--out {tmp_path}")
    assert contents(tmp_path) | {config: b""} == before | {config: b""}


def test_folder__is_that_of_the_home_and_its_tables_are_written(call, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    call("compare", "--out ~/it")
    assert (tmp_path / "it" / "summary.csv").read_text().count("\n") == 2
    assert not Path("~").exists()


def test_folder__is_looked_at_under_its_lock(call, tmp_path, monkeypatch):
    # Another command writes its results just before this one gets the lock.
    folder = tmp_path / "it"
    acquire = FileLock.acquire

    def late(lock, **options):
        monkeypatch.undo()
        call("compare", f"--out {folder} --set mu=0.5")
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", late)
    said = call("compare", f"--out {folder}", refused=True)
    assert "holds a comparison with different mu" in said
    assert (folder / "summary.csv").exists()


def test_folder__has_one_command_at_a_time(call, tmp_path):
    code = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        (tmp_path / ".lock").write_text(" (process 1 on there)")
        said = call("compare", f"--out {tmp_path}", refused=True)
        assert f"another command is using {str(tmp_path)!r} (process 1 on there): wait" in said
        process.kill()
    call("compare", f"--out {tmp_path}")


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_folder__that_cannot_be_locked_is_used_with_a_warning(call, tmp_path, monkeypatch, number):
    why = os.strerror(number)

    def flock(*_):
        raise OSError(number, why)

    monkeypatch.setattr("fcntl.flock", flock)
    printed = call("compare", f"--out {tmp_path}")
    assert printed.count(f"the folder {str(tmp_path)!r} cannot be locked ({why})") == 1
    assert (tmp_path / "summary.csv").exists()

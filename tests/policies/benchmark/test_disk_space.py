"""The room that checkpoints will take is told before a run, and which disk is full."""

from __future__ import annotations

import errno
import io
import os
import shutil
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, DivFL, UniD
from policies.benchmark.checkpoint import Checkpoints
from policies.benchmark.command_line import errors_in_one_line
from policies.benchmark.disk_space import tell_room
from policies.benchmark.episode import run_episode
from policies.benchmark.jobs import Job, make_jobs
from train_fl import TrainingEnvFactory

SCENARIO = Scenario.digits(num_devices=12, num_rounds=2)


def test_checkpoint_bytes__is_what_a_checkpoint_takes_apart_from_the_rounds(tmp_path):
    training = TrainingEnvFactory(SCENARIO, "digits", server="fedadam").fitted()
    for policy in (LROA(training.scenario), DivFL(training.scenario)):
        checkpoints = Checkpoints(tmp_path, policy.name, 1)
        run_episode(policy, training(policy), training.scenario, [0], checkpoints)
        size = (tmp_path / f"{policy.name}-2.npz").stat().st_size
        assert 0 < size - training.checkpoint_bytes(policy) < 24_000


@dataclass(frozen=True)
class Large:
    """Training whose gradients take some gigabytes."""

    gigabytes: float

    def __call__(self, policy):
        raise NotImplementedError

    def checkpoint_bytes(self, policy):
        return int(1e9 * self.gigabytes) if policy.uses_gradients else 1000


def test_tell_room__counts_unfinished_runs_at_a_time_and_what_is_there(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=9.5e9))
    jobs = make_jobs([UniD(SCENARIO), DivFL(SCENARIO)], SCENARIO, [0, 1, 2], Large(1.6))
    small = make_jobs([DivFL(SCENARIO)], SCENARIO, [0], Large(0.3))
    unknown = make_jobs([UniD(SCENARIO)], SCENARIO, [0], str)
    divfl, folder = jobs[3:], tmp_path / "new"

    def said(workers: int, jobs: list[Job] = jobs) -> str:
        tell_room(jobs, folder, workers, Console())
        return capsys.readouterr().out

    assert "take up to 4.8 GB" in (told := said(1))
    assert "warning" not in told
    assert f"{str(folder / 'checkpoints')!r}: 3 for each run, of at most 1.6 GB, with 1" in told
    assert "warning: The checkpoints" in (told := said(2))
    assert "up to 9.6 GB" in told
    assert "9.5 GB are free, which may not suffice" in told
    assert "14.4 GB" in said(8)  # there are only three
    (folder / "checkpoints").mkdir(parents=True)
    (saved := folder / "checkpoints" / f"{divfl[0].key}-50.npz").touch()
    os.truncate(saved, int(0.2e9))
    assert "warning" not in said(2)
    for job in divfl[1:]:
        (folder / f"{job.key}.npz").touch()
    assert "4.8 GB" in said(8)
    assert said(8, jobs[:3]) == said(8, small) == said(8, unknown) == ""


def test_full_disk__is_told_with_the_file_and_where_it_is_mounted(tmp_path, capsys, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) in (str(disk), "/"))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=2e6 if path == disk else 9e9)
    )

    def said(*file: str) -> str:
        with pytest.raises(SystemExit) as end, errors_in_one_line(Console()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *file)
        assert end.value.code == 1
        return " ".join("".join(capsys.readouterr()).split())

    assert f"no room for 'disk/out/a.csv': of the disk at '{disk}' 2.0 MB are free; " in (
        said("disk/out/a.csv")
    )
    assert "of the disk at '/' 9.0 GB are free" in said("a.csv")
    assert "no room for a file; make room" in said()  # and no disk that it may not be


class Full(io.StringIO):
    """An output to a full disk."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk__that_takes_what_is_printed_is_told_elsewhere(capsys):
    console = Console(file=Full())
    with pytest.raises(SystemExit) as end, errors_in_one_line(console):
        console.print("a table")
    assert end.value.code == 1
    assert "error: no room for a file" in capsys.readouterr().err

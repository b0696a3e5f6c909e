"""Commands that are told to end, or lose a worker: one line, the right status, nothing left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fl_edge_env import Scenario
from policies import UniD
from policies.benchmark.runner import WorkerKilledError, play_runs
from tests.support import end_session, of_session, python, run_of, text_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# Where the tests run in the background, processes inherit that interrupts are ignored. The search
# for prices is short where the command's own process searches; workers search, too.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from policies.benchmark import bounds; bounds._PRICE_ROUNDS = 50\n"
    "from train_fl.command_line import main; main()"
)
LONG = (
    "compare --no-train --set num_devices=10 --rounds 300 --seeds 400 --policies uni-d uni-s "
    "--workers 2 --out out"
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a command in a session of its own, of which nothing outlives the test."""
    processes = []

    def started(command: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-c", CODE, *command.split()]
        options = {"start_new_session": True, "text": True, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(program, cwd=tmp_path, **options))
        return processes[-1]

    yield started
    for process in processes:
        end_session(process.pid)
        process.communicate()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("send", "kind", "status", "options"),
    [
        (os.killpg, signal.SIGINT, 130, ""),
        (os.killpg, signal.SIGTERM, 143, ""),
        # Ray ends a process at once, with status 1, when the signal reaches Ray's own processes.
        pytest.param(os.kill, signal.SIGTERM, 143, "--backend ray", marks=pytest.mark.slow),
    ],
)
def test_command__stopped_ends_in_one_line(start, tmp_path, send, kind, status, options):
    process = start(f"{LONG} {options}")
    wait_until(lambda: [*tmp_path.glob("out/records/*")])
    send(process.pid, kind)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == status
    assert errors.splitlines()[-1] == "interrupted: rerun the command to resume"
    assert "Traceback" not in errors
    wait_until(lambda: not of_session(process.pid))


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "command",
    [
        "compare --scenario cifar10 --set num_devices=10 --no-train --rounds 200 --seeds 3",
        "compare --set num_devices=6 --rounds 40 --seeds 1 --checkpoint-every 5 --policies divfl",
    ],
)
def test_command__killed_at_random_ends_in_the_same_bytes(start, tmp_path, command):
    began = time.monotonic()
    assert start(f"{command} --workers 2 --out whole").wait(600) == 0
    seconds = time.monotonic() - began
    for kind in (signal.SIGKILL, signal.SIGTERM):
        process = start(f"{command} --workers 2 --out killed")
        time.sleep(random.uniform(0, seconds))
        process.send_signal(kind)
        process.wait(60)
        wait_until(lambda: not of_session(process.pid))  # noqa: B023 - of this process
    assert start(f"{command} --workers 2 --out killed").wait(600) == 0
    for file in tmp_path.glob("whole/*.csv"):
        same = tmp_path / "killed" / file.name
        assert file.name == "timing.csv" or same.read_bytes() == file.read_bytes()


class Killed(UniD):
    """One whose worker the system kills, as it does where memory runs out."""

    def decide(self, observation):
        if os.getppid() == self.parent:  # and not the tests' own process
            os.kill(os.getpid(), signal.SIGKILL)
        return super().decide(observation)


def test_play_runs__a_killed_worker_leaves_finished_runs(tmp_path):
    scenario = Scenario.digits(num_devices=5, num_rounds=10)
    killed = Killed(scenario)
    killed.parent = os.getpid()
    first = text_run("uni-s", scenario)
    play_runs([first], folder=tmp_path)
    with pytest.raises(WorkerKilledError, match=r"killed a worker process.*--workers 1$"):
        play_runs([first, run_of(killed), run_of(UniD(scenario))], folder=tmp_path, workers=2)
    assert len([*tmp_path.iterdir()]) == 1


CHILDREN = """
import os, signal, subprocess, sys, time

def start_and_fork():
    told = "import signal as s; print(s.getsignal(s.SIGINT) is s.default_int_handler)"
    assert subprocess.check_output([sys.executable, "-c", told], text=True) == "True\\n"
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        os.write(writes, b"y" if default else b"n")
        time.sleep(60)
        os._exit(1)
    assert os.read(reads, 1) == b"y"
    os.kill(child, signal.SIGTERM)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
"""


IN_COMMAND = """
import train_fl.command_line as c
signal.signal(signal.SIGINT, signal.default_int_handler)
c._fix_process()
with c._ends_in_one_line():
    start_and_fork()
"""


class Parent(UniD):
    """One that starts and forks processes, which must end as others do."""

    def decide(self, observation):
        exec(f"{CHILDREN}\nstart_and_fork()", {})
        return super().decide(observation)


def test_children_of_a_policy__end_by_signals():
    scenario = Scenario.digits(num_devices=5, num_rounds=1)
    play_runs([run_of(Parent(scenario)), run_of(UniD(scenario))], workers=2)
    done = python(CHILDREN + IN_COMMAND)
    assert (done.returncode, done.stderr) == (0, "")

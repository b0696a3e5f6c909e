"""Commands that are told to end, or lose a worker: one line, the right status, nothing left."""

from __future__ import annotations

import contextlib
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
from tests.support import MAIN, end_session, of_session, python, run_of, text_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# Where the tests run in the background, processes inherit that interrupts are ignored.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from train_fl.command_line import main; main()"
)
QUICK = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{MAIN}"
LONG = (
    "compare --scenario digits --set num_devices=10 --rounds 2000 --seeds 2 --policies uni-d uni-s "
    "--checkpoint-every 5"
)
STATUS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in a session of its own, of which nothing outlives the test."""
    with contextlib.ExitStack() as stack:

        def started(command: str, code: str = CODE) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *command.split()],
                cwd=tmp_path,
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
                start_new_session=True,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            stack.enter_context(process)
            stack.callback(end_session, process.pid)
            while not handles(process.pid, signal.SIGTERM):  # still in Python's own start
                assert process.poll() is None
                time.sleep(0.01)
            return process

        yield started


def handles(process: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def assert_ends(process: subprocess.Popen[str], status: int, said: str) -> None:
    """In one line, and after it nobody is left.

    If it had told its results, Python was ending: it ends by the signal itself, or by then has.
    """
    out, errors = process.communicate(timeout=300)
    if "Results" in out:
        assert process.returncode in (0, 128 - status), errors
    else:
        assert process.returncode == status, errors
        assert said in errors.splitlines()[-1]
    assert "Traceback" not in out + errors
    assert_nobody_left(process, 60)


def assert_nobody_left(process: subprocess.Popen[str], seconds: float) -> None:
    """No process of its session lives longer than this."""
    deadline = time.monotonic() + seconds
    while left := of_session(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def wait_for_runs(process: subprocess.Popen[str], cache: Path) -> None:
    deadline = time.monotonic() + 900
    while len(list(cache.glob("*.checkpoint"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", STATUS)
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_command__stopped_while_imported_ends_in_one_line(start, tmp_path, kind, seconds):
    status, said = STATUS[kind]
    process = start(f"{LONG} --out out")
    time.sleep(seconds)
    process.send_signal(kind)
    assert_ends(process, status, f"{said}: rerun the command to resume")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_workers__end_when_the_main_process_has_been_killed(start, cache):
    process = start(f"{LONG} --workers 2 --out out")
    wait_for_runs(process, cache)
    process.kill()
    assert_nobody_left(process, 30)


SWALLOWED = """
import ctypes, signal, time
from train_fl.interrupts import interrupts_in_one_line

signal.signal(signal.SIGINT, signal.default_int_handler)

@ctypes.CFUNCTYPE(None)
def callback():
    signal.raise_signal({number})

with interrupts_in_one_line():
    callback()
    time.sleep(60)
"""


# C++ would end the process here.
IMPORTING = """
import signal, sys, time
from train_fl.interrupts import interrupts_in_one_line

signal.signal(signal.SIGINT, signal.default_int_handler)
with open("raising.py", "w") as file:
    file.write("import signal; signal.raise_signal({number})")
with interrupts_in_one_line():
    try:
        import raising
    except BaseException:
        time.sleep(60)
"""


@pytest.mark.parametrize("code", [SWALLOWED, IMPORTING])
@pytest.mark.parametrize("kind", STATUS)
def test_interrupt__where_no_exception_gets_through_is_not_lost(tmp_path, kind, code):
    done = python(code.format(number=int(kind)), cwd=tmp_path)
    status, said = STATUS[kind]
    assert done.returncode == status, done
    assert done.stderr == f"{said}: rerun the command to resume\n"


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["worker", "group"])
def test_compare__on_ray_stopped_ends_in_one_line(start, cache, whom):
    pytest.importorskip("ray")
    process = start(f"{LONG} --workers 2 --backend ray --out out")
    wait_for_runs(process, cache)
    if whom == "group":
        os.killpg(process.pid, signal.SIGTERM)
        assert_ends(process, *STATUS[signal.SIGTERM])
    else:
        workers = [p for p, name in of_session(process.pid).items() if "ray::_play" in name]
        os.kill(workers[0], signal.SIGKILL)
        assert_ends(process, 1, "error: the system has killed a worker process")


TRAINED = "compare --set num_devices=6 --rounds 40 --seeds 2 --eval-every 20 --checkpoint-every 5"
PLAYED = "compare --scenario cifar10 --set num_devices=10 --no-train --rounds 200 --seeds 3"
RESUMED = {
    "compare": f"{PLAYED} --workers 2",
    "trained": f"{TRAINED} --policies uni-d divfl --workers 1",
}


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", RESUMED)
def test_command__killed_at_random_ends_in_the_same_bytes(start, tmp_path, name):
    command = f"{RESUMED[name]} --out"
    whole = tmp_path / "1"
    killed = tmp_path / "2"
    began = time.monotonic()
    assert start(f"{command} {whole}", QUICK).wait(600) == 0
    seconds = time.monotonic() - began
    for kind in ("alone", signal.SIGKILL, signal.SIGTERM):
        process = start(f"{command} {killed}", QUICK)
        time.sleep(random.uniform(0, seconds))
        if kind == "alone":  # its workers may finish their runs
            process.kill()
        else:
            os.killpg(process.pid, kind)
        if kind == signal.SIGTERM:
            assert_ends(process, *STATUS[kind])
        process.wait()
    process = start(f"{command} {killed}", QUICK)
    assert process.wait(600) == 0, process.communicate()
    for file in whole.glob("*.csv"):
        assert file.name == "timing.csv" or (killed / file.name).read_bytes() == file.read_bytes()
    assert {path.name for path in killed.rglob(".*")} == {".lock"}


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
    runs = [first, run_of(killed), run_of(UniD(scenario))]
    with pytest.raises(WorkerKilledError, match=r"killed a worker process.*--workers 1$"):
        play_runs(runs, folder=tmp_path, workers=2)
    assert len([*tmp_path.iterdir()]) == 1

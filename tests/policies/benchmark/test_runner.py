"""The runner: nothing is lost, nothing is run twice, failures are reported at the end."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from typing import NamedTuple

import gymnasium as gym
import pandas as pd
import pytest

from fl_edge_env import FLEdgeEnv, Scenario
from policies import UniD, UniS, evaluate
from policies.benchmark.run import PolicyText, Run
from policies.benchmark.runner import RunsFailedError, play_runs
from policies.benchmark.setting import Setting
from tests.support import assert_same_records, python, run_of, text_run


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=10, num_rounds=12)


@pytest.fixture
def runs(scenario: Scenario) -> list[Run]:
    names = "lroa", "uni-d", "random"
    return [text_run(name, scenario, seed) for name in names for seed in (0, 1, 2**62)]


def test_play_runs__only_what_is_missing_or_damaged_is_run(runs, tmp_path):
    names = []
    for number, run in enumerate(runs, 1):
        play_runs([run], folder=tmp_path)
        (name,) = {path.name for path in tmp_path.iterdir()} - {*names}
        names.append(name)
        assert len(names) == number
    first = play_runs(runs, folder=tmp_path / "others", workers=2)
    assert sorted(path.name for path in (tmp_path / "others").iterdir()) == sorted(names)
    assert_same_records(first, play_runs(runs))
    tmp_path = tmp_path / "others"
    whole = (tmp_path / names[1]).read_bytes()
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).write_bytes(whole[: len(whole) // 2])
    damaged = bytearray((tmp_path / names[2]).read_bytes())
    damaged[len(damaged) // 3] ^= 1
    (tmp_path / names[2]).write_bytes(damaged)
    (tmp_path / names[3]).write_bytes(b"")
    (tmp_path / names[4]).write_bytes((tmp_path / names[5]).read_bytes())
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert_same_records(play_runs(runs, folder=tmp_path), first)
    again = [(tmp_path / name).stat().st_mtime > 0 for name in names]
    assert again == [True] * 5 + [False] * (len(runs) - 5)
    assert (tmp_path / names[1]).read_bytes() == whole


class Broken(UniD):
    def decide(self, observation):
        raise RuntimeError(f"out of order at {len(observation)} observations\nand more")


class Colourful(UniD):
    def decide(self, _):
        raise ValueError("\x1b[31m" + 5000 * "x" + "\x1b[0m")


class Caused(UniD):
    def decide(self, _):
        try:
            return {}["gain"]
        except KeyError as error:
            raise ValueError("no gain\nand more") from error


class FullDisk(FLEdgeEnv):
    def step(self, action):
        *rest, info = super().step(action)
        losses = dict.fromkeys(("train_loss", "test_loss", "test_accuracy"), 0.5)
        return *rest, info | losses | {"client_updates": {}}

    def save_model(self, path):
        raise OSError(28, "No space left on device", str(path))


class Disks(NamedTuple):
    identity: Scenario

    def __call__(self, _):
        return FullDisk(self.identity)


def test_play_runs__a_lost_model_leaves_its_rounds(scenario, tmp_path):
    text = PolicyText("uni-d", {})
    runs = [Run("Uni-D", UniD(scenario), scenario, (0,), Disks(scenario), text=text)]
    with pytest.warns(RuntimeWarning, match="the last model is lost, but the rounds are kept"):
        (played,) = play_runs(runs, folder=tmp_path / "runs", models=tmp_path / "models")
    assert len(played.rounds) == scenario.num_rounds
    assert not (tmp_path / "models").exists()


HERE = r" in round 1 \(.*test_runner.py:\d+ in decide\)$"


@pytest.mark.parametrize(
    ("workers", "kind", "message"),
    [
        (1, "Broken", r"RuntimeError: out of order at \d observations" + HERE),
        (2, "Caused", r"ValueError: no gain" + HERE),
        (1, "Colourful", r"ValueError: x{400,500} …" + HERE),
    ],
)
def test_play_runs__a_failure_is_one_line_and_stops_no_other(
    scenario, tmp_path, workers, kind, message
):
    names = f"{__file__}:{kind}", "uni-s", "uni-d"
    runs = [text_run(name, scenario) for name in names]
    message = rf"^1 run failed:\n{kind}, seeds \[0\]: {message}"
    with pytest.raises(RunsFailedError, match=message) as raised:
        play_runs(runs, folder=tmp_path, workers=workers)
    assert [run.policy.name for run, _ in raised.value.failures] == [kind]
    assert len(list(tmp_path.iterdir())) == 2


def test_play_runs__names_ten_failures_at_most(scenario):
    runs = [run_of(Broken(scenario), seed) for seed in range(12)]
    with pytest.raises(RunsFailedError, match=r"^12 runs failed:\n(Broken.*\n){10}and 2 more$"):
        play_runs(runs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be an integer of at least 1, got 0"),
    ],
)
def test_play_runs__names_what_is_wrong(runs, options, message):
    with pytest.raises(ValueError, match=message):
        play_runs(runs, **options)


def test_setting__has_batches_that_fit_into_memory(monkeypatch):
    monkeypatch.setattr("policies.benchmark.setting.find_prices", lambda *_, **__: None)

    def seeds(training: bool = False, devices: int = 10) -> list[tuple[int, ...]]:
        system = Scenario.cifar10(num_devices=devices, lambda_=1.0, V=1.0)
        make_env = (lambda _: gym.make("FLEdge-v0", scenario=system)) if training else None
        unseeded = (Run("it", UniS(system), system, make_env=make_env),)
        runs, _ = Setting("", unseeded, range(5, 16), bounded=False).seeded_runs()
        return [run.seeds for run in runs]

    assert seeds(training=True) == [(seed,) for seed in range(5, 16)]
    assert seeds() == [tuple(range(5, 16))]
    assert seeds(devices=2**20) == [(seed,) for seed in range(5, 16)]
    assert seeds(devices=400_000) == [(5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15,)]


def test_evaluate__shows_a_bar_only_if_asked_to(scenario, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    for progress in (False, True):
        evaluate([UniD(scenario)], scenario, [0, 1, 2], gaps=False, progress=progress)
        out, written = capsys.readouterr()
        assert ("3/3" in written, out) == (progress, "")


# Two nodes with a processor each, and the command at their address.
TWO_NODES = """
import os, sys
from ray.cluster_utils import Cluster
from train_fl.command_line import main
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
main(sys.argv[1:])
cluster.shutdown()
"""
# Each policy waits for the other, so both nodes must play one.
MINE = """
import time
from pathlib import Path
import helper, ray
from policies import UniS

helper.SHARE = 1

class Mine(UniS):
    def decide(self, observation):
        assert helper.SHARE
        if ray.is_initialized():  # not in the process of the command
            Path("nodes", ray.get_runtime_context().get_node_id()).touch()
        while len([*Path("nodes").iterdir()]) < 2:
            time.sleep(0.01)
        return super().decide(observation)

class Other(Mine):
    pass
"""


@pytest.mark.slow
def test_compare__on_two_nodes_finds_a_policys_neighbours(tmp_path):
    folder = tmp_path / "elsewhere"
    for each in (folder, tmp_path / "nodes"):
        each.mkdir()
    (folder / "helper.py").write_text("SHARE = 0\n")
    (folder / "mine.py").write_text(MINE.replace('"nodes"', repr(str(tmp_path / "nodes"))))
    policies = f"{folder / 'mine.py'}:Mine {folder / 'mine.py'}:Other"
    command = f"compare --rounds 3 --seeds 1 --no-train --policies {policies}"
    done = python(
        TWO_NODES,
        *f"{command} --backend ray --workers 2".split(),
        cwd=tmp_path,
        timeout=300,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_play_runs__ray_gives_the_same_locally_and_at_an_address(runs):
    # A process of its own: Ray leaves threads and sockets behind.
    code = (
        "import os, pandas as pd, pickle, sys\n"
        "from ray.cluster_utils import Cluster\n"
        "from policies.benchmark.runner import play_runs\n"
        "runs = pickle.load(sys.stdin.buffer)\n"
        "def run():\n"
        "    played = play_runs(runs, workers=2, backend='ray')\n"
        "    rounds = [one.rounds for one in played]\n"
        "    sys.stdout.write(pd.concat(rounds).to_csv(index=False))\n"
        "run()\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2})\n"
        "os.environ['RAY_ADDRESS'] = cluster.address\n"
        "run()\n"
        "cluster.shutdown()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps([dataclasses.replace(run) for run in runs]),
        capture_output=True,
        check=False,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    rounds = pd.concat(played.rounds for played in play_runs(runs))
    assert result.stdout.decode() == 2 * rounds.to_csv(index=False)

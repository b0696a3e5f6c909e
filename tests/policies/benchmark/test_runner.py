"""The runner: nothing is lost, nothing is run twice, failures are reported at the end."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import FLEdgeEnv, Scenario
from policies import LROA, DivFL, UniD, UniS, evaluate, make_policy
from policies.benchmark.episode import Episodes
from policies.benchmark.experiment import Entrant, Setting
from policies.benchmark.jobs import Job, job_key
from policies.benchmark.runner import JobsFailedError, run_jobs


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=10, num_rounds=12)


@pytest.fixture
def jobs(scenario: Scenario) -> list[Job]:
    policies = [LROA(scenario), UniD(scenario), DivFL(scenario)]
    seeds = 0, 1, 2**64
    return [Job(policy, scenario, (seed,)) for policy in policies for seed in seeds]


def assert_equal(left: list[Episodes], right: list[Episodes]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        pd.testing.assert_frame_equal(a.rounds, b.rounds, check_exact=True)
        for one, other in zip(a.devices, b.devices, strict=True):
            np.testing.assert_array_equal(one, other)


def test_run_jobs__only_what_is_missing_or_damaged_is_run(jobs, tmp_path, monkeypatch):
    first = run_jobs(jobs, folder=tmp_path, workers=2)
    names = [f"{job_key(job)}.npz" for job in jobs]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert_equal(first, run_jobs(jobs))
    whole = (tmp_path / names[1]).read_bytes()
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).write_bytes(whole[: len(whole) // 2])
    damaged = bytearray((tmp_path / names[2]).read_bytes())
    damaged[len(damaged) // 3] ^= 1
    (tmp_path / names[2]).write_bytes(damaged)
    with np.load(tmp_path / names[3]) as file:
        edited = dict(file) | {"rounds.round_time": file["rounds.round_time"] + 1.0}
    np.savez(tmp_path / names[3], **edited)
    (tmp_path / names[4]).write_bytes((tmp_path / names[5]).read_bytes())
    run = Job.run
    ran = []
    monkeypatch.setattr(Job, "run", lambda job, *args: ran.append(job) or run(job, *args))
    assert_equal(run_jobs(jobs, folder=tmp_path), first)
    assert ran == jobs[:5]
    assert (tmp_path / names[1]).read_bytes() == whole


class Broken(UniD):
    def decide(self, observation):
        raise RuntimeError(f"out of order at {len(observation)} observations\nand more")


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


def test_run_jobs__a_model_that_cannot_be_written_leaves_its_rounds(scenario, tmp_path):
    jobs = [Job(UniD(scenario), scenario, (0,), lambda _: FullDisk(scenario))]
    with pytest.warns(RuntimeWarning, match="the last model is lost, but the rounds are kept"):
        (played,) = run_jobs(jobs, folder=tmp_path / "jobs", models=tmp_path / "models")
    assert len(played.rounds) == scenario.num_rounds
    assert not (tmp_path / "models").exists()


HERE = r" \(.*test_runner.py:\d+ in decide\)$"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Broken", r"RuntimeError: out of order at \d observations" + HERE),
        ("Caused", r"ValueError: no gain" + HERE),
    ],
)
def test_run_jobs__a_failure_is_one_line_and_stops_no_other(
    scenario, tmp_path, workers, kind, message
):
    names = f"{__file__}:{kind}", "uni-s", "uni-d"
    jobs = [Job(make_policy(name, scenario), scenario, (0,)) for name in names]
    message = rf"^1 job failed:\n{kind}, seeds \[0\]: {message}"
    with pytest.raises(JobsFailedError, match=message) as raised:
        run_jobs(jobs, folder=tmp_path, workers=workers)
    assert [job.policy.name for job, _ in raised.value.failures] == [kind]
    assert len(list(tmp_path.iterdir())) == 2


def test_run_jobs__names_ten_failures_at_most(scenario):
    jobs = [Job(Broken(scenario), scenario, (seed,)) for seed in range(12)]
    with pytest.raises(JobsFailedError, match=r"^12 jobs failed:\n(Broken.*\n){10}and 2 more$"):
        run_jobs(jobs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ({"backend": "dask"}, "backend must be 'processes' or 'ray', got 'dask'"),
        ({"checkpoint_every": 0}, "checkpoint_every must be an integer of at least 1, got 0"),
    ],
)
def test_run_jobs__names_what_is_wrong(jobs, options, message):
    with pytest.raises(ValueError, match=message):
        run_jobs(jobs, **options)


def test_setting__trains_seeds_one_by_one_and_else_in_batches_that_fit_in_memory():
    def seeds(training: bool = False, devices: int = 10) -> list[tuple[int, ...]]:
        system = Scenario.cifar10(num_devices=devices, lambda_=1.0, V=1.0)
        make_env = (lambda _: gym.make("FLEdge-v0", scenario=system)) if training else None
        entrants = (Entrant("it", UniS(system), system, make_env),)
        jobs, _ = Setting("", entrants, range(5, 16), bounded=False).work()
        return [job.seeds for _, job in jobs]

    assert seeds(training=True) == [(seed,) for seed in range(5, 16)]
    assert seeds() == [tuple(range(5, 16))]
    assert seeds(devices=2**20) == [(seed,) for seed in range(5, 16)]
    assert seeds(devices=400_000) == [(5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15,)]


def test_evaluate__shows_a_bar_only_if_asked_to(scenario, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    for progress in (False, True):
        evaluate([UniD(scenario)], scenario, [0], gaps=False, progress=progress)
        out, written = capsys.readouterr()
        assert ("1/1" in written, out) == (progress, "")


@pytest.mark.slow
def test_compare__on_ray_finds_the_neighbours_of_a_policys_file(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "helper.py").write_text("SHARE = 1\n")
    (folder / "mine.py").write_text(
        "import helper\nfrom policies import UniS\n\nclass Mine(UniS):\n"
        "    def decide(self, observation):\n"
        "        assert helper.SHARE\n        return super().decide(observation)\n"
    )
    command = f"compare --policies {folder / 'mine.py'}:Mine --rounds 3 --seeds 1 --no-train"
    command += " --backend ray --workers 2 --out it"
    done = subprocess.run(
        [sys.executable, "-c", "from train_fl.command_line import main; main()", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_run_jobs__ray_gives_the_same_locally_and_at_an_address(jobs):
    # A process of its own: Ray leaves threads and sockets behind.
    code = (
        "import os, pandas as pd, pickle, sys\n"
        "from ray.cluster_utils import Cluster\n"
        "from policies.benchmark.runner import run_jobs\n"
        "jobs = pickle.load(sys.stdin.buffer)\n"
        "def run():\n"
        "    played = run_jobs(jobs, workers=2, backend='ray')\n"
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
        input=pickle.dumps([dataclasses.replace(job) for job in jobs]),
        capture_output=True,
        check=False,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    rounds = pd.concat(played.rounds for played in run_jobs(jobs))
    assert result.stdout.decode() == 2 * rounds.to_csv(index=False)

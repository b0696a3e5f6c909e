"""The runner: nothing is lost, nothing is run twice, failures are told at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pickle
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, DivFL, Policy, Scheduler, UniD, UniS
from policies.benchmark.episode import Episodes
from policies.benchmark.jobs import Job, code_hash, make_jobs
from policies.benchmark.runner import JobsFailedError, finished, run_jobs
from policies.selection import BestChannel
from train_fl import TrainingEnvFactory


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=10, num_rounds=12)


@pytest.fixture
def jobs(scenario: Scenario) -> list[Job]:
    policies = [LROA(scenario), UniD(scenario), DivFL(scenario)]
    return [Job(policy, scenario, (seed,)) for policy in policies for seed in range(3)]


def assert_equal(left: list[Episodes], right: list[Episodes]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        pd.testing.assert_frame_equal(a.rounds, b.rounds, check_exact=True)
        for one, other in zip(a.devices, b.devices, strict=True):
            np.testing.assert_array_equal(one, other)


def test_run_jobs__finished_jobs_are_read_and_not_run_again(jobs, tmp_path, monkeypatch):
    first = run_jobs(jobs, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == len(jobs)
    monkeypatch.setattr(Job, "run", lambda _: pytest.fail("ran again"))
    seen = []
    assert_equal(run_jobs(jobs, folder=tmp_path, on_finish=seen.append), first)
    assert seen == jobs


class Broken(UniD):
    def decide(self, observation):
        raise RuntimeError(f"out of order at {len(observation)} observations\nand more")


class Group(UniD):
    def decide(self, _):
        raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])


class Caused(UniD):
    def decide(self, _):
        try:
            return {}["gain"]
        except KeyError as error:
            raise ValueError("no gain\nand more") from error


class Tuple(UniD):
    def decide(self, observation):
        decision = super().decide(observation)
        return decision.f, decision.p, decision.q


HERE = r" \(.*test_runner.py:\d+ in decide\)$"


@pytest.mark.parametrize("workers", [1, 2])
def test_run_jobs__a_failure_is_told_at_the_end_and_stops_no_other(scenario, tmp_path, workers):
    jobs = [Job(policy(scenario), scenario, (0,)) for policy in (Broken, UniS, UniD)]
    told = r"Broken, seeds \[0\]: RuntimeError: out of order at \d observations"
    with pytest.raises(JobsFailedError, match=told + HERE) as raised:
        run_jobs(jobs, folder=tmp_path, workers=workers)
    assert [job.policy.name for job, _ in raised.value.failures] == ["Broken"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (
            Group,
            r"ExceptionGroup: both \(2 sub-exceptions\); ValueError: one; KeyError: 'two'" + HERE,
        ),
        (Caused, r"ValueError: no gain" + HERE),
        (Tuple, r"ValueError: decide of Tuple must return an Allocation, got a tuple"),
    ],
)
def test_run_jobs__a_failure_of_any_kind_is_told_in_one_line(scenario, kind, told):
    with pytest.raises(JobsFailedError, match=told):
        run_jobs(make_jobs([kind(scenario)], scenario, [0]))


def test_key__changes_with_all_that_changes_the_result(scenario):
    job = Job(LROA(scenario), scenario, (0, 1))
    assert job.key == Job(LROA(scenario), scenario.replace(), (0, 1)).key
    others = [
        Job(LROA(scenario, variant="paper"), scenario, (0, 1)),
        Job(UniD(scenario), scenario, (0, 1)),
        Job(LROA(scenario), scenario.replace(mu=1.5), (0, 1)),
        Job(LROA(scenario), scenario.replace(p_max=0.1 * (1 + 1e-15)), (0, 1)),
        Job(LROA(scenario), scenario, (0, 2)),
        Job(LROA(scenario), scenario, (0, 1), make_env=str),
    ]
    assert len({job.key, *(other.key for other in others)}) == 1 + len(others)


def test_key__changes_with_the_code_of_the_packages(scenario, monkeypatch, tmp_path):
    keys = set()
    monkeypatch.setattr("policies.benchmark.jobs.PACKAGES", (tmp_path,))
    for code in ("a = 1", "a = 2"):
        (tmp_path / "code.py").write_text(code)
        code_hash.cache_clear()
        keys.add(Job(UniD(scenario), scenario, (0,)).key)
    code_hash.cache_clear()
    assert len(keys) == 2


def test_finished__a_run_lacks_its_model_only_where_models_are_asked_for(scenario, tmp_path):
    job = Job(UniD(scenario), scenario, (0,), make_env=str)
    (tmp_path / f"{job.key}.npz").touch()
    assert finished([job], tmp_path) == [0]
    assert finished([job], tmp_path, with_models=True) == []


def test_key__is_the_same_in_another_process(scenario):
    code = (
        "from fl_edge_env import Scenario; from policies import DivFL\n"
        "from policies.benchmark.jobs import Job\n"
        "s = Scenario.digits(num_devices=10, num_rounds=12); print(Job(DivFL(s), s, (3,)).key)"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == Job(DivFL(scenario), scenario, (3,)).key


@pytest.mark.parametrize("kind", [LROA, DivFL])
def test_key__is_not_changed_by_an_episode(scenario, kind):
    policy = kind(scenario)
    key = Job(policy, scenario, (0,)).key
    run_jobs([Job(policy, scenario, (0,))])
    policy.feedback({"gradient_devices": np.array([0]), "gradient_distance": np.ones((1, 10))})
    assert Job(policy, scenario, (0,)).key == key


def test_key__knows_a_function_of_ones_own_by_its_code(scenario):
    def slow(_, __, scenario, *___):
        return scenario.f_min, scenario.p_min

    def fast(_, __, scenario, *___):
        return scenario.f_max, scenario.p_max

    fast.__name__, fast.__qualname__ = slow.__name__, slow.__qualname__  # as after an edit
    jobs = [
        Job(Scheduler(BestChannel(scenario), resources=rule), scenario, (0,))
        for rule in (slow, slow, fast)
    ]
    keys = [job.key for job in jobs]
    assert keys[0] == keys[1] != keys[2]
    assert jobs[0].run().rounds.elapsed_time.iloc[-1] > jobs[2].run().rounds.elapsed_time.iloc[-1]


def test_key__changes_with_the_module_of_a_policy_of_ones_own(scenario, tmp_path):
    code = (
        "from policies import UniD\nFACTOR = {}\n"
        "class Own(UniD):\n    def decide(self, observation): return FACTOR\n"
    )
    keys = set()
    for factor in (1, 1, 2):
        path = tmp_path / f"own{len(list(tmp_path.iterdir()))}.py"
        path.write_text(code.format(factor))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        keys.add(Job(module.Own(scenario), scenario, (0,)).key)
    assert len(keys) == 2


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


def test_job__keeps_its_rounds_where_the_last_model_cannot_be_written(tmp_path):
    training = TrainingEnvFactory(Scenario.digits(num_devices=8, num_rounds=2), "digits").fitted()
    (job,) = make_jobs([UniD(training.scenario)], training.scenario, [0], training)
    with pytest.warns(RuntimeWarning, match="the last model is lost, .*: No such file"):
        rounds = job.run(model=tmp_path / "none" / "model.pt")
    assert len(rounds) == 2


def test_make_jobs__trains_seeds_one_by_one_and_else_in_a_batch(scenario):
    policies: list[Policy] = [LROA(scenario), UniD(scenario)]
    assert [j.seeds for j in make_jobs(policies, scenario, np.array([4, 7]))] == [(4, 7)] * 2
    trained = make_jobs(policies, scenario, [4, 7], make_env=str)
    assert [j.seeds for j in trained] == [(4,), (7,), (4,), (7,)]
    for wrong in (["lroa"], [UniD]):
        with pytest.raises(ValueError, match="policies must be instances of Policy, got "):
            make_jobs(wrong, scenario, [0])


@pytest.mark.slow
def test_run_jobs__ray_gives_the_same_locally_and_at_an_address(jobs):
    # A process of its own: Ray leaves threads and sockets behind.
    code = (
        "import pandas as pd, pickle, sys\n"
        "from ray.cluster_utils import Cluster\n"
        "from policies.benchmark.runner import run_jobs\n"
        "jobs = pickle.load(sys.stdin.buffer)\n"
        "def run(address):\n"
        "    played = run_jobs(jobs, workers=2, backend='ray', address=address)\n"
        "    rounds = [one.rounds for one in played]\n"
        "    sys.stdout.write(pd.concat(rounds).to_csv(index=False))\n"
        "run(None)\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2})\n"
        "run(cluster.address)\n"
        "cluster.shutdown()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps([dataclasses.replace(job) for job in jobs]),
        capture_output=True,
        check=False,
        # The address of a cluster which is not asked for.
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "127.0.0.1:1"},
    )
    assert result.returncode == 0, result.stderr.decode()[-2000:]
    rounds = pd.concat(played.rounds for played in run_jobs(jobs))
    assert result.stdout.decode() == 2 * rounds.to_csv(index=False)


@pytest.mark.slow
def test_run_jobs__workers_tell_what_goes_wrong_and_end_when_their_parent_is_killed(tmp_path):
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from fl_edge_env import FLEdgeEnv, Scenario\n"
        "from policies import UniD\n"
        "from policies.benchmark.jobs import make_jobs\n"
        "from policies.benchmark.runner import run_jobs\n"
        "s = Scenario.digits(num_rounds=10**6)\n"
        "def make(policy): return FLEdgeEnv(s)\n"
        "jobs = make_jobs([UniD(s)], s, [0, 1], make)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # no checkpoint has room\n"
        "run_jobs(jobs, folder=Path(sys.argv[1]), workers=2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told = set()
        while len(told) < 2:
            line = process.stderr.readline()
            assert line, "ended before it could be killed"
            told |= set(re.findall(r"RuntimeWarning: cannot write the checkpoint '(.+?)'", line))
        process.kill()
        process.communicate(timeout=60)  # until nobody is left who could write to it
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

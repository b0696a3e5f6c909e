"""Policies by the file or module of their class: found, sent to processes, refused with reasons."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.jobs import Job, job_key
from policies.benchmark.runner import run_jobs
from tests.policies import own_policies

SCENARIO = Scenario.cifar10(num_devices=5, num_rounds=4)


@pytest.fixture
def mine(tmp_path) -> Path:
    # Named like a module of Python's, whose place it must not take.
    return Path(shutil.copy(own_policies.__file__, tmp_path / "random.py"))


def test_own_policy__is_made_from_its_file_and_runs_in_other_processes(mine):
    fast = make_policy(f"{mine}:Steady", SCENARIO, share=1.0)
    slow = make_policy(f"{mine}:Steady", SCENARIO, share=0.0)
    assert fast.name == "Steady"
    assert sys.modules["random"].__file__ != str(mine)
    jobs = [Job(policy, SCENARIO, (0, 1)) for policy in (fast, slow)]
    assert len({job_key(job) for job in jobs}) == 2
    here = run_jobs(jobs, workers=1)
    there = run_jobs(jobs, workers=2)
    for first, second in zip(here, there, strict=True):
        pd.testing.assert_frame_equal(first.rounds, second.rounds, check_exact=True)
    fast, slow = (played.rounds["elapsed_time"] for played in here)
    assert (fast < slow).all()


def test_own_policy__is_made_from_a_module_of_the_working_directory(mine, monkeypatch):
    mine.rename(mine.with_name("my_schedulers.py"))
    monkeypatch.chdir(mine.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    policy = make_policy("my_schedulers:Steady", SCENARIO)
    assert policy.decide({"channel_gain": np.full(5, 0.1), "queue": np.zeros(5)}).q is not None


def test_own_selector__is_given_resources(mine):
    static = make_policy(f"{mine}:Last:static", SCENARIO)
    by_keyword = make_policy(f"{mine}:Last", SCENARIO, resources="static")
    assert static.name == by_keyword.name == "Last, static"
    assert make_policy(f"{mine}:Last", SCENARIO).name == "Last, dynamic"
    job = Job(static, SCENARIO, (0, 1))
    assert run_jobs([job], workers=1)[0].rounds["never_seen"].iloc[-1] == 3

"""Policies by the file or module of their class: found, sent to processes, refused with reasons."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.runner import play_runs
from tests.policies import own_policies
from tests.support import assert_same_records, run_of

SCENARIO = Scenario.cifar10(num_devices=5, num_rounds=4)


@pytest.fixture
def mine(tmp_path) -> Path:
    # Named like a module of Python's, whose place it must not take.
    return Path(shutil.copy(own_policies.__file__, tmp_path / "random.py"))


def test_own_policy__from_a_file_runs_in_other_processes(mine):
    fast = make_policy(f"{mine}:Steady", SCENARIO, share=1.0)
    slow = make_policy(f"{mine}:Steady", SCENARIO, share=0.0)
    assert fast.name == "Steady"
    assert sys.modules["random"].__file__ != str(mine)
    runs = [run_of(policy, 0, 1) for policy in (fast, slow)]
    here = play_runs(runs, workers=1)
    there = play_runs(runs, workers=2)
    assert_same_records(here, there)
    fast, slow = (played.rounds["elapsed_time"] for played in here)
    assert (fast < slow).all()


def test_own_policy__is_made_from_a_module_here(mine, monkeypatch):
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
    assert play_runs([run_of(static, 0, 1)], workers=1)[0].rounds["never_seen"].iloc[-1] == 3

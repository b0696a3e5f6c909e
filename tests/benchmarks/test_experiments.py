"""Cost of running many jobs: several processes against one."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fl_edge_env import Scenario
from policies import LROA
from policies.benchmark.jobs import Job, make_jobs
from policies.benchmark.runner import run_jobs

pytestmark = pytest.mark.benchmark


def sweep(count: int, num_rounds: int) -> list[Job]:
    jobs = []
    for mu in np.linspace(0.1, 10, count):
        scenario = Scenario.cifar10(num_rounds=num_rounds, mu=float(mu))
        jobs += make_jobs([LROA(scenario)], scenario, [0])
    return jobs


def test_jobs__two_processes_against_one(report):
    seconds = {}
    for workers in (1, 2):
        run_jobs(sweep(2, 10), workers=workers)  # starts the processes
        start = time.perf_counter()
        run_jobs(sweep(40, 4000), workers=workers)
        seconds[workers] = time.perf_counter() - start
    report(f"40 jobs: two processes {seconds[1] / seconds[2]:.2f} times as fast as one")

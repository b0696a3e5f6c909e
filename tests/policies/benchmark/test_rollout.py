"""A run that ends early is the beginning of the whole run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import Opportunistic
from policies.benchmark.checkpoint import Checkpoints
from policies.benchmark.jobs import Job, make_jobs
from policies.benchmark.rollout import Stop
from train_fl import TrainingEnvFactory


@pytest.fixture(scope="module")
def whole() -> Job:
    scenario = Scenario.digits(num_devices=8, num_rounds=24)
    training = TrainingEnvFactory(scenario, "digits", eval_every=3).fitted()
    (job,) = make_jobs([Opportunistic(training.scenario)], training.scenario, [3], training)
    return job


def test_stop__gives_the_first_rounds_of_the_whole_run(whole, tmp_path):
    rounds = whole.run().rounds
    accuracy, time = rounds["test_accuracy"], rounds["elapsed_time"]
    target = float(accuracy.iloc[11])  # of round 12, and perhaps of an earlier one
    first = int(np.argmax(accuracy >= target)) + 1
    assert 1 < first < 24
    for stop, last in (
        (Stop(target, np.inf), first),
        (Stop(1.1, float(time[6])), 8),  # the first round beyond that of round 7
        (Stop(target, float(time[first])), first),
        (Stop(1.1, np.inf), 24),
    ):
        job = dataclasses.replace(whole, stop=stop)
        assert job.key != whole.key
        played = job.run()
        kept = [name for name in rounds if name != "real_time"]
        pd.testing.assert_frame_equal(played.rounds[kept], rounds[kept][:last], check_exact=True)
        spent = rounds["worst_spent_ratio"][last - 1]
        assert played.devices.energy.max() == pytest.approx(spent, rel=1e-12)
        # Interrupted, and taken up at the last checkpoint.
        again = job.run(Checkpoints(tmp_path, job.key, 4))
        resumed = job.run(Checkpoints(tmp_path, job.key, 4))
        for one in (again, resumed):
            pd.testing.assert_frame_equal(one.rounds[kept], played.rounds[kept], check_exact=True)

"""Random systems and long episodes: what always holds, does, and nothing leaks or drifts.

``SOAK_CASES`` sets the number of random systems. The name of one that fails says how to repeat it.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, Policy, evaluate, make_policy
from policies.registry import POLICIES
from tests.fl_edge_env.test_round import SYSTEM_OPTIONS, random_system
from train_fl import TrainingEnvFactory, TrainingWrapper, make_task

pytestmark = pytest.mark.slow
# Undefined for policies that choose their cohorts, in systems without a bound, or without training.
MAY_BE_NAN = {"sampling_error", "mean_objective", "gap", "outcome_gap", "time_to_target"}
EPS = np.finfo(np.float64).eps
LEAK = [1000, 4e6]  # an object left behind by each round would be thousands of blocks
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.filterwarnings("ignore::UserWarning")  # random systems are odd
@pytest.mark.parametrize("case", range(int(os.environ.get("SOAK_CASES", "40"))))
def test_random_system__repeats_itself_and_nobody_passes_a_bound(case):
    rng = np.random.default_rng(case)
    training = case % 10 == 9
    make_env = None
    options = {name for name in SYSTEM_OPTIONS if rng.random() < 0.3}
    scenario = random_system(rng, options, most=30).replace(num_rounds=int(rng.choice([20, 60])))
    if training:
        scenario = scenario.replace(num_rounds=6, compression="qsgd:4")
        make_env = TrainingEnvFactory(scenario, "digits", on_non_finite="skip").fitted()
        scenario = make_env.scenario
    policy = random_policy(rng, scenario, training=training)
    seeds = rng.choice(10**6, 2 if training else 8, replace=False).tolist()
    table, again = (evaluate([policy], scenario, seeds, make_env=make_env) for _ in range(2))
    pd.testing.assert_frame_equal(table, again, check_exact=True)
    alone = evaluate([policy], scenario, seeds[1:2], make_env=make_env).iloc[0]
    judged = ["status", "status_reason"]  # over all seeds together
    left = table.iloc[1].drop(judged)
    right = alone.drop(judged)
    pd.testing.assert_series_equal(left, right, check_exact=True, check_names=False)
    finite = np.isfinite(table.select_dtypes("number")).all()
    assert {*finite.index[~finite]} <= MAY_BE_NAN
    assert (table["total_time"] <= scenario.deadline_s * scenario.num_rounds * (1 + 1e-9)).all()
    assert not (table[["gap", "outcome_gap"]] < -1e-9).any(axis=None), table.to_string()


def random_policy(rng: np.random.Generator, scenario: Scenario, *, training: bool) -> Policy:
    """A policy that accepts the system."""
    try:
        policy = make_policy(str(rng.choice(list(POLICIES))), scenario)
    except ValueError:
        policy = None
    accepted = policy is not None and (training or not policy.needs_training)
    return policy if accepted else random_policy(rng, scenario, training=training)


def held() -> np.ndarray:
    """What the process holds: memory blocks of Python's, and bytes of any kind."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # or a leak would hide in what others have freed
        libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return np.array([sys.getallocatedblocks(), pages * resource.getpagesize()])


def play(env: gym.Env[Any, Any], scenario: Scenario) -> Iterator[dict[str, Any]]:
    """The rounds of LROA, beside sums of the test's own in extended precision."""
    policy = LROA(scenario)
    budget = scenario.energy_budget_j
    time = np.longdouble()
    over = np.zeros(scenario.num_devices)
    observation, _ = env.reset(seed=7)
    for number in range(1, scenario.num_rounds + 1):
        observation, _, _, truncated, info = env.step(policy.decide(observation))
        yield info
        expected = info["energy_expected"]
        time = time + info["round_time"]
        assert abs(info["elapsed_time"] / time - 1) <= EPS / 2 * number
        over = over + expected - budget
        if number == scenario.num_rounds // 10:
            memory = held()
    assert truncated
    assert np.all(held() - memory < LEAK)
    assert np.all(over <= 0.03 * number * budget)


@LINUX
def test_env__neither_leaks_nor_drifts():
    # From devices whose queue is mostly empty to those that fill it for thousands of rounds
    scenario = Scenario.digits(
        num_devices=12,
        num_rounds=30_000,
        cohort_size=3,
        num_samples=np.linspace(30, 110, 12),
        energy_budget_j=np.linspace(0.3, 0.05, 12),
        download_rate_bps=1e6,
        nu=100.0,
    )
    for _ in play(gym.make("FLEdge-v0", scenario=scenario), scenario):
        pass


@LINUX
def test_training__neither_leaks_nor_drifts_and_learns():
    task = make_task("digits", num_devices=40)
    scenario = task.fit(
        Scenario.digits(num_rounds=2_000, local_epochs=1, energy_budget_j=0.008, nu=100.0)
    )
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task, eval_every=100)
    first = math.nan
    for info in play(env, scenario):
        assert math.isfinite(info["train_loss"])
        first = info.get("test_loss", first) if math.isnan(first) else first
    assert info["test_loss"] < first

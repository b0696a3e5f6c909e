"""Random systems, policies and trainings for some minutes: what always holds, does.

``SOAK_SECONDS`` sets the time, and ``SOAK_SEED`` the first case. A failure says how to repeat it.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import CellChannel, ExponentialChannel, MarkovChannel, Scenario, UplinkChannel
from policies import Policy, evaluate, make_policy
from policies.benchmark import bounds
from policies.outcome import prices
from policies.registry import POLICIES
from train_fl import TrainingEnvFactory

# Undefined for policies that choose their cohorts, in systems without a bound, or without training.
MAY_BE_NAN = {"sampling_error", "mean_objective", "gap", "outcome_gap", "time_to_target"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # random systems are odd
def test_soak__random_systems_repeat_themselves_and_nobody_passes_a_bound(monkeypatch):
    monkeypatch.setattr(bounds, "_PRICE_ROUNDS", 50)  # any prices give valid bounds
    monkeypatch.setattr(prices, "_STAGES", (20,))
    end = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "300"))
    seed = first = int(os.environ.get("SOAK_SEED", "0"))
    while seed == first or time.monotonic() < end:
        print(f"SOAK_SECONDS=0 SOAK_SEED={seed} repeats this case")
        play(np.random.default_rng(seed), training=seed % 10 == 9)
        seed += 1


def play(rng: np.random.Generator, *, training: bool) -> None:
    """A policy on a batch of systems, twice, and on one of them alone."""
    scenario, make_env = random_scenario(rng), None
    if training:
        scenario = scenario.replace(num_rounds=6)
        make_env = TrainingEnvFactory(scenario, "digits", on_non_finite="skip").fitted()
        scenario = make_env.scenario
    policy = random_policy(rng, scenario, training=training)
    seeds = rng.choice(10**6, 2 if training else 8, replace=False).tolist()
    table, again = (evaluate([policy], scenario, seeds, make_env=make_env) for _ in range(2))
    pd.testing.assert_frame_equal(table, again, check_exact=True)
    alone = evaluate([policy], scenario, seeds[1:2], make_env=make_env).iloc[0]
    judged = ["status", "status_reason"]  # over all seeds together
    left, right = table.iloc[1].drop(judged), alone.drop(judged)
    pd.testing.assert_series_equal(left, right, check_exact=True, check_names=False)
    numbers = table.select_dtypes("number")
    finite = np.isfinite(numbers).all()
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


def random_scenario(rng: np.random.Generator) -> Scenario:
    """A system drawn from all fields and channels."""
    devices = int(rng.choice([1, 2, 5, 12, 30]))

    # A number of about this size, or one for each device.
    def some(size: float, decades: float = 0.5) -> float | np.ndarray:
        return size * 10 ** rng.uniform(-decades, decades, () if rng.random() < 0.5 else devices)

    mean = 0.1 * 10 ** rng.uniform(-1, 1)
    law = ExponentialChannel(mean, 0.1 * mean, 5 * mean, str(rng.choice(["clip", "resample"])))
    correlated = MarkovChannel.correlated(rng.uniform(0, 0.98), num_states=4, marginal=law)
    channels = [law, correlated, CellChannel(mean=mean), UplinkChannel()]
    fields = {
        "num_devices": devices,
        "cohort_size": int(rng.integers(1, 6)),
        "num_rounds": int(rng.choice([20, 60])),
        "bandwidth_hz": 1e6 * 10 ** rng.uniform(-1, 1),
        "model_bits": 3e8 * 10 ** rng.uniform(-3, 0.3),
        "num_samples": some(400.0),
        "cycles_per_sample": some(3e9, 1.0),
        "energy_budget_j": some(15.0, 1.5),
        "channel": channels[rng.integers(4)],
        "mu": float(rng.choice([0.1, 1.0, 10.0])),
        "latency": str(rng.choice(["proxy", "round_time"])),
        "csi": str(rng.choice(["full", "full", "delayed", "participants"])),
        "objective": str(rng.choice(["penalty", "outcome"])),
        "compression": str(rng.choice(["none", "qsgd:1", "qsgd:4", "topk:0.01"])),
    }
    for name, size in (("f", 1e9), ("p", 0.03)):
        ends = np.sort(size * 10 ** rng.uniform(-0.5, 0.5, (2, devices)), axis=0)
        fields[f"{name}_min"], fields[f"{name}_max"] = ends
    options = {
        "local_epochs": some(1.0, 1.0),
        "initial_queue": some(10.0),
        "availability": rng.uniform(0.2, 1.0, devices),
        "upload_failure": rng.uniform(0, 0.5),
        "deadline_s": 10 ** rng.uniform(3, 5),
        "overhead_s": some(10.0),
    }
    try:
        return Scenario(**fields | {k: v for k, v in options.items() if rng.random() < 0.3})
    except ValueError:  # options that exclude each other
        return random_scenario(rng)

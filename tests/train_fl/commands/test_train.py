"""Training agents and comparing them as a user does, and refusals."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from policies import evaluate
from policies.learned import SB3Policy

QUICK = "--rounds 20 --train-rounds 300 --eval-every 100 --num-envs 4"


def test_train__leaves_an_agent_that_compare_takes(call, tmp_path):
    system = "--set num_devices=5 csi=participants"
    printed = call(f"train {QUICK} {system} --seed 1 --out {tmp_path}/agents")
    run = tmp_path / "agents" / "seed-1"
    assert str(run) in printed
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["credit"], settings["seed"]) == ("difference", 1)

    policies = f"--policies {run} opportunistic"
    options = f"--no-train --rounds 20 --seeds 3 {policies} --out {tmp_path}/out"
    assert "PPO privileged 1" in call(f"compare {system} {options}")
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    times = summary[summary["policy"] == "PPO privileged 1"]["total_time"]
    policy = SB3Policy.load(run)
    mine = evaluate([policy], policy.scenario, range(3), gaps=False)["total_time"]
    assert times.mean() == pytest.approx(mine.mean(), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("--scenario nowhere", "scenario must be one of"),
        ("--train-rounds 0", "rounds must be an integer of at least 1, got 0"),
        ("--set objective=outcome", "the scenario's objective must be 'penalty', got 'outcome'"),
        ("--set momentum=0.5", "--set has no field 'momentum'"),
    ],
)
def test_train__a_wrong_option_ends_with_one_line(
    refused, monkeypatch, tmp_path, arguments, fragment
):
    monkeypatch.chdir(tmp_path)
    assert fragment in refused(f"train {arguments}")

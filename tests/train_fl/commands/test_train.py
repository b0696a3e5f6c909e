"""Training agents and comparing them as a user does: files, tables, and messages in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from policies import evaluate
from policies.learned import SB3Policy
from train_fl.command_line import main

SYSTEM = "--scenario digits --num-devices 5 --rounds 20"
QUICK = f"{SYSTEM} --train-rounds 300 --eval-every 100 --num-envs 4"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Two training seeds of an agent, and one of another."""
    folder = tmp_path_factory.mktemp("trained")
    for options in ("--out {}/devices", "--seed 1 --out {}/devices", "--credit team --out {}/team"):
        main(["train", *f"{QUICK} {options}".format(folder).split()])
    return folder


@pytest.fixture
def agents(trained, tmp_path) -> Path:
    """A copy of them."""
    return shutil.copytree(trained, tmp_path / "agents")


def test_agents__from_training_to_the_table(call, agents):
    run = agents / "devices" / "seed-1"
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["credit"], settings["seed"]) == ("difference", 1)
    again = call(f"train {QUICK} --seed 1 --out {agents}/devices")
    assert "seed-1" in again

    out = f"--no-train --seeds 3 --out {agents}/compare"
    told = call(f"compare {SYSTEM} --policies lroa {run} {agents}/team/seed-0 {out}")
    assert "PPO privileged 1" in told
    summary = pd.read_csv(agents / "compare" / "summary.csv")
    penalty = summary[summary["policy"] == "PPO team 0"]["mean_objective"].mean()
    policy = SB3Policy.load(agents / "team" / "seed-0")
    mine = evaluate([policy], policy.scenario, range(3), gaps=False)["mean_objective"].mean()
    assert penalty == pytest.approx(mine, rel=1e-9)


@pytest.mark.parametrize(
    ("system", "training", "told"),
    [
        (
            "--availability 0.5 --upload-failure 0.2",
            "",
            "policies that sample their cohort, where no device drops out",
        ),
        ("--csi participants", "", "PPO privileged"),
    ],
)
def test_agents__of_other_kinds_are_trained_and_compared(call, tmp_path, system, training, told):
    system = f"{SYSTEM} {system}"
    call(f"train {QUICK} {system} {training} --out {tmp_path}/agents")
    policies = f"{tmp_path}/agents/seed-0 opportunistic"
    options = f"--no-train --seeds 2 --policies {policies} --out {tmp_path}/out"
    assert told in " ".join(call(f"compare {system} {options}").split())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --scenario nowhere", "scenario must be one of"),
        ("train --train-rounds 0", "rounds must be an integer of at least 1, got 0"),
        ("train --objective outcome", "the scenario's objective must be 'penalty', got 'outcome'"),
        ("compare --no-train --policies lroa runs/nobody", "or the folder of a trained agent"),
        ("reproduce v-sweep --scenarios", "scenarios must be one or more, got none"),
        ("reproduce v-sweep --nu 1e5 1.0001e5", "'ν = 1e+05' comes twice among the policies"),
        ("reproduce v-sweep --mu 2", "v-sweep has no option mu, got (2.0,)"),
    ],
)
def test_commands__tell_what_is_wrong_in_one_line(refused, monkeypatch, tmp_path, command, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(command)

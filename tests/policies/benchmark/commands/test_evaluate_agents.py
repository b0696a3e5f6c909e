"""Training and evaluating agents as a user does: files, tables, and messages in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from policies import Opportunistic, evaluate, make_policy
from policies.benchmark.options import ScenarioOptions
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


def test_agents__from_training_to_the_table(call, agents, monkeypatch):
    run = agents / "devices" / "seed-1"
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["credit"], settings["seed"]) == ("difference", 1)
    again = call(f"train {QUICK} --seed 1 --out {agents}/devices")
    assert "seed-1" in again

    folders = f"{agents}/devices {agents}/team"
    monkeypatch.setenv("COLUMNS", "80")  # too narrow for the table, which stays whole
    told = call(f"evaluate-agents {folders} {SYSTEM} --seeds 3 --out {agents}/out")
    assert "…" not in told
    table = pd.read_csv(agents / "out" / "agents.csv").set_index("method")
    assert {"LROA", "Uni-D", "PPO privileged", "PPO team"} <= set(table.index)
    for method in table.index:
        assert f"{method} " in told
    # The same numbers when it is run again, from the finished jobs.
    before = (agents / "out" / "agents.csv").read_bytes()
    call(f"evaluate-agents {folders} {SYSTEM} --seeds 3 --out {agents}/out")
    assert (agents / "out" / "agents.csv").read_bytes() == before

    out = f"--no-train --seeds 3 --out {agents}/compare"
    told = call(f"compare {SYSTEM} --policies lroa {run} {agents}/team/seed-0 {out}")
    assert "PPO privileged 1" in told
    summary = pd.read_csv(agents / "compare" / "summary.csv")
    penalty = summary[summary["policy"] == "PPO team 0"]["mean_objective"].mean()
    assert penalty == pytest.approx(table.loc["PPO team", "penalty"], rel=1e-9)


def test_evaluate_agents__of_the_outcome_by_the_distances_to_the_bound(call, tmp_path):
    options = {"scenario": "cell", "num_devices": 6, "cohort_size": 2, "rounds": 30}
    options |= {"csi": "participants", "objective": "outcome", "energy_budget_j": 300.0}
    system = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    quick = "--train-rounds 400 --imitation-rounds 200 --num-envs 4"
    for seed in (0, 1):
        call(f"train {system} {quick} --seed {seed} --out {tmp_path}/agents")
    call(f"evaluate-agents {system} {tmp_path}/agents --seeds 2 --out {tmp_path}/out")
    table = pd.read_csv(tmp_path / "out" / "agents.csv").set_index("method")

    scenario = ScenarioOptions(**options).make_scenario()
    full = scenario.replace(csi="full")
    agents = [SB3Policy.load(tmp_path / "agents" / f"seed-{seed}") for seed in (0, 1)]
    fair = make_policy("proportional-fair:static", scenario)
    gaps = [
        evaluate([policy], policy.scenario, range(2))["outcome_gap"].to_numpy()
        for policy in (fair, Opportunistic(full), *agents)
    ]
    scores = (gaps[0] - gaps[2:]) / (gaps[0] - gaps[1])
    assert table.loc["PPO taught privileged", "score"] == pytest.approx(scores.mean(), rel=1e-6)
    assert table.loc["Opportunistic, gains known", "score"] == pytest.approx(1.0)
    assert table.loc["Proportional fair, static", "score"] == 0.0
    assert {"LROA", "Opportunistic"} < set(table.index)
    assert sum(name.startswith("Opportunistic, common prices") for name in table.index) == 1


def test_compare__resume_refuses_an_agent_that_has_changed(call, refused, agents):
    run = agents / "devices" / "seed-0"
    call(f"compare {SYSTEM} --policies lroa {run} --no-train --seeds 2 --out {agents}/compare")
    call(f"compare --resume {agents}/compare")
    shutil.copy(agents / "devices" / "seed-1" / "agent.pt", run / "agent.pt")
    said = refused(f"compare --resume {agents}/compare")
    assert "a trained agent or a file of one's own has changed" in said


def test_evaluate_agents__another_system_than_that_of_the_training(call, agents):
    system = "--scenario digits --num-devices 8 --rounds 10 --seeds 2 --latency round_time"
    with pytest.warns(UserWarning, match="leaves what it was trained with: device time up to"):
        told = call(f"evaluate-agents {agents}/devices {system} --out {agents}/out")
    told = " ".join(told.split())
    assert "digits, N = 8, latency of the slowest" in told
    differs = "num_devices 5, not 8; num_rounds 20, not 10; "
    assert f"PPO privileged was trained in another scenario: {differs}" in told


@pytest.mark.parametrize(
    ("system", "training", "told"),
    [
        (
            "--availability 0.5 --availability-persistence 0.5 --upload-failure 0.2",
            "",
            "policies that sample their cohort, where no device drops out",
        ),
        ("--csi participants", "--objective outcome --imitation-rounds 100", "PPO taught"),
        pytest.param(
            "--bandwidth-split shared",
            "--objective outcome --imitation-rounds 100",
            "PPO taught",
            marks=pytest.mark.slow,
        ),
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
        (f"evaluate-agents {SYSTEM} --availability 0.5", "needs availability = 1 for every"),
        (f"evaluate-agents {SYSTEM} --deadline-s 9", "needs rounds without a deadline, got"),
        ("train --scenario nowhere", "scenario must be one of"),
        ("train --train-rounds 0", "rounds must be an integer of at least 1, got 0"),
        ("evaluate-agents nowhere", "'nowhere' holds no trained agents"),
        ("evaluate-agents --seeds 0", "seeds must be from 1 to"),
        ("compare --no-train --policies lroa runs/nobody", "or the folder of a trained agent"),
        ("reproduce v-sweep --scenarios", "scenarios must be one or more, got none"),
        ("reproduce v-sweep --nu 1e5 1.0001e5", "'ν = 1e+05' comes twice among the policies"),
        (
            "reproduce k-sweep --accuracy 50 60",
            "accuracy must be one number for each of the 3 cohort_sizes",
        ),
    ],
)
def test_commands__tell_what_is_wrong_in_one_line(refused, monkeypatch, tmp_path, command, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(command)


def test_evaluate_agents__refuses_folders_that_it_cannot_average(refused, agents):
    command = f"evaluate-agents {SYSTEM} --out {agents}/out {agents}/devices"
    third = agents / "devices" / "seed-2"
    shutil.copytree(agents / "team" / "seed-0", third)
    assert "has other settings or another scenario than the first" in refused(command)
    shutil.rmtree(third)
    shutil.copytree(agents / "devices" / "seed-1", third)
    assert "holds a training seed twice: [0, 1, 1]" in refused(command)
    shutil.rmtree(third)
    shutil.copytree(agents / "devices", agents / "twice")
    assert "two folders hold the agent 'PPO privileged'" in refused(f"{command} {agents}/twice")
    policy = SB3Policy.load(agents / "devices" / "seed-1")
    policy.cost["finished"] = False
    policy.save(agents / "devices" / "seed-1" / "agent.pt")
    assert "seed-1' is not finished: give its command again" in refused(command)

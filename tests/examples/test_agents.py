"""Training and evaluating agents as a user does: files, tables, and messages in one line."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import tyro

EXAMPLES = Path(__file__).parents[2] / "examples"
SYSTEM = "--scenario digits --num-devices 5 --rounds 20"
QUICK = f"{SYSTEM} --train-rounds 300 --eval-every 100 --num-envs 4"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where tyro looks for the types
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def programs():
    names = ("train_sb3", "evaluate_agents", "compare")
    yield {name: load(name) for name in names}
    for name in names:
        del sys.modules[name]


@pytest.fixture
def call(programs, monkeypatch, capsys):
    """Run a program in this process; returns what it prints."""
    monkeypatch.setenv("COLUMNS", "130")

    def run(name: str, arguments: str) -> str:
        module = programs[name]
        module.main(tyro.cli(module.Options, args=arguments.split()))
        return capsys.readouterr().out

    return run


@pytest.fixture
def agents(call, tmp_path) -> Path:
    """Two training seeds of an agent for each device, and one of a plain network."""
    for seed in (0, 1):
        call("train_sb3", f"{QUICK} --seed {seed} --out {tmp_path}/devices")
    call("train_sb3", f"{QUICK} --view joint --network mlp --out {tmp_path}/plain")
    return tmp_path


def test_agents__from_training_to_the_table(call, agents, monkeypatch):
    run = agents / "devices" / "seed-1"
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["algorithm"], settings["view"], settings["seed"]) == ("ppo", "devices", 1)
    again = call("train_sb3", f"{QUICK} --seed 1 --out {agents}/devices")
    assert "seed-1" in again

    folders = f"{agents}/devices {agents}/plain"
    monkeypatch.setenv("COLUMNS", "80")  # too narrow for the table, which stays whole
    told = call("evaluate_agents", f"{folders} {SYSTEM} --seeds 3 --out {agents}/out")
    assert "…" not in told
    table = pd.read_csv(agents / "out" / "agents.csv").set_index("method")
    assert {"LROA", "Uni-D", "PPO privileged", "PPO plain"} <= set(table.index)
    for method in table.index:
        assert f"{method} " in told
    assert "lower bound: " in told
    # The same numbers when it is run again, from the finished jobs.
    before = (agents / "out" / "agents.csv").read_bytes()
    call("evaluate_agents", f"{folders} {SYSTEM} --seeds 3 --out {agents}/out")
    assert (agents / "out" / "agents.csv").read_bytes() == before

    out = f"--no-train --seeds 3 --out {agents}/compare"
    told = call("compare", f"{SYSTEM} --policies lroa {run} {agents}/plain/seed-0 {out}")
    assert "PPO privileged 1" in told
    summary = pd.read_csv(agents / "compare" / "summary.csv")
    penalty = summary[summary["policy"] == "PPO plain 0"]["mean_objective"].mean()
    assert penalty == pytest.approx(table.loc["PPO plain", "penalty"], rel=1e-9)


def test_evaluate_agents__refuses_a_training_that_is_not_finished(call, capsys, agents):
    from policies.learned import SB3Policy

    policy = SB3Policy.load(agents / "devices" / "seed-1")
    policy.cost["finished"] = False
    policy.save(agents / "devices" / "seed-1" / "agent.pt")
    with pytest.raises(SystemExit):
        call("evaluate_agents", f"{agents}/devices {SYSTEM} --out {agents}/out")
    assert "seed-1' is not finished: give its command again" in capsys.readouterr().out


def test_compare__resume_refuses_an_agent_that_has_changed(call, capsys, agents):
    run = agents / "devices" / "seed-0"
    call("compare", f"{SYSTEM} --policies lroa {run} --no-train --seeds 2 --out {agents}/compare")
    call("compare", f"--resume {agents}/compare")
    shutil.copy(agents / "devices" / "seed-1" / "agent.pt", run / "agent.pt")
    with pytest.raises(SystemExit):
        call("compare", f"--resume {agents}/compare")
    assert "a trained agent has changed" in capsys.readouterr().out


def test_evaluate_agents__another_number_of_devices(call, agents):
    system = "--scenario digits --num-devices 8 --rounds 20 --seeds 2"
    told = call("evaluate_agents", f"{agents}/devices {system} --out {agents}/out")
    assert "digits, N = 8" in told
    assert "PPO privileged was trained in another scenario." in told
    with pytest.raises(SystemExit) as error:
        call("evaluate_agents", f"{agents}/plain {system} --out {agents}/out")
    assert error.value.code == 2


def test_evaluate_agents__headroom_settings_are_options(call, tmp_path):
    options = "--latency round_time --delayed-csi --channel markov:0.8 --tiers --seeds 2"
    told = call("evaluate_agents", f"{SYSTEM} {options} --out {tmp_path}")
    title = "channel markov:0.8, delayed channel state, latency of the slowest, tiers, rounds "
    assert title in " ".join(told.split())


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        ("train_sb3", "--algorithm dqn", "which act in continuous spaces, got 'dqn'"),
        ("train_sb3", "--network MultiInputPolicy", "not dictionaries, got 'MultiInputPolicy'"),
        ("train_sb3", "--view flat", "view must be one of devices, joint, got 'flat'"),
        ("train_sb3", "--scenario nowhere", "scenario must be one of"),
        ("train_sb3", "--train-rounds 0", "rounds must be an integer of at least 1, got 0"),
        ("train_sb3", "--threads 0", "threads must be an integer from 1 to"),
        ("train_sb3", "--latency max", "latency must be one of proxy, round_time, got 'max'"),
        ("evaluate_agents", "nowhere", "'nowhere' holds no trained agents"),
        ("evaluate_agents", "--seeds 0", "seeds must be from 1 to"),
        ("compare", "--no-train --policies lroa runs/nobody", "or the folder of a trained agent"),
    ],
)
def test_programs__tell_what_is_wrong_in_one_line(
    call, capsys, monkeypatch, tmp_path, program, arguments, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        call(program, arguments)
    assert error.value.code == 2
    told = capsys.readouterr().out
    assert message in told
    assert told.splitlines()[-1].startswith("error: ")


def test_programs__refuse_a_folder_that_mixes_agents(call, capsys, agents):
    shutil.copytree(agents / "plain" / "seed-0", agents / "devices" / "seed-2")
    with pytest.raises(SystemExit):
        call("evaluate_agents", f"{agents}/devices {SYSTEM} --out {agents}/out")
    assert "has other settings or another scenario than the first" in capsys.readouterr().out
    shutil.rmtree(agents / "devices" / "seed-2")
    shutil.copytree(agents / "devices" / "seed-1", agents / "devices" / "seed-2")
    with pytest.raises(SystemExit):
        call("evaluate_agents", f"{agents}/devices {SYSTEM} --out {agents}/out")
    assert "holds a training seed twice: [0, 1, 1]" in capsys.readouterr().out
    shutil.rmtree(agents / "devices" / "seed-2")
    shutil.copytree(agents / "devices", agents / "twice")
    with pytest.raises(SystemExit):
        call("evaluate_agents", f"{agents}/devices {agents}/twice {SYSTEM} --out {agents}/out")
    assert "two folders hold the agent 'PPO privileged'" in capsys.readouterr().out

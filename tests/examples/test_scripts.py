"""The scripts in `examples`: each is its command, those of one's own are short, trainings learn."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("animate", "animate"),
        ("compare", "compare"),
        ("evaluate_agents", "evaluate-agents"),
        ("leaderboard", "leaderboard"),
        ("reproduce_paper", "reproduce"),
        ("train_sb3", "train"),
    ],
)
def test_script__is_its_command(monkeypatch, script, command):
    given: dict[str, str] = {}
    monkeypatch.setattr("train_fl.command_line.main", given.update)
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    assert given["command"] == command
    if script != "animate":
        assert f"python examples/{script}.py" in given["description"]


def test_script__help_shows_how_it_is_called(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["compare.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(EXAMPLES / "compare.py"), run_name="__main__")
    assert "compare.py [-h]" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "last"), [("custom_policy", "threshold"), ("custom_scenario", "Uni-S")]
)
def test_custom__examples_are_forty_lines_and_compare_with_the_paper(name, last, capsys):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 45
    runpy.run_path(str(path), run_name="__main__")
    assert last in capsys.readouterr().out.splitlines()[-1]


def rewards(told: str) -> dict[str, float]:
    """What a training of another library has printed, by the words before the number."""
    lines = [line.rsplit(maxsplit=1) for line in told.splitlines() if line[-1:].isdigit()]
    return {label.strip(): float(number) for label, number in lines}


@pytest.mark.slow
def test_ppo__in_one_file_learns(capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["train_ppo.py", "--updates", "10"])
    runpy.run_path(str(EXAMPLES / "train_ppo.py"), run_name="__main__")
    reward = rewards(capsys.readouterr().out)
    assert reward["after training"] > reward["before training"] + 0.1
    assert reward["Uni-D"] > reward["after training"]


def needs(module: str) -> None:
    """Skip where a library cannot be imported; in a process of its own, as some start others."""
    tried = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"{module} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "module", "updates"),
    [("train_torchrl", "torchrl", 30), ("train_rllib", "ray.rllib", 10)],
)
def test_script__of_another_library_learns(tmp_path, script, module, updates):
    needs(module)
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), "--updates", str(updates)]
    told = subprocess.run(command, check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    reward = rewards(told.stdout)
    assert reward["after training"] > reward["before training"] + 0.1


GYM_ENV = """
import torch
from torchrl.envs import GymEnv, check_env_specs

SYSTEM = {"scenario": "digits", "num_devices": 5, "num_rounds": 4}

if __name__ == "__main__":
    two = {"num_envs": 2}
    for name, options in (("FLEdge-v0", {}), ("FLEdgeFlat-v0", {}), ("FLEdgeFlat-v0", two)):
        env = GymEnv(f"fl_edge_env:{name}", **options, **SYSTEM)
        if not options:
            env = env.auto_register_info_dict()
        check_env_specs(env)
        rounds = env.rollout(4)["next"]
        assert rounds["truncated"][..., -1, :].all()
        # Of several environments TorchRL reads the info unasked, but not that of the last round.
        told = 3 if options else 4
        time, elapsed = rounds["round_time"], rounds["elapsed_time"]
        assert time.shape == ((2, 4) if options else (4,))
        total = time[..., :told].cumsum(-1)
        torch.testing.assert_close(elapsed[..., :told], total)
        assert (total > 0).all() and not time[..., told:].any()
        env.close()
"""


@pytest.mark.slow
def test_gym_env_of_torchrl__reads_the_info_of_one_and_of_two_environments(tmp_path):
    needs("torchrl")
    script = tmp_path / "gym_env.py"  # a file, which the workers import
    script.write_text(GYM_ENV)
    subprocess.run([sys.executable, str(script)], check=True)

"""The scripts in `examples`: each is its command, those of one's own are short, trainings learn."""

from __future__ import annotations

import re
import runpy
import sys

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, ExponentialChannel, Scenario, physics
from policies import LROA, Policy, evaluate, make_policy
from tests.scripts import example
from tests.support import EXAMPLES


@pytest.mark.parametrize("script", ["compare", "leaderboard"])
def test_script__is_its_command(monkeypatch, script):
    given: list[str] = []
    monkeypatch.setattr("train_fl.command_line.main", lambda: given.extend(sys.argv))
    monkeypatch.setattr("sys.argv", ["script.py", "--seed", "3"])
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    assert given[1:] == [script, "--seed", "3"]


@pytest.mark.parametrize(
    ("name", "last"), [("custom_policy", "threshold"), ("custom_scenario", "Uni-S")]
)
def test_custom__examples_are_short_and_compare_with_the_paper(name, last, capsys):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 45
    runpy.run_path(str(path), run_name="__main__")
    assert last in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_tune__compares_the_best_setting_with_the_default(capsys, monkeypatch, tmp_path):
    tune = example("tune")
    monkeypatch.setattr(tune, "TARGET", 0.2)
    policies = {"policy": ["opportunistic", "best-channel:static"]}  # ok in short episodes, too
    monkeypatch.setattr(tune, "CHOICES", tune.CHOICES | policies)
    monkeypatch.setattr(tune, "DEFAULT", tune.DEFAULT | {"policy": "opportunistic"})
    options = {"seeds": 1, "held_out": 2, "rounds": 80, "workers": 1}
    storage = f"sqlite:///{tmp_path}/tune.db"
    tune.main(trials=3, storage=storage, **options)
    *trials, default, best, end = capsys.readouterr().out.splitlines()
    tune.main(trials=0, storage=storage, **options)
    assert capsys.readouterr().out.splitlines() == [default, best, end]
    assert trials[0].startswith("trial   0:")
    assert trials[0].partition("{")[2] == default.partition("{")[2]
    assert trials[-1].partition("{")[2] == best.partition("{")[2]
    assert all(float(line.split()[1]) > 0 for line in (best, default))
    assert re.search(r"needs \d+\.\d % of the default's time .*: \S+ to \d", end)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of short episodes
@pytest.mark.parametrize("name", ["tradeoff", "lead"])
def test_studies__write_a_table(name, tmp_path):
    example(name).main(seeds=1, rounds=20, out=tmp_path, workers=1)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert len(table) == (18 if name == "tradeoff" else 63)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of short episodes
def test_measured_links__compares_channels(tmp_path, capsys):
    for name, rate in (("slow", 2), ("fast", 9)):
        rows = [f"{second},{rate + second % 3}" for second in range(50)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["time [s],rate [Mbit/s]", *rows]))
    example("measured_links").main(tmp_path, seeds=2, rounds=20, out=tmp_path / "out")
    assert "358 Mbit, measured" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "out/measured_links.csv")) == 6


# Instead of the authors' file: the fastest devices.
STAND_IN = """
from .utils.lp import *

class create_training_selector:
    def __init__(self, args):
        self.unexplored, self.times = set(), {}

    def register_client(self, device, report):
        self.unexplored.add(device)

    def update_client_util(self, device, report):
        self.unexplored.remove(device)

    def update_duration(self, device, time):
        self.times[device] = time

    def select_participant(self, count):
        return sorted(self.unexplored, key=self.times.get)[:count]
"""


@pytest.mark.filterwarnings("ignore:FLEdge cannot check")  # a file that runpy runs
def test_oort_authors__runs_a_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "oort.py").write_text(STAND_IN)
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "oort.py"), "3"])
    monkeypatch.setattr(Scenario, "digits", lambda: Scenario.preset("digits", num_rounds=4))
    runpy.run_path(str(EXAMPLES / "oort_authors.py"))
    *_, authors, ours, _ = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (authors[0], ours[0]) == ("Authors,", "Oort,")
    # Four cohorts of two: all of them new, or all in the first and one in each of the others.
    assert (authors[-2], ours[-2]) == ("32.0", "35.0")


class FirstIdle(Policy):
    """Starts the first device that is not at work."""

    def decide(self, observation):
        cohort = observation["available"].argmax(axis=-1)[..., None]
        return Allocation(self.scenario.f_max, self.scenario.p_max, cohort=cohort)


def test_asynchronous__devices_work_side_by_side():
    asynchronous = example("asynchronous")
    # Device 0 is always on one lane and device 1, slower, on the other; device 2 never works.
    steady = ExponentialChannel(gain_min=0.1, gain_max=0.1 + 1e-9)
    scenario = Scenario.digits(num_devices=3, num_rounds=300, channel=steady, energy_budget_j=1.0)
    scenario = scenario.replace(cycles_per_sample=2e7 * np.array([1, 2, 1]))
    time, cost = physics.time_and_energy(np.full(3, 0.1), scenario.f_max, scenario.p_max, scenario)
    policy = FirstIdle(asynchronous.one_lane(scenario))
    seconds, energy = asynchronous.without_waiting(policy, 2, [0, 1])
    pace = 1 / time[:2]
    np.testing.assert_allclose(seconds, 2 / pace.sum(), rtol=0.01)
    each = 2 * pace / pace.sum()  # participations of each in a round of two
    np.testing.assert_allclose(energy, [[*each * cost[:2], 0.0]] * 2, rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "rounds"), [("rule", 12_288), ("rows", 3_000)])
def test_training__learns(agent, rounds):
    module = example("train_sb3")
    scenario = Scenario.cifar10(num_devices=20, num_rounds=50)
    policies = [LROA(scenario)]
    for name, number in (("before", 0), ("after", rounds)):
        model = module.train(agent, scenario, 0, number)
        policies.append(make_policy("predict", scenario, model=model))
        policies[-1].name = name
    table = evaluate(policies, scenario, range(3), gaps=False, progress=False)
    reward = table.groupby("policy")["mean_reward"].mean()
    assert reward["LROA"] > reward["after"]
    # Half of the way from the middle of all ranges is behind it.
    assert reward["after"] > (reward["before"] + reward["LROA"]) / 2


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train_ppo", "train_gru"])
def test_training__comes_nearer_to_the_bound(script):
    module = example(script)
    fields = {"num_devices": 12, "cohort_size": 2, "energy_budget_j": 150.0, "num_rounds": 100}
    gym.register(
        "SmallCMDP-v0",
        entry_point="fl_edge_env.flat:make_flat",
        vector_entry_point="fl_edge_env.flat:make_flat_vector",
        kwargs={"objective": "outcome"} | fields,
    )
    scenario = gym.make("SmallCMDP-v0").unwrapped.scenario
    gaps = []
    for updates in (0, 40):
        agent = module.train(module.Settings(env="SmallCMDP-v0", updates=updates, num_envs=8))
        policy = make_policy("predict", scenario, model=agent)
        gaps.append(evaluate([policy], scenario, range(3), progress=False)["outcome_gap"].mean())
    del gym.registry["SmallCMDP-v0"]
    assert gaps[1] < 0.7 * gaps[0]

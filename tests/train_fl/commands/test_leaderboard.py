"""The leaderboard as a user runs it: ranks, schedulers that are left out, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fl_edge_env import MarkovChannel, Scenario
from policies import LROA, Opportunistic, UniD, evaluate, make_policy
from policies.report.ranking import ranked
from tests.policies import own_policies
from tests.support import ROOT, SMALL
from train_fl.commands.leaderboard_file import find_leaderboard, read_leaderboard
from train_fl.commands.submission import QUICK

SYSTEM = """
seeds = 3
first_seed = 5
rounds = 12
schedulers = [
    "uni-d",
    { name = "lroa", label = "LROA [red], printed", variant = "paper" },
    "opportunistic",
    "random",
    { name = "mine.py:Steady", share = 1.0 },
    "mine.py:Learner",
]

[[settings]]
name = "iid"
scenario = "cifar10"
num_devices = 6
energy_budget_j = [5000, 6000.5, 7000, 8000, 9000, 9500]

[[settings]]
name = "correlated | [late]"
scenario = "femnist"
channel = "markov:0.8"
csi = "delayed"
seeds = 2
num_devices = 4
schedulers = ["lroa", { name = "best-channel", resources = "static" }, "oort:static", "uni-d"]
"""


def test_leaderboard__ranks_the_schedulers_of_each_setting(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(own_policies.__file__, "mine.py")
    Path("file.toml").write_text(SYSTEM)
    output = call("leaderboard file.toml --workers 1 --out out")
    summary = pd.read_csv("out/summary.csv").fillna({"status_reason": ""})
    ranks = pd.read_csv("out/leaderboard.csv")
    page = Path("out/leaderboard.md").read_text()
    budget = [5000, 6000.5, 7000, 8000, 9000, 9500]
    first = Scenario.cifar10(num_devices=6, num_rounds=12, energy_budget_j=budget)
    late = Scenario.femnist(
        num_devices=4, num_rounds=12, channel=MarkovChannel.correlated(0.8), csi="delayed"
    )
    printed = LROA(first, variant="paper")
    printed.name = "LROA [red], printed"
    full = make_policy("mine.py:Steady", first, share=1.0)
    policies = [UniD(first), printed, Opportunistic(first), make_policy("random", first), full]
    best = make_policy("best-channel:static", late)
    for section, name, scenario, fielded, seeds, said in (
        (1, "iid", first, policies, [5, 6, 7], "Seeds 5 to 7, 12 rounds, 6 devices, 2 a round;"),
        (
            2,
            "correlated | [late]",
            late,
            [LROA(late), best, UniD(late)],
            [5, 6],
            "Seeds 5 to 6, 12",
        ),
    ):
        expected = evaluate(fielded, scenario, seeds)
        ours = summary[summary.setting == name].drop(columns="setting").reset_index(drop=True)
        pd.testing.assert_frame_equal(ours, expected, check_exact=False, rtol=1e-12)
        rows = ranks[(ranks.setting == name) & ranks["seeds"].notna()]
        assert rows.scheduler.tolist() == ranked(expected)
        text = page.split("\n## ")[section]
        assert text.startswith(f"{name}\n")
        assert text.count("\n|") == 2 + len(fielded) + 1  # and one that needs training
        assert said in text
        assert said in output
    assert "No results: Learner (needs training)" in output
    assert "LROA [red], printed" in output
    assert "correlated | [late]" in output
    assert ranks.set_index("scheduler").loc["Learner", "status"] == "needs training"
    iid, last = json.loads(Path("out/config.json").read_text())["settings"]
    assert iid["schedulers"][1]["options"] == {"variant": "paper"}
    assert (last["options"]["seeds"], last["options"]["first_seed"]) == (2, 5)


FAILING = """
rounds = 3
seeds = 1
schedulers = ["mine.py:Failing", "uni-s"]
[[settings]]
name = "a"
[[settings]]
name = "b"
num_devices = 5
schedulers = ["mine.py:Failing"]
"""


def test_leaderboard__a_failure_leaves_the_standings_of_others(call, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from policies import UniS\nclass Failing(UniS):\n    def decide(self, _): raise OSError"
    )
    Path("file.toml").write_text(FAILING)
    with pytest.raises(SystemExit, match="1"):
        call("leaderboard file.toml --workers 1 --out out")
    rows = pd.read_csv("out/leaderboard.csv")
    assert rows["scheduler"].tolist() == ["Uni-S", "Failing"]
    assert rows["status"][1] == "failed"
    assert capsys.readouterr().err.count("OSError in round 1 (") == 2


ONE = 'schedulers = ["uni-s"]\n[[settings]]\nname = "a"\nrounds = 3\n'


def test_leaderboard__a_stopped_command_leaves_no_old_results(call, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("file.toml").write_text(ONE)
    call("leaderboard file.toml --workers 1")
    monkeypatch.setattr("policies.benchmark.comparison.play_runs", stop)
    for text in (ONE, ONE.replace("uni-s", "lroa")):
        Path("file.toml").write_text(text)
        with pytest.raises(SystemExit, match="130"):
            call("leaderboard file.toml --workers 1")
        assert not Path("runs/leaderboard/file/summary.csv").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = ", "cannot read the leaderboard 'file.toml': Invalid value"),
        ("seeds = 3", "file.toml needs one or more tables [[settings]]"),
        ("seedz = 3\n" + ONE, "settings cannot have a key 'seedz': did you mean 'seeds'?"),
        (ONE + "workers = 2", "setting 'a' cannot have a key 'workers'"),
        (ONE + 'mu = "1"', "setting 'a': mu must be a number, got '1'"),
        (ONE + "num_rounds = 3", "setting 'a': num_rounds is given twice"),
        (ONE + "eval_every = 2", "setting 'a': eval_every needs training: give it train = true"),
        (ONE + '[[settings]]\nname = "a"', "distinct names, 'a' occurs twice"),
        (ONE + "[[settings]]\nrounds = 3", "around it, got None"),
        ('[[settings]]\nname = "a"', "setting 'a' needs a list schedulers"),
        (ONE + "schedulers = [3]", "a scheduler must be a name or a table with a name, got 3"),
        (ONE + 'schedulers = ["lroa", "lroa"]', "'LROA' occurs twice among the policies"),
        (
            ONE + 'schedulers = [{ name = "oort", resorces = "static" }]',
            "did you mean 'resources'?",
        ),
        (
            ONE + 'schedulers = ["uni-s", "uni-s@qsgd:1"]',
            "ranks schedulers with equal uploads, got 'uni-s@qsgd:1': give the setting compression",
        ),
        (ONE + 'schedulers = ["oort"]', "setting 'a': all its schedulers need training"),
    ],
)
def test_leaderboard__a_wrong_file_ends_with_one_line(
    refused, monkeypatch, tmp_path, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.toml").write_text(text)
    assert message in refused("leaderboard file.toml")
    assert not (tmp_path / "runs").exists()


TINY = """
schedulers = ["lroa", "opportunistic", "uni-s"]
rounds = 12
[[settings]]
name = "iid"
scenario = "cifar10"
num_devices = 6
energy_budget_j = 10000.0
[[settings]]
name = "digits"
scenario = "digits"
train = true
target_accuracy = 0.01
rounds = 1
num_devices = 6
local_epochs = 1
"""
# The last always chooses the same two devices.
MORE = """
from policies import Opportunistic

class Student(Steady):
    needs_training = True

class Twin(Opportunistic): pass

class Fitted(Opportunistic):
    def decide(self, observation):
        return Allocation(2e9, 0.1, cohort=[0, 1])
"""


@pytest.fixture
def suite(tmp_path, monkeypatch) -> None:
    """The stored runs of a suite called tiny, in a folder with user-defined policies.

    Without training, Opportunistic's times are its own, and LROA's are half of these.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("train_fl.commands.leaderboard_file.SUITES", tmp_path / "suites")
    Path("mine.py").write_text(Path(own_policies.__file__).read_text() + MORE)
    scenario = Scenario.cifar10(num_devices=6, num_rounds=12, energy_budget_j=10000.0)
    runs = evaluate([Opportunistic(scenario)], scenario, [7, 8, 20], gaps=False)
    runs = runs.assign(setting="iid", status_reason="not read")
    runs = pd.concat([runs, runs[:1].assign(setting="digits", seed=3, priced_time_to_target=1.0)])
    policies = (("LROA", 0.5, "ok"), ("Opportunistic", 1, "ok"), ("Uni-S", 0.1, "over budget"))
    stored = pd.concat(
        runs.assign(policy=name, priced_time=factor * runs["priced_time"], status=status)
        for name, factor, status in policies
    )
    Path("suites").mkdir()
    Path("suites/tiny.toml").write_text(TINY)
    stored.to_csv("suites/tiny.csv", index=False)


@pytest.mark.usefixtures("suite", "quick", "plain_pictures")
def test_suite__fresh_seeds_rank_newcomers_among_stored(call, monkeypatch):
    draws = iter([1000, 2000])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(draws))
    command = "leaderboard tiny mine.py:Twin mine.py:Fitted --workers 1 --out out --quick"
    printed = call(command)
    runs = pd.read_csv("out/summary.csv")
    time = runs[runs["setting"] == "iid"].pivot(index="seed", columns="policy")["priced_time"]
    assert time.index.tolist() == [*range(1021, 1031)]  # stored are those to 20
    assert set(time) == {"Opportunistic", "Twin", "Fitted"}
    later = 100 * (time["Fitted"] / time["Opportunistic"] - 1).mean()
    told = printed[printed.index("\nTwin, ranks on fresh") : printed.index("\n\nResults")]
    assert told in Path("out/leaderboard.md").read_text()
    twin, fitted = told.split("\nFitted, ranks on fresh seeds")
    # Twin is as fast as Opportunistic and slower than LROA.
    assert "\n- iid: 2–3, +0.0 %\n" in twin
    assert "\nmean rank 2 in 1 of 2 settings, with 4 for settings without a rank" in twin
    assert f"leaves out, {later:+.1f} % (" in fitted
    assert "\nmean rank 4 in " in fitted
    assert call(command) == printed  # with the seeds that were drawn


@pytest.fixture
def quick(monkeypatch) -> None:
    """Quick ranks play the setting iid."""
    monkeypatch.setattr("train_fl.commands.leaderboard.QUICK", ("iid",))


def test_quick__ranks_nearly_as_all_settings_do():
    table = pd.read_csv(ROOT / "docs/leaderboards/suite-1.csv")
    ranks = table.pivot(index="scheduler", columns="setting", values="rank")
    ranks = ranks.fillna(len(ranks))
    whole = ranks.mean(axis="columns")
    assert ranks[list(QUICK)].mean(axis="columns").corr(whole, method="spearman") > 0.9


@pytest.mark.usefixtures("suite", "plain_pictures")
def test_suite__runs_a_learner_where_models_are_trained(call):
    printed = call("leaderboard tiny mine.py:Student --workers 1 --fresh-seed 25")
    assert "\n- iid: needs training\n- digits: over budget, " in printed
    assert "\nmean rank 4 in 2 of 2 settings" in printed
    (folder,) = Path("runs/leaderboard").iterdir()
    assert folder.name == "tiny-policies-mine.py-Student-fresh-seed-25"
    runs = pd.read_csv(folder / "summary.csv")
    assert (set(runs["setting"]), set(runs["seed"])) == ({"digits"}, {*range(25, 35)})


@pytest.mark.usefixtures("suite", "plain_pictures")
def test_suite__its_schedulers_play_the_stored_seeds_with_bounds(call):
    Path("suites/tiny.toml").write_text(
        TINY + '[[settings]]\nname = "new"\nnum_devices = 4\nseeds = 2\nfirst_seed = 30\n'
    )
    assert "3 seeds from 7 to 20, 12 rounds" in call("leaderboard tiny --workers 1 --out out")
    runs = pd.read_csv("out/summary.csv")
    assert runs["outcome_gap"].notna().all()
    seeds = runs.groupby("setting")["seed"].unique().map(list).to_dict()
    assert seeds == {"iid": [7, 8, 20], "digits": [3], "new": [30, 31]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tini", "must be a TOML file or one of tiny, got 'tini': did you mean 'tiny'?"),
        ("tiny lroa", "'LROA' is a stored scheduler: rename your policy"),
        ("tiny mine.py:Steady@qsgd:1", "equal uploads, got 'mine.py:Steady@qsgd:1'"),
        ("suites/tiny.toml mine.py:Steady", "has no stored results to rank mine.py:Steady among"),
        ("tiny mine.py:Steady --fresh-seed -1", "--fresh-seed must be an integer of at least 0"),
        ("tiny --fresh-seed 1", "--fresh-seed needs suite-1 and new policies"),
        ("tiny --quick", "--quick needs suite-1 and new policies, as in: fl-edge leaderboard"),
        ("tiny mine.py:Student --quick", "no setting trains models, which Student need: iid"),
    ],
)
@pytest.mark.usefixtures("suite", "quick")
def test_suite__wrong_input_ends_with_one_line(refused, given, message):
    assert message in refused(f"leaderboard {given}")
    assert not Path("runs").exists()


def test_suite_1__has_stored_results_of_all_its_runs():
    path, stored = find_leaderboard(Path("suite-1"))
    for one in read_leaderboard(path):
        one.options.make_scenario()  # is possible
        runs = stored[stored["setting"] == one.name]
        times = runs.pivot(index="seed", columns="policy", values="priced_time")
        assert times.notna().all(axis=None)
        assert set(times) == {make_policy(each.name, SMALL).name for each in one.policies}
        assert runs["priced_time_to_target"].notna().any() == one.options.training.train
        assert runs["outcome_gap"].notna().all()


@pytest.mark.usefixtures("whole_searches")
def test_suite_1__stored_results_come_out_again():
    _, stored = find_leaderboard(Path("suite-1"))
    scenario = Scenario.cell(num_rounds=1000)
    ours = stored.query("setting == 'cell' and policy == 'LROA'").reset_index(drop=True)
    runs = evaluate([LROA(scenario)], scenario, ours["seed"], gaps=False)
    both = runs.align(ours, join="inner", axis="columns")
    pd.testing.assert_frame_equal(*both, rtol=1e-6, check_dtype=False)

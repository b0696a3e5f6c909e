"""The frozen suite as a user runs it: ranks, secret seeds, results that verify or are refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, UniS, evaluate, make_policy
from policies.benchmark import status
from policies.benchmark.command_line import errors_in_one_line
from policies.benchmark.commands.suite import Options, suite
from policies.benchmark.commands.suite_file import CURRENT, read_suite
from policies.benchmark.suite import judged, lead_on_known, overall, standings
from policies.benchmark.tables import ranked
from tests.policies import cheats, own_policies
from train_fl.command_line import make_training

ROOT = Path(__file__).parents[4]
TINY = """
schedulers = ["lroa", "uni-s", "round-robin:static"]
seeds = 3
first_seed = 10
rounds = 40
num_devices = 12
energy_budget_j = 1000.0

[suite]
held_out_seeds = 1
first_held_out_seed = 20
held_out_settings = ["cell"]
secret_seeds = 8
metrics = ["total_time", "time_to_target", "status", "status_reason", "influence"]

[[settings]]
name = "iid"
scenario = "cifar10"

[[settings]]
name = "cell"
scenario = "cell"

[[settings]]
name = "digits"
scenario = "digits"
energy_budget_j = 0.3
train = true
seeds = 2
rounds = 4
target_accuracy = 0.01
"""
SEEDS = [10, 11, 12, 20]


def run(folder: Path, policy: str | None = None, **options) -> tuple[int, str]:
    """The status with which the command ends in a folder, and what it prints."""
    told, code = io.StringIO(), 0
    with contextlib.chdir(folder), contextlib.redirect_stdout(told):
        console = Console(width=200)
        try:
            with errors_in_one_line(console):
                given = Options(policy=policy, workers=1, **{"trust": True} | options)
                suite(given, console, make_training, Path("tiny.toml"))
        except SystemExit as end:
            code = int(str(end.code))
    return code, told.getvalue()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a suite and the result of a policy there, and what the command has printed."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "tiny.toml").write_text(TINY)
    shutil.copy(own_policies.__file__, folder / "mine.py")
    assert run(folder, references=True, train=True, out=Path("references"))[0] == 0
    shutil.copy(folder / "references" / "references.csv", folder / "tiny.csv")
    code, told = run(folder, "mine.py:Steady", out=Path("out"))
    assert code == 0, told
    return folder, told


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of that folder."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def result_of(folder: Path) -> dict:
    return json.loads((folder / "out" / "result.json").read_text())


def test_suite__ranks_and_times_are_those_of_evaluate(finished):
    folder, told = finished
    result = result_of(folder)
    runs = pd.DataFrame(result["runs"])
    assert "digits" not in set(runs.setting)
    assert "ok in 2 of 2 settings" in told
    for name, preset in (("iid", "cifar10"), ("cell", "cell")):
        scenario = Scenario.preset(preset, num_devices=12, num_rounds=40, energy_budget_j=1000.0)
        steady = make_policy(f"{folder / 'mine.py'}:Steady", scenario)
        fielded = [LROA(scenario), UniS(scenario), make_policy("round-robin:static", scenario)]
        table = evaluate([*fielded, steady], scenario, SEEDS, gaps=False)
        ours = runs[(runs.setting == name) & (runs.policy == "Steady")]
        kinds = ["held out"] * 4 if name == "cell" else [*["public"] * 3, "held out"]
        assert ours.kind.tolist() == [*kinds, *["secret"] * 8]
        assert ours.seed.tolist() == [*SEEDS, *result["secret_seeds"]]
        times = table.pivot(index="seed", columns="policy", values="total_time")
        np.testing.assert_allclose(ours.total_time[:4], times["Steady"], rtol=1e-12)
        (row,) = (line for line in told.splitlines() if line.split()[:1] == [name])
        number = (table.groupby("policy")["status"].first() == "ok").sum()
        assert f"{ranked(table).index('Steady') + 1} of {number} " in row
        assert f" {(times['Steady'] / times['LROA']).mean():.3f}±" in row
        beside = evaluate([LROA(scenario), steady], scenario, result["secret_seeds"], gaps=False)
        times = beside.pivot(index="seed", columns="policy", values="total_time")
        assert f" {(times['Steady'] / times['LROA']).mean():.3f}±" in row


def test_suite__an_interrupted_run_ends_in_the_same_file(folder):
    shutil.rmtree(folder / "out")
    assert run(folder, "mine.py:Steady", out=Path("out"))[0] == 0
    whole = (folder / "out" / "result.json").read_bytes()
    (folder / "out" / "result.json").unlink()
    first, second, *_ = sorted((folder / "out" / "jobs").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:100])
    code, told = run(folder, resume=Path("out"))
    assert code == 0, told
    assert (folder / "out" / "result.json").read_bytes() == whole
    for ours in ({"resume": Path("out")}, {"verify": Path("out") / "result.json"}):
        code, told = run(folder, **ours, trust=False)
        assert (code, "run here: mine.py:Steady. If you know" in " ".join(told.split())) == (
            2,
            True,
        )
    assert run(folder, "mine.py:Steady", out=Path("elsewhere"))[0] == 0
    assert (folder / "elsewhere" / "result.json").read_bytes() != whole  # other secret seeds


def test_suite__trained_settings_are_run_where_asked_for(folder):
    code, told = run(folder, "mine.py:Steady", train=True, out=Path("out"), label="trained")
    assert code == 2
    assert "holds another suite, with another label, train" in told
    shutil.rmtree(folder / "out")
    code, told = run(folder, "mine.py:Steady", train=True, out=Path("out"), label="trained")
    assert code == 0
    assert "of 3 settings" in told
    runs = pd.DataFrame(result_of(folder)["runs"])
    digits = runs[(runs.setting == "digits") & (runs.policy == "trained")]
    assert digits.seed.tolist()[:3] == [10, 11, 20]
    assert digits.time_to_target.notna().all()
    code, told = run(folder, verify=Path("out") / "result.json")
    assert code == 0
    assert "Trained runs are not played again" in told


def test_verify__a_result_of_these_runs_is_verified(folder):
    code, told = run(folder, verify=Path("out") / "result.json")
    assert (code, told.splitlines()[-1]) == (0, "verified")
    (folder / "moved").mkdir()
    (folder / "mine.py").rename(folder / "moved" / "mine.py")
    code, told = run(folder, verify=Path("out") / "result.json")
    assert (code, "the file 'mine.py' does not exist" in told) == (2, True)
    code, told = run(folder, "moved/mine.py:Steady", verify=Path("out") / "result.json", replays=1)
    assert (code, told.splitlines()[-1]) == (0, "verified")


def edit_time(result):
    for row in result["runs"]:
        row["total_time"] *= 0.99


def edit_status(result):
    for row in result["runs"]:
        row["status"] = "over budget"


def drop_run(result):
    del result["runs"][-1]


def repeat_run(result):
    result["runs"].append(result["runs"][-1])


def know_secret_seed(result):
    result["secret_seeds"][0] = 10


def other_suite(result):
    result["suite"]["sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (edit_time, "total_time is"),
        (edit_status, "status is over budget, but ok here"),
        (drop_run, "does not have the runs"),
        (repeat_run, "does not have the runs"),
        (know_secret_seed, "does not have the runs"),
        (other_suite, "another suite than tiny"),
    ],
)
def test_verify__an_edited_result_is_refused(folder, edit, what):
    result = result_of(folder)
    sha256 = result.pop("sha256")
    edit(result)
    path = folder / "edited.json"
    path.write_text(json.dumps(result | {"sha256": sha256}))
    code, told = run(folder, verify=path)
    assert (code, "it has been changed since it was written" in told) == (1, True)
    # With its hash made anew, what it says is still not so.
    sha256 = hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(result | {"sha256": sha256}))
    code, told = run(folder, verify=path)
    assert (code, what in told) == (1, True), told


def no_policy(result):
    del result["policy"]


def no_label(result):
    del result["policy"]["label"]


def runs_of_nothing(result):
    result["runs"][0] = {}


def text_for_a_number(result):
    result["runs"][0]["total_time"] = "fast"


def status_of_its_own(result):
    result["runs"][0]["status"] = "great"


def two_statuses(result):
    result["runs"][0]["status"] = "leaves out"


@pytest.mark.parametrize(
    ("edit", "code", "what"),
    [
        (no_policy, 2, "'policy' must be a dict, got nothing"),
        (no_label, 2, "'label' must be a str, got nothing"),
        (runs_of_nothing, 2, "run 0: it must have setting, policy, kind, seed, total_time, "),
        (text_for_a_number, 2, "run 0: 'total_time' must be a float, got 'fast'"),
        (status_of_its_own, 2, "status must be one of ok, over budget, leaves out, got 'great'"),
        (two_statuses, 1, "runs of a policy in a setting differ in their status"),
    ],
)
def test_verify__says_what_is_wrong_in_a_result(folder, edit, code, what):
    result = result_of(folder)
    del result["sha256"]
    edit(result)
    sha256 = hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
    (folder / "edited.json").write_text(json.dumps(result | {"sha256": sha256}))
    told = run(folder, verify=Path("edited.json"))
    assert (told[0], what in told[1], "Traceback" in told[1]) == (code, True, False), told


def test_verify__another_policy_file_is_refused(folder):
    with (folder / "mine.py").open("a") as file:
        file.write("# changed\n")
    code, told = run(folder, verify=Path("out") / "result.json")
    assert code == 1
    assert "differs: mine.py:Steady is not what was run" in told


@pytest.mark.parametrize("text", ["", "[]", '{"suite": 1}', '{"secret_seeds": [1]}', "{" * 9999])
def test_verify__what_is_no_result_is_refused(folder, text):
    (folder / "wrong.json").write_text(text)
    code, told = run(folder, verify=Path("wrong.json"))
    assert (code, len(told.splitlines())) == (2, 1)
    assert "cannot read the result 'wrong.json'" in told


def test_suite__who_knows_the_seeds_is_not_ranked(folder):
    shutil.copy(cheats.__file__, folder / "cheats.py")
    code, told = run(folder, "cheats.py:KnowsSeeds", out=Path("knows"))
    assert code == 0
    assert re.search(
        r"^ iid +– .* \d\d\.\d % slower on seeds that it cannot know", told, re.MULTILINE
    )
    assert "not ranked, as it knows the suite's seeds" in told
    # Seeds that it knows too in place of the secret ones: whoever verifies draws others.
    config = json.loads((folder / "knows" / "config.json").read_text())
    config["settings"][0]["secret_seeds"] = [*range(1, 9)]
    (folder / "knows" / "config.json").write_text(json.dumps(config))
    assert "ok in 2 of 2 settings" in run(folder, "cheats.py:KnowsSeeds", out=Path("knows"))[1]
    code, told = run(folder, verify=Path("knows") / "result.json")
    assert code == 1
    assert "differs: iid, with seeds drawn now:" in told


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (None, {}, "name a policy"),
        ("uni-s", {}, "'Uni-S' stands in the suite: give your run another name by --label"),
        ("lroa", {}, "'LROA' comes twice"),
        ("nobody.py:Policy", {}, "the file 'nobody.py' does not exist"),
        ("mine.py:Nobody", {}, "'mine.py' has no 'Nobody'"),
        ("mine.py:Learner", {}, "mine.py:Learner needs training: give --train"),
        ("cheats.py:Writer", {}, "cheats.py:Writer in the setting 'iid': ValueError: "),
        ("mine.py:Steady", {"verify": Path("none.json")}, "No such file"),
        (None, {"verify": Path("out/result.json"), "replays": 0}, "replays must be"),
        ("mine.py:Steady", {"references": True}, "leave the policy out"),
    ],
)
def test_suite__wrong_input_is_refused_in_one_line(folder, policy, options, message):
    shutil.copy(cheats.__file__, folder / "cheats.py")
    code, told = run(folder, policy, **options)
    assert (code, len(told.splitlines())) == (2, 1)
    assert message in told
    assert not (folder / "runs").exists()


def runs_of(policy: str, kind: str, times: list[float], said: str = "ok") -> list[dict]:
    """Rows of a setting with seeds that are others for each kind."""
    first = {"public": 0, "secret": 100}[kind]
    return [
        {"setting": "a", "policy": policy, "kind": kind, "seed": first + index, "total_time": time}
        | {"status": said, "status_reason": "" if said == "ok" else "all together 9 % over"}
        for index, time in enumerate(times)
    ]


def test_judged__a_policy_must_be_ok_on_secret_seeds_too():
    lroa = [*runs_of("LROA", "public", [1.0, 1.0]), *runs_of("LROA", "secret", [1.0, 1.0])]
    references = pd.DataFrame(lroa[:2]).drop(columns="kind")
    mine = runs_of("mine", "public", [0.5, 0.5])
    for said in ("ok", "over budget"):
        runs = pd.DataFrame([*mine, *runs_of("mine", "secret", [0.5, 0.5], said), *lroa[2:]])
        table = standings(judged(runs, "mine", references), references).set_index("policy")
        assert table.loc["mine", "status"] == said
        assert table.loc["mine", "ratio"] == 0.5
        assert table["rank"].fillna(0).to_dict() == (
            {"mine": 1, "LROA": 2} if said == "ok" else {"LROA": 1, "mine": 0}
        )


def test_lead_on_known__false_alarms_are_rare_and_leads_are_found():
    rng = np.random.default_rng(0)
    alarms = [0, 0]
    for _ in range(500):
        known, others = rng.normal(1.0, 0.05, 15), rng.normal(1.0, 0.1, 10)
        for index, factor in enumerate((1.0, 1.3)):
            said = lead_on_known(pd.Series(known), pd.Series(factor * others), 1)
            alarms[index] += said != ""
    assert alarms[0] <= 10  # 5 are allowed on average
    assert alarms[1] > 490
    # One run may be as slow as it likes.
    others[0] = 100.0
    assert lead_on_known(pd.Series(known), pd.Series(1.3 * others), 1) != ""


def test_overall__more_settings_come_before_less_time():
    rows = [("a", "fast", 0.1, "ok"), ("a", "both", 0.5, "ok"), ("a", "none", 0.1, "over budget")]
    rows += [
        ("b", "fast", 0.1, "leaves out"),
        ("b", "both", 2.0, "ok"),
        ("b", "none", np.nan, "ok"),
    ]
    table = overall(pd.DataFrame(rows, columns=["setting", "policy", "ratio", "status"]))
    assert table.index.tolist() == ["both", "fast", "none"]
    assert table["ok"].tolist() == [2, 1, 0]
    assert table["mean"].tolist()[:2] == pytest.approx([1.0, 0.1])  # the root of 0.5 times 2


def test_suite_1__names_the_limits_of_the_status():
    limits = tomllib.loads(CURRENT.read_text())["suite"]["limits"]
    assert limits == {name: getattr(status, name.upper()) for name in limits}
    assert len(limits) == 5


def test_suite_1__stored_results_are_those_of_its_file():
    told = read_suite()
    assert told.name == "suite-1"
    assert set(told.held_out_settings) < {setting.name for setting in told.settings}
    expected = set()
    for setting in told.settings:
        seeds = [*setting.options.seed_range(), *told.held_out_seeds]
        assert len(set(seeds)) == len(seeds)
        expected |= {(setting.name, seed) for seed in seeds}
    stored = told.references
    assert stored.columns.tolist() == ["setting", "policy", "seed", *told.metrics]
    assert not stored.duplicated(["setting", "policy", "seed"]).any()
    for _, runs in stored.groupby("policy"):
        assert set(zip(runs["setting"], runs["seed"], strict=True)) == expected
    assert stored["policy"].nunique() == len(told.settings[0].schedulers)
    assert {"LROA", "Opportunistic"} <= set(stored["policy"])


def test_suite_1__a_stored_result_comes_out_again():
    told = read_suite()
    setting = next(one for one in told.settings if one.name == "cell")
    scenario = setting.options.make_scenario()
    runs = evaluate(
        [LROA(scenario)], scenario, [*range(100, 110), *told.held_out_seeds], gaps=False
    )
    stored = told.references[told.references["setting"] == "cell"]
    stored = stored[stored["policy"] == "LROA"].reset_index(drop=True)
    columns = [name for name in told.metrics if name in runs]
    pd.testing.assert_frame_equal(runs[columns], stored[columns], rtol=1e-6)


def test_suite_1__is_in_the_wheel():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = told["tool"]["setuptools"]["package-data"]["policies"]
    packed = {path for pattern in patterns for path in (ROOT / "policies").glob(pattern)}
    assert {CURRENT, CURRENT.with_suffix(".csv")} <= packed

"""The comparison as a user runs it: files, table, repeatability and refusals."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.results_folder import default_folder
from policies.user_code import _LOADED
from train_fl.command_line import main
from train_fl.commands.options import CompareOptions
from train_fl.data.dataset import DataSource
from train_fl.data.images import digits
from train_fl.factory import _cached_task
from train_fl.models import DigitsCNN, SmallCNN

pytestmark = pytest.mark.usefixtures("plain_pictures")
TRAINED = (
    "--policies lroa uni-d uni-s divfl --rounds 6 --seeds 2 --eval-every 3 --target-accuracy 0.01"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as told:
        patch.setenv("COLUMNS", "120")
        main(["compare", *TRAINED.split(), "--workers", "2", "--out", str(folder)])
    return folder, told.getvalue()


def test_compare__a_policy_with_other_uploads_runs_as_in_a_system_that_has_them(tmp_path, capsys):
    options = "--no-train --seeds 2 --rounds 5 --workers 1 --policies"
    command = ["compare", *options.split()]
    main([*command, "uni-s", "uni-s@qsgd:4", "--out", str(tmp_path / "both")])
    other = ["uni-s", "--compression", "qsgd:4", "--out", str(tmp_path / "other")]
    main([*command, *other])
    both, other = (pd.read_csv(tmp_path / name / "summary.csv") for name in ("both", "other"))
    same = both[both.policy == "Uni-S, qsgd:4"].reset_index(drop=True)
    np.testing.assert_array_equal(same.total_time, other.total_time)
    assert both.outcome_gap.isna().tolist() == [False, False, True, True]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*command, "uni-s@qsgd:99", "--out", str(tmp_path / "wrong")])
    assert "an integer from 1 to 16, the bits of a parameter, got 'qsgd:99'" in _told(capsys)
    with pytest.raises(SystemExit):
        main([*command, "uni-s", "--compression", "own.py:Mine", "--out", str(tmp_path / "wrong")])
    assert "'own.py:Mine' needs training, which tells how much it writes" in _told(capsys)


def _told(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_compare__leaves_a_row_for_each_question_all_numbers_and_plots(trained):
    folder, output = trained
    for label in ("outcome", "1 %, s", "time, s", "status", "device, %", "above", "bound, %"):
        assert label in output
    for name in ("LROA", "Uni-D", "Uni-S", "DivFL"):
        assert re.search(rf"^ {name} .* (ok|over|leaves) ", output, re.MULTILINE)
    assert "DivFL chose its cohorts by gradients" in output
    assert "Uni-D and Uni-S draw the same devices and train the same models" in output
    plots = "accuracy_over_rounds accuracy_over_time energy loss objective outcome overview"
    expected = {f"{name}.png" for name in [*plots.split(), "partition"]}
    expected |= {f"{name}.csv" for name in ("bounds", "rounds", "summary", "timing")}
    expected |= {".lock", "config.json", "jobs"}
    assert {path.name for path in folder.iterdir()} == expected
    rounds = pd.read_csv(folder / "rounds.csv")
    assert len(rounds) == len(pd.read_csv(folder / "timing.csv")) == 4 * 2 * 6
    assert rounds.groupby("policy").test_accuracy.count().tolist() == [4] * 4
    summary = pd.read_csv(folder / "summary.csv")
    last = rounds[rounds["round"] == 6].reset_index(drop=True)
    np.testing.assert_allclose(summary.total_time, last.elapsed_time)
    np.testing.assert_allclose(summary.final_accuracy, last.test_accuracy)
    # The policies met the same channel and began with the same model.
    uniform = rounds[rounds.policy.isin(["Uni-D", "Uni-S"])]
    assert uniform.groupby(["seed", "round"]).train_loss.nunique().eq(1).all()
    config = json.loads((folder / "config.json").read_text())
    (setting,) = config["settings"]
    assert config["options"]["rounds"] == setting["scenario"]["num_rounds"] == 6
    assert {"lambda", "V"} <= set(setting)
    assert config["versions"]["numpy"] == np.__version__
    assert {"command", "commit", "python"} <= set(config)


def test_compare__saves_the_last_models_also_of_runs_that_left_none(call, tmp_path):
    arguments = f"compare --policies lroa uni-s --rounds 2 --seeds 1 --workers 1 --out {tmp_path}"
    call(arguments)
    assert not (tmp_path / "models").exists()
    call(f"{arguments} --save-models")
    summary = pd.read_csv(tmp_path / "summary.csv").set_index("policy")
    test = digits(DataSource())
    for policy in ("LROA", "Uni-S"):
        model = DigitsCNN()
        model.load_state_dict(torch.load(tmp_path / "models" / f"{policy}-seed-0.pt"))
        right = (model(test.test_inputs).argmax(dim=1) == test.test_targets).double().mean()
        assert float(right) == pytest.approx(summary.final_accuracy[policy])
    # Of a run that is finished the model is not made anew.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    (tmp_path / "models" / "LROA-seed-0.pt").unlink()
    call(f"{arguments} --save-models")
    assert (tmp_path / "models" / "LROA-seed-0.pt").exists()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == before


TABLE = """
import numpy as np
from torch import nn
from train_fl import Dataset

def table():
    rows = np.random.default_rng(0).normal(size=(120, 3))
    classes = (rows @ [1.0, 2.0, 3.0] > 0).astype(int)
    return Dataset.from_arrays("table", rows[:100], classes[:100], rows[100:], classes[100:])

def net():
    return nn.Linear(3, 2)
"""


def test_compare__a_table_of_ones_own_trains_and_goes_on_to_the_same_bytes(call, tmp_path):
    own, folder = tmp_path / "own.py", tmp_path / "out"
    own.write_text(TABLE)
    command = (
        f"compare --dataset {own}:table --model {own}:net --learning-rate 0.1 --num-devices 6 "
        "--policies uni-s divfl --rounds 6 --seeds 1 --workers 1 --target-accuracy 0.5 "
        f"--eval-every 1 --save-models --out {folder}"
    )
    call(command)
    rounds = pd.read_csv(folder / "rounds.csv")
    for row in pd.read_csv(folder / "summary.csv").itertuples():
        run = rounds[rounds.policy == row.policy]
        assert row.final_accuracy == run.test_accuracy.iloc[-1]
        reached = run.elapsed_time[run.test_accuracy >= 0.5]
        np.testing.assert_equal(row.time_to_target, reached.min())
        model = torch.nn.Linear(3, 2)
        model.load_state_dict(torch.load(folder / "models" / f"{row.policy}-seed-0.pt"))
        data = np.random.default_rng(0).normal(size=(120, 3))[100:]
        with torch.no_grad():
            outputs = model(torch.from_numpy(data).float()).numpy()
        assert row.final_accuracy == np.mean(outputs.argmax(axis=1) == (data @ [1, 2, 3] > 0))
    plots = {path.stem for path in folder.glob("*.png")}
    assert {"accuracy_over_time", "accuracy_over_rounds", "loss", "partition"} <= plots
    before = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    jobs = sorted((folder / "jobs").glob("*.npz"))
    jobs[0].unlink()  # one run is lost
    call(command)
    assert len(list((folder / "jobs").glob("*.npz"))) == len(jobs)
    for name in ("summary.csv", "bounds.csv"):
        assert (folder / name).read_bytes() == before[name]
    again = pd.read_csv(folder / "rounds.csv").drop(columns="real_time", errors="ignore")
    assert again.equals(rounds.drop(columns="real_time", errors="ignore"))


OWN = {
    "helper.py": "SHARE = 0.0\n",
    "mine.py": (
        "import helper\nfrom fl_edge_env import Allocation\nfrom policies import UniD\n\n"
        "class Mine(UniD):\n    def decide(self, observation):\n"
        "        d, s = super().decide(observation), self.scenario\n"
        "        return Allocation(s.f_min + helper.SHARE * (s.f_max - s.f_min), d.p, d.q)\n"
    ),
    "data.py": (
        "import numpy as np\nfrom torch import nn\nfrom train_fl import Dataset\n\n"
        "def data():\n    with np.load('xy.npz') as file:\n        x, y = file['x'], file['y']\n"
        "    return Dataset.from_arrays('data', x[:100], y[:100], x[100:], y[100:])\n\n"
        "def unseeded():\n    x = np.random.normal(size=(120, 3))\n"
        "    y = (x[:, 0] > 0).astype(int)\n"
        "    return Dataset.from_arrays('data', x[:100], y[:100], x[100:], y[100:])\n\n"
        "def net():\n    return nn.Linear(3, 2)\n"
    ),
}


def test_compare__results_follow_all_files_and_data_that_decide(
    call, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in OWN.items():
        Path(name).write_text(text)
    x = np.random.default_rng(0).normal(size=(120, 3))
    y = (x @ [1.0, 2.0, 3.0] > 0).astype(int)
    command = (
        "compare --policies mine.py:Mine --dataset data.py:data --model data.py:net --rounds 4 "
        "--learning-rate 0.1 --num-devices 5 --seeds 1 --workers 1 --eval-every 1 --out out"
    )

    def run(labels: np.ndarray) -> tuple[list[str], float, list[float]]:
        """As a new process would: jobs of the folder, time and accuracies."""
        np.savez("xy.npz", x=x, y=labels)
        _LOADED.clear()
        sys.modules.pop("helper", None)
        _cached_task.cache_clear()
        call(command)
        rounds = pd.read_csv("out/rounds.csv")
        names = sorted(path.name for path in Path("out/jobs").iterdir())
        return names, rounds["elapsed_time"].iloc[-1], rounds["test_accuracy"].tolist()

    first = run(y)
    assert run(y) == first
    Path("helper.py").write_text("SHARE = 1.0  # faster\n")
    faster = run(y)
    assert faster[1] < first[1]
    other = run(1 - y)
    assert other[1] == faster[1]
    assert other[2] != faster[2]
    assert len(other[0]) == 5  # three runs, and a bound for each version of the code
    told = refused(command.replace("data.py:data", "data.py:unseeded") + " --overwrite")
    assert "data.py:unseeded() returns different data on each call: seed it" in told


SHORT = "--policies lroa divfl --seeds 1 --rounds 12 --checkpoint-every 4"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The results of a short command that nothing stops."""
    folder = tmp_path_factory.mktemp("whole")
    main(["compare", *f"{SHORT} --workers 1 --out {folder}".split()])
    return folder


def assert_resumed(killed: Path, whole: Path) -> None:
    assert not (killed / "rounds.csv").exists()
    main(["compare", *f"{SHORT} --workers 2 --out {killed}".split()])  # more processes
    for name in ("rounds.csv", "summary.csv", "bounds.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("after", [1, 4])
def test_compare__an_interrupted_run_resumes_to_the_same_result(
    call, whole, capsys, monkeypatch, tmp_path, cache, after
):
    save, saved = Checkpoint.save, []

    def interrupted(self, run, given):
        if len(saved) == after:
            raise KeyboardInterrupt
        saved.append(run)
        save(self, run, given)

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    with pytest.raises(SystemExit) as raised:
        call(f"compare {SHORT} --workers 1 --out {tmp_path}")
    assert raised.value.code == 130
    assert "interrupted: rerun the command to resume" in capsys.readouterr().out
    assert list(cache.iterdir())
    monkeypatch.setattr(Checkpoint, "save", save)
    assert_resumed(tmp_path, whole)
    assert not list(cache.iterdir())


def test_compare__says_which_network_trains_and_which_is_uploaded(call, tmp_path):
    options = "--policies uni-s --upload small --rounds 2 --seeds 1 --workers 1"
    told = call(f"compare {options} --out {tmp_path}")
    assert "Trained on digits: uploads of the size of small." in told
    (setting,) = json.loads((tmp_path / "config.json").read_text())["settings"]
    assert setting["scenario"]["model_bits"] == 32 * sum(p.numel() for p in SmallCNN().parameters())


def test_compare__system_side_alone(call, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    output = call(
        "compare --scenario femnist --no-train --rounds 20 --seeds 3 --cohort-size 4 --mu 2 "
        f"--nu 1e4 --policies uni-d lroa --out {tmp_path}"
    )
    assert "…" not in output  # columns are left out, and no digit
    assert len(re.findall(r"[\d.]+±[\d.]+", output)) == 2
    assert max(map(len, output.splitlines()[:-1])) <= 40  # all but the folder
    assert re.search(r"^ Uni-D .* (ok|over|leaves) ", output, re.MULTILINE)
    assert "accuracy" not in output
    assert "the same models" not in output
    assert (tmp_path / "time.png").exists()
    (setting,) = json.loads((tmp_path / "config.json").read_text())["settings"]
    assert (setting["scenario"]["cohort_size"], setting["scenario"]["mu"]) == (4, 2.0)


@pytest.mark.parametrize(
    ("options", "channel"),
    [
        ("--channel markov:0.9 --tiers phones", "markov"),
        ("--channel {trace}", "trace"),
    ],
)
def test_compare__other_scenarios_by_options_and_files(call, tmp_path, options, channel):
    trace, file = tmp_path / "trace.csv", tmp_path / "mine.toml"
    index = pd.MultiIndex.from_product([range(4), range(6)], names=["round", "device"])
    gains = pd.Series(np.linspace(0.05, 0.3, 24), index=index, name="gain")
    gains.reset_index().to_csv(trace, index=False)
    file.write_text('preset = "femnist"\nnum_devices = 6\nnum_rounds = 5\n')
    command = (
        f"compare --scenario {file} --no-train --seeds 2 --policies lroa --out {tmp_path / 'out'} "
        + options.format(trace=trace)
    )
    call(command)
    (setting,) = json.loads((tmp_path / "out" / "config.json").read_text())["settings"]
    scenario = setting["scenario"]
    assert scenario["channel"]["type"] == channel
    assert (scenario["num_devices"], scenario["cycles_per_sample"]) == (6, 2e9)
    assert isinstance(scenario["f_max"], list) == ("--tiers" in options)
    expected = (tmp_path / "out" / "rounds.csv").read_bytes()
    (tmp_path / "out" / "rounds.csv").unlink()
    call(command)
    assert (tmp_path / "out" / "rounds.csv").read_bytes() == expected


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [
        ("torch", "", "train"),
        ("sklearn", "", "train"),
        ("ray", "--backend ray", "cluster"),
    ],
)
def test_compare__a_missing_package_is_named_with_its_extra(
    refused, monkeypatch, tmp_path, package, options, extra
):
    for name in [name for name in sys.modules if name.split(".")[0] == "train_fl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    said = refused(f"compare --rounds 2 --seeds 1 --out {tmp_path} {options}")
    assert f"needs the package {package}" in said
    assert f"[{extra}]" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--policies lroa lroa", "'LROA' comes twice among the policies"),
        ("--device gpu", "device must be one that torch has"),
        ("--scenario {scenario}", "names no data set: give one with --dataset, or --no-train"),
        ("--channel fading", "channel must be clip, resample, markov:P, cell, cell:P, "),
        ("--tiers old", "tiers must be one of hardware, phones, got 'old'"),
        ("--channel cell:1", "channel cell:P needs a probability P: persistence must lie in"),
        ("--seeds 0", "seeds must be an integer of at least 1, got 0"),
        ("--no-train --save-models", "--save-models is for runs that train models"),
        ("--out {file}/below", "cannot write to the folder"),
    ],
)
def test_compare__a_wrong_option_ends_with_one_line(refused, arguments, message, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('preset = "digits"\n')
    if "--out" not in arguments:
        arguments += f" --out {tmp_path / 'results'}"
    assert message in refused("compare " + arguments.format(file=file, scenario=scenario))
    assert not list(tmp_path.glob("results/*"))


def test_compare__names_its_folder_by_what_sets_it_apart(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = "compare --scenario digits --no-train --rounds 4 --seeds 1"
    for more in ("--policies uni-d", "--policies uni-s", "--policies uni-d --mu 0.5"):
        call(f"{options} {more} --workers 1")
    call(f"{options} --policies uni-d --workers 2")  # how to run makes no other folder
    folders = {path.name for path in (tmp_path / "runs").iterdir()}
    assert folders == {
        "digits-rounds-4-policies-uni-d-no-train-seeds-1",
        "digits-rounds-4-policies-uni-s-no-train-seeds-1",
        "digits-rounds-4-mu-0.5-policies-uni-d-no-train-seeds-1",
    }
    long = " ".join(f"random best-channel:{kind}" for kind in ("static", "dynamic") * 9)
    assert len(default_folder(CompareOptions(policies=tuple(long.split())), "digits").name) < 120

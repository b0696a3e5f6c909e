"""The comparison as a user runs it: files, table, repeatability and refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from policies.benchmark.results_folder import default_folder
from policies.outcome import prices
from train_fl.command_line import main
from train_fl.commands.options import FIELDS, CompareOptions, TrainOptions
from train_fl.factory import _cached_task

pytestmark = pytest.mark.usefixtures("plain_pictures")


def test_compare__prints_a_table_and_writes_numbers_and_plots(call, tmp_path):
    output = call(
        "compare --policies lroa uni-d uni-s divfl --rounds 6 --seeds 2 --eval-every 3 "
        f"--target-accuracy 0.01 --set upload=small local_epochs=1 --workers 1 --out {tmp_path}"
    )
    assert max(map(len, output.splitlines()[:-1])) <= 130  # all but the folder
    for name in ("LROA", "Uni-D", "Uni-S", "DivFL"):
        assert re.search(rf"^ {name} .* (ok|over|leaves|too) ", output, re.MULTILINE)
    assert "Columns: docs/columns.md" in output
    plots = "accuracy_over_rounds accuracy_over_time energy overview"
    expected = {f"{name}.png" for name in plots.split()}
    expected |= {f"{name}.csv" for name in ("bounds", "rounds", "summary", "timing")}
    assert expected | {"config.json", "records"} <= {path.name for path in tmp_path.iterdir()}
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    assert len(rounds) == len(pd.read_csv(tmp_path / "timing.csv")) == 4 * 2 * 6
    assert rounds.groupby("policy").test_accuracy.count().tolist() == [4] * 4
    summary = pd.read_csv(tmp_path / "summary.csv")
    last = rounds[rounds["round"] == 6].reset_index(drop=True)
    np.testing.assert_allclose(summary.total_time, last.elapsed_time)
    np.testing.assert_allclose(summary.final_accuracy, last.test_accuracy)
    # The policies met the same channel and began with the same model.
    uniform = rounds[rounds.policy.isin(["Uni-D", "Uni-S"])]
    assert uniform.groupby(["seed", "round"]).train_loss.nunique().eq(1).all()
    config = json.loads((tmp_path / "config.json").read_text())
    (setting,) = config["settings"]
    assert config["options"]["num_rounds"] == setting["scenario"]["num_rounds"] == 6
    assert setting["scenario"]["model_bits"] == 32 * 206_922
    assert {"lambda", "V"} <= set(setting)
    assert config["versions"]["numpy"] == np.__version__


def test_compare__searches_for_its_prices_once(call, tmp_path, monkeypatch):
    command = f"compare --no-train --rounds 5 --workers 1 --policies opportunistic --out {tmp_path}"
    call(command)
    summary = (tmp_path / "summary.csv").read_bytes()
    shutil.rmtree(tmp_path / "records")
    prices._KNOWN.clear()
    monkeypatch.setattr(prices, "_ascend", None)
    call(command)
    assert (tmp_path / "summary.csv").read_bytes() == summary


def test_compare__other_uploads_are_those_of_a_system_with_them(call, tmp_path):
    command = f"compare --no-train --seeds 2 --rounds 5 --workers 1 --out {tmp_path}"
    printed = call(f"{command}/both --policies uni-s uni-s@qsgd:4")
    assert "Uploads differ from Uni-S's, and times with them: Uni-S, qsgd:4." in printed
    call(f"{command}/other --policies uni-s --set compression=qsgd:4")
    both, other = (pd.read_csv(tmp_path / name / "summary.csv") for name in ("both", "other"))
    same = both[both.policy == "Uni-S, qsgd:4"].reset_index(drop=True)
    np.testing.assert_array_equal(same.total_time, other.total_time)
    assert both.outcome_gap.isna().tolist() == [False, False, True, True]


def test_compare__names_the_policies_that_it_leaves_out(call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    printed = call(
        "compare --no-train --rounds 2 --seeds 1 --workers 1 --policies uni-d divfl oort"
    )
    left_out = "No results: DivFL (needs training).\nNo results: Oort, dynamic (needs training).\n"
    assert left_out in printed


DATA = """
import numpy as np
from torch import nn
from train_fl import Dataset

def data():
    with np.load("xy.npz") as file:
        x, y = file["x"], file["y"]
    return Dataset.from_arrays("data", x[:100], y[:100], x[100:], y[100:])

def unseeded():
    x = np.random.normal(size=(120, 3))
    y = (x[:, 0] > 0).astype(int)
    return Dataset.from_arrays("data", x[:100], y[:100], x[100:], y[100:])

def net():
    return nn.Linear(3, 2)
"""


def test_compare__results_follow_the_data_of_the_users(call, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.py").write_text(DATA)
    x = np.random.default_rng(0).normal(size=(120, 3))
    y = (x @ [1.0, 2.0, 3.0] > 0).astype(int)
    command = (
        "compare --policies uni-d --dataset data.py:data --model data.py:net --rounds 4 "
        "--set learning_rate=0.1 num_devices=5 --seeds 1 --workers 1 --eval-every 1 --out out "
        "--target-accuracy 0.5 --save-models"
    )

    def run(labels: np.ndarray) -> list[float]:
        """As a new process would: the accuracies."""
        np.savez("xy.npz", x=x, y=labels)
        _cached_task.cache_clear()
        call(command)
        return pd.read_csv("out/rounds.csv")["test_accuracy"].tolist()

    first = run(y)
    assert run(y) == first
    (row,) = pd.read_csv("out/summary.csv").itertuples()
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(torch.load("out/models/Uni-D-seed-0.pt"))
    with torch.no_grad():
        outputs = model(torch.from_numpy(x[100:]).float()).numpy()
    assert row.final_accuracy == first[-1] == np.mean(outputs.argmax(axis=1) == y[100:])
    rounds = pd.read_csv("out/rounds.csv")
    reached = rounds["elapsed_time"][rounds["test_accuracy"] >= 0.5]
    np.testing.assert_equal(row.time_to_target, reached.min())
    assert run(1 - y) != first
    assert len(list(Path("out/records").glob("*.npz"))) == 3  # two runs and a bound
    error = refused(command.replace("data.py:data", "data.py:unseeded") + " --overwrite")
    assert "data.py:unseeded() returns different data on each call: seed it" in error


FRAIL = """
import os
from policies import UniS

class Frail(UniS):
    def reset(self, seed):
        super().reset(seed)
        self.rounds = 0
        os.chdir("/")

    def decide(self, observation):
        self.rounds += 1
        if self.rounds == 3:
            raise KeyError("gain")
        return super().decide(observation)

class Unmade(UniS):
    def __init__(self, scenario):
        raise KeyError("gain")
"""


def test_compare__a_failure_leaves_the_tables_of_others(
    call, refused, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("frail.py").write_text(FRAIL)
    given = "compare --seeds=2 --no-train --first_seed 4 --rounds 3 --set num_devices=5 --workers 1"
    with pytest.raises(SystemExit, match="1"):
        call(f"{given} --policies frail.py:Frail uni-d uni-s --out out")
    printed = capsys.readouterr()
    told = printed.err.partition("error: ")[2]
    line = r"Frail, seeds \[4, 5\]: KeyError: 'gain' in round 3 \(.*frail.py:14 in decide\)"
    assert re.fullmatch(line, told.splitlines()[1])
    assert "No results: Frail (failed)." in printed.out
    call(f"{given} --policies uni-d uni-s --out others")
    for name in ("summary", "rounds", "bounds"):
        assert Path(f"out/{name}.csv").read_bytes() == Path(f"others/{name}.csv").read_bytes()
    main(f"{given} --policies uni-d uni-s --out others".split())
    assert "6 of 6 results reused" in capsys.readouterr().err  # and two are the bounds
    line = r"frail.py:Unmade: KeyError: 'gain' \(.*frail.py:19 in __init__\)"
    assert re.fullmatch(line, refused(f"{given} --policies frail.py:Unmade"))


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("--scenario nowhere", "scenario must be one of cifar10, femnist"),
        ("--scenario {scenario}", "names no data set: give one with --dataset, or --no-train"),
        ("--scenario {scenario}x.toml", "No such file"),
        ("--set cohortsize=4", "--set has no field 'cohortsize': did you mean 'cohort_size'?"),
        ("--set mu", "--set needs mu=VALUE, got 'mu'"),
        ("--set cohort_size=1.5", "cohort_size must be an integer, got '1.5'"),
        ("--set mu=1 --set mu=2", "mu is given twice: as 1.0 and as 2.0"),
        ("--set mu=1,nu=2", "mu must be a number, got '1,nu=2': separate fields with spaces"),
        (
            "--scenario cifar10 --data-dir empty",
            "cannot read CIFAR10 in 'empty/cifar-10-batches-py' (",
        ),
        ("--set channel=makrov:0.8", "or a .csv file, got 'makrov:0.8': did you mean 'markov'?"),
        ("--set channel=cell:1", "channel cell:P needs a probability P: persistence must lie in"),
        ("--no-train --set compression=own.py:Mine", "compression must be none, qsgd:BITS, "),
        ("--set channel=A.CSV", "cannot read the trace 'A.CSV': No such file"),
        ("--scenario A.TOML --no-train", "cannot read the scenario 'A.TOML': No such file"),
        ("--policies A.ZIP", "cannot use the agent 'A.ZIP': No such file"),
        ("--policies lroa runs/nobody", "agent.zip of Stable-Baselines3, or"),
        ("--tiers old", "tiers must be one of phones, got 'old'"),
        ("--policies uni-s@qsgd:99", "an integer from 1 to 16, the bits of a parameter"),
        ("--policies", "policies must be one or more, got none"),
        ("--seeds 0", "seeds must be an integer of at least 1, got 0"),
        ("--device gpu", "device must be available to torch here"),
        ("--no-train --save-models", "--save-models needs training: remove --no-train"),
        ("--no-train --policies oort divfl", "all policies need training: remove --no"),
        ("--no-train --eval-every 5", "--eval-every needs training: remove --no-train"),
        ("--no-train --set mu=2 batch_size=3", "--set batch_size needs training: remove --no"),
        ("--out {scenario}/below", "cannot write to the folder"),
    ],
)
def test_compare__a_wrong_option_ends_with_one_line(refused, arguments, fragment, tmp_path):
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('preset = "digits"\n')
    if "--out" not in arguments:
        arguments += f" --out {tmp_path / 'results'}"
    assert fragment in refused("compare " + arguments.format(scenario=scenario))
    assert not list(tmp_path.glob("results/*"))


def test_set__alone_lists_its_fields_with_defaults(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["compare", "--set"])
    header, *lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert header.split() == ["field", "unit", "default"]
    assert [*rows] == [*FIELDS]
    shown = {"bandwidth_hz": "Hz 1000000.0", "lambda_": "s", "csi": "full", "momentum": "0.9"}
    assert {name: rows[name] for name in shown} == shown


def test_compare__names_its_folder_by_what_sets_it_apart(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "compare --no-train --rounds 4 --seeds 1 --policies uni-d --workers"
    for more in ("1", "1 --set mu=0.5", "2"):  # the number of processes makes no other folder
        call(f"{command} {more}")
    end = "policies-uni-d-seeds-1-no-train"
    names = {f"digits-num-rounds-4-{end}", f"digits-num-rounds-4-mu-0.5-{end}"}
    assert {path.name for path in Path("runs").iterdir()} == names
    other = CompareOptions(training=TrainOptions(data_dir=Path("other")))
    assert other.result_options() == {"data_dir": Path("other")}
    assert len(default_folder("digits", {"policies": ("random",) * 99}).name) < 120

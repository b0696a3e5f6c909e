"""The runs of a results folder as data: those of the files, whoever made them, and nothing else."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, UniD, evaluate
from policies.benchmark import load
from policies.benchmark.results_folder import _SUMMARISED
from train_fl.command_line import main
from train_fl.commands import compare, leaderboard

FILE = """
schedulers = [{ name = "lroa", label = "NA" }, "uni-d"]
scenario = "digits"
rounds = 3
seeds = 2
num_devices = 4
[[settings]]
name = "a"
[[settings]]
name = "None"
mu = 2.0
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """A comparison with training, and a leaderboard without."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "file.toml").write_text(FILE)
    compared = "--scenario digits --num-devices 4 --rounds 3 --seeds 2 --policies lroa uni-d"
    main(f"compare {compared} --eval-every 2 --workers 1 --out {folder}/trained".split())
    main(f"leaderboard {folder}/file.toml --workers 1 --out {folder}/board".split())
    return folder


def test_load__gives_what_evaluate_gives(folders):
    expected = []
    for name, mu in (("a", 1.0), ("None", 2.0)):
        scenario = Scenario.digits(num_devices=4, num_rounds=3, mu=mu)
        table = evaluate([LROA(scenario), UniD(scenario)], scenario, range(2))
        table.insert(0, "setting", name)
        expected.append(table)
    labelled = pd.concat(expected, ignore_index=True).replace({"policy": {"LROA": "NA"}})
    found = load(str(folders / "board"))
    pd.testing.assert_frame_equal(found, labelled, check_dtype=False, rtol=1e-12)


def test_load__rounds_are_those_of_the_runs_and_all_columns_are_documented(folders):
    runs, rounds = (load(folders / "trained", rounds=each) for each in (False, True))
    key = ["setting", "policy", "seed"]
    assert runs[key].values.tolist() == [
        ["digits", policy, seed] for policy in ("LROA", "Uni-D") for seed in (0, 1)
    ]
    by_run = rounds.groupby(key, sort=False)
    assert (by_run["round"].apply(list).map(lambda numbers: numbers == [1, 2, 3])).all()
    runs = runs.set_index(key)
    pd.testing.assert_series_equal(
        by_run["elapsed_time"].last(), runs["total_time"], check_names=False, rtol=1e-12
    )
    assert rounds["test_accuracy"].notna().tolist() == [False, True, True] * 4
    for column in {*key, *runs, *rounds}:
        assert f"`{column}`" in load.__doc__, column


def test_load__reads_each_kind_that_has_a_summary():
    kinds = [compare.COMPARISON, leaderboard.LEADERBOARD]
    assert {kind.name for kind in kinds if "summary.csv" in kind.results} == set(_SUMMARISED)


def test_load__says_what_is_wrong_with_a_folder(folders, tmp_path):
    copies = itertools.count()

    def refused(written: dict[str, str | None], name: str = "trained", **options: bool) -> str:
        folder = tmp_path / str(next(copies))
        shutil.copytree(folders / name, folder)
        for file, content in written.items():
            (folder / file).unlink() if content is None else (folder / file).write_text(content)
        with pytest.raises(ValueError, match=str(folder)) as raised:
            load(folder, **options)
        return str(raised.value)

    config = json.loads((folders / "trained" / "config.json").read_text())
    no_options, other = (
        json.dumps(config | change) for change in ({"options": None}, {"experiment": ["other"]})
    )
    for content in (None, "", "[]", "[" * 100_000, "\0", no_options):
        told = refused({"config.json": content})
        assert "is no folder of results: cannot use config.json (" in told
    assert "holds a ['other'], and load reads the runs of: " in refused({"config.json": other})
    unfinished = refused({"summary.csv": None})
    assert "is not finished, as there is no summary.csv: fl-edge compare --resume" in unfinished
    assert "holds a leaderboard, which keeps no rounds" in refused({}, "board", rounds=True)
    assert "No columns to parse" in refused({"summary.csv": ""})
    assert "it has no column policy, seed" in refused({"summary.csv": "a,b\n1,2\n"})
    assert "cannot read" in refused({"summary.csv": 'policy,seed\n"a,1\n'})
    for path, told in ((tmp_path / "none", "no such folder"), (Path(__file__), "that is a file")):
        with pytest.raises(ValueError, match=told):
            load(path)


def test_import__is_cheap():
    code = "import sys, policies.benchmark; print({'pandas', 'rich'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

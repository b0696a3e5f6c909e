"""Stored results, by commands on files: what is kept, what is played again, and what is not."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import LROA, UniD, UniS, evaluate
from policies.benchmark.bounds import Prices
from policies.benchmark.run import Run
from policies.outcome import DualPrices
from tests.support import BRIEF

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.preloaded"])
SHORT = (
    "compare --no-train --rounds 3 --seeds 2 --set num_devices=4 energy_budget_j=1 --out out "
    "--workers 1 --policies uni-s"
)
SCENARIO = Scenario.digits(num_devices=4, num_rounds=3, energy_budget_j=1.0)
MINE = """
import json
from dataclasses import replace
from pathlib import Path
import library
from helper import SHARE
from policies import UniS

class Mine(UniS):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.weight = json.loads(Path(__file__).with_name("weights.json").read_text())
        self.made_late = lambda value: SHARE * value

    def decide(self, observation):
        from late import LATE
        f = self.scenario.f_min * (1 + self.made_late(self.weight) * LATE)
        return replace(super().decide(observation), f=f)
"""
OTHER = """
from policies import UniD

class Other(UniD):
    pass
"""
FILES = {
    "mine.py": MINE,
    "helper.py": "SHARE = 0.1",
    "late.py": "LATE = 1",
    "weights.json": "1.0",
    "other.py": OTHER,
    "library/__init__.py": "",
    "library-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: library\nVersion: 1.0",
    "library-1.dist-info/top_level.txt": "library",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of the user's with two policies, and a library that one of them imports."""
    write(tmp_path, FILES)
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    for name in ("library", "library-1.dist-info"):
        (tmp_path / name).rename(libraries / name)
    monkeypatch.setattr(sys, "path", [*sys.path, str(libraries)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _command(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    from matplotlib.figure import Figure

    from train_fl.command_line import main

    os.chdir(folder)
    os.environ.update(environment)
    with (folder / "printed").open("w") as file:
        sys.stdout = sys.stderr = file
        Figure.savefig = lambda *_, **__: None
        main(words)


def run(folder: Path, command: str) -> str:
    """Run a command in a fresh process; returns what it printed."""
    process = PROCESSES.Process(
        target=_command, args=(shlex.split(command), folder, dict(os.environ))
    )
    process.start()
    process.join()
    printed = (folder / "printed").read_text()
    assert process.exitcode == 0, printed
    return printed


def records(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "out/records").iterdir()}


def results(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "out/summary.csv").set_index(["policy", "seed"])


EDITS = {
    "an edited file": ({"mine.py": MINE.replace("1 +", "1.1 +")}, "Mine"),
    "an edited helper": ({"helper.py": "SHARE = 0.2"}, "Mine"),
    "a helper that is imported late": ({"late.py": "LATE = 2"}, "Mine"),
    "new weights": ({"weights.json": "2.0"}, "Mine"),
    "an edited file of another": ({"other.py": OTHER.replace("UniD", "UniS")}, "Other"),
}


@pytest.mark.parametrize("channel", ["clip", "cell", "uplinks", "links:links", "gains.csv"])
def test_key__is_the_same_after_a_pickle(channel, folder):
    times = "\n".join(str(40 * packet) for packet in range(2000))
    write(folder, {"links/one.up": times, "gains.csv": "round,device,gain\n0,0,0.1\n1,0,0.2"})
    scenario = Scenario.cifar10(num_devices=1, cohort_size=1, num_rounds=1, channel=channel)
    prices = Prices(scenario, np.ones(1), DualPrices(np.ones(1), np.ones(1)))
    run = Run("LROA", LROA(scenario), scenario, prices=prices)
    sent = cloudpickle.loads(cloudpickle.dumps(run))
    assert sent.key(sent.policy, "") == run.key(run.policy, "")


def test_compare__repeats_exactly_the_runs_that_have_changed(folder):
    command = f"{SHORT} mine.py:Mine other.py:Other"
    assert "warning" not in run(folder, command)
    before = records(folder)
    known = results(folder)
    assert len(before) == 3 + 2  # the policies and the bounds of two seeds
    for edit, (files, changed) in EDITS.items():
        write(folder, files)
        run(folder, command)
        after = records(folder)
        assert len(after) == len(before) + 1, edit
        assert before.items() <= after.items()
        found = results(folder)
        differs = (found["total_time"] != known["total_time"]).groupby("policy").any()
        assert [*differs.index[differs]] == [changed], edit
        before = after
        known = found
    # A comment of one, and the library of the other.
    library = {"site-packages/library-1.dist-info/METADATA": "Name: library\nVersion: 1.1"}
    write(folder, library | {"other.py": OTHER + "# a comment"})
    run(folder, command)
    assert len(records(folder)) == len(before) + 2


def test_compare__plays_damaged_records_again(folder):
    run(folder, f"{SHORT} uni-d")
    before = records(folder)
    whole = results(folder)
    names = sorted(before)
    place = folder / "out/records"
    content = (place / names[0]).read_bytes()
    (place / names[0]).write_bytes(content[: len(content) // 2])
    (place / names[1]).write_bytes((place / names[2]).read_bytes())
    (place / names[3]).unlink()
    run(folder, f"{SHORT} uni-d")
    after = records(folder)
    assert after.keys() == before.keys()
    assert [name for name in names if after[name] == before[name]] == names[2:3]
    assert (place / names[0]).read_bytes() == content
    pd.testing.assert_frame_equal(results(folder), whole)


DATA = """
import numpy as np
from pathlib import Path
from torch import nn
from train_fl import Dataset

def points():
    inputs = np.load(Path(__file__).with_name("points.npy"))
    classes = np.arange(len(inputs)) % 2
    return Dataset.from_arrays("points", inputs, classes, inputs, classes)

def network():
    return nn.Linear(2, 2)
"""


def test_compare__trains_again_if_data_or_network_have_changed(folder):
    write(folder, {"data.py": DATA})
    inputs = np.random.default_rng(0).random((16, 2))
    command = (
        "compare --dataset data.py:points --model data.py:network --seeds 1 "
        "--rounds 2 --set num_devices=4 learning_rate=0.1 --out out --workers 1 --policies uni-s"
    )
    numbers = []
    for points, code in ((inputs, DATA), (inputs, DATA), (-inputs, DATA), (-inputs, DATA + "#")):
        np.save(folder / "points.npy", points)
        write(folder, {"data.py": code})
        run(folder, command)
        numbers.append(len(records(folder)))
    assert numbers == [2, 2, 3, 4]


# Each of these once turned a whole command away.
ORDINARY = """
import inspect, time
from collections import Counter
import numpy as np
from policies import UniD, UniS

CALLS = Counter()

def timed(function):
    def call(*arguments, **keywords):
        CALLS[function.__name__] += 1
        return function(*arguments, **keywords)
    return call

UniS.decide = timed(UniS.decide)

class Mine(UniD):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.table = np.arange(6.0).reshape(2, 3)
        self.row = self.table[0]

class Vandal(UniS):
    def decide(self, observation):
        budget = self.scenario.energy_budget_j
        budget.setflags(write=True)
        budget[:] = 1e-3
        return super().decide(observation)
"""


def test_compare__keeps_ordinary_policies_apart_from_each_other(folder):
    (folder / "mine.py").write_text(ORDINARY)
    (folder / "second").mkdir()
    twin = ORDINARY.replace("class Mine(UniD):", 'class Mine(UniS):\n    name = "Second"\n')
    (folder / "second/mine.py").write_text(twin)
    command = f"{SHORT} mine.py:Vandal lroa mine.py:Mine second/mine.py:Mine"
    assert "does not store" not in run(folder, command)
    assert len(records(folder)) == 5 + 2
    mixed = results(folder)
    evaluated = evaluate([UniS(SCENARIO), LROA(SCENARIO), UniD(SCENARIO)], SCENARIO, [0, 1])
    alone = evaluated.set_index(["policy", "seed"])["total_time"]
    for name, same in (
        ("Uni-S", "Uni-S"),
        ("LROA", "LROA"),
        ("Mine", "Uni-D"),
        ("Second", "Uni-S"),
    ):
        assert [*mixed["total_time"][name]] == pytest.approx([*alone[same]], rel=1e-12)


NOT_KEPT = """
import threading
from dataclasses import replace
from pathlib import Path
import numpy as np
from policies import UniS

class Chance(UniS):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.weight = np.random.default_rng().random()

class Locked(UniS):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.lock = threading.Lock()

class Edited(UniS):
    def decide(self, observation):
        with Path(__file__).open("a") as file:
            file.write("#")
        return super().decide(observation)

class Unseeded(UniS):
    def decide(self, observation):
        return replace(super().decide(observation), f=1e9 * (1 + np.random.random()))
"""


@pytest.mark.parametrize(
    ("name", "line", "kept"),
    [
        ("Chance", "FLEdge does not store the results of Chance, seeds [0, 1]: its files", 0),
        ("Locked", "FLEdge does not store the results of Locked, seeds [0, 1] (a rerun", 0),
        ("Edited", "FLEdge does not store the results of Edited, seeds [0, 1]: its files", 0),
        ("Unseeded", "Unseeded may give different results for the same seed: it", 1),
    ],
)
def test_compare__says_what_is_not_kept_or_determined(folder, name, line, kept):
    (folder / "mine.py").write_text(NOT_KEPT)
    printed = run(folder, f"{SHORT} mine.py:{name}")
    (found,) = [each for each in printed.splitlines() if each.startswith("warning")]
    assert line in found
    assert name in results(folder).index.get_level_values("policy")
    assert len(records(folder)) == 3 + kept


class Counts(UniD):
    """Holds what no process could send, and sees who plays."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.rounds = 0
        self.read = (line for line in "")

    def decide(self, observation):
        self.rounds += 1
        return super().decide(observation)


def test_evaluate__plays_the_objects_and_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = Counts(BRIEF)
    evaluate([policy], BRIEF, [0], gaps=False)
    assert policy.rounds >= BRIEF.num_rounds
    assert not [*tmp_path.rglob("*.npz")]
    with pytest.raises(ValueError, match=r"Counts cannot be sent to .*: cannot pickle .*workers=1"):
        evaluate([policy, UniS(BRIEF)], BRIEF, [0], workers=2)

"""Results depend on seeds alone, or a warning says what else they depend on."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies import check_policy, evaluate, make_policy
from policies.benchmark.checkpoint import Checkpoint
from policies.benchmark.copies import copied, dumps, loads
from policies.benchmark.run import Run, run_key
from policies.benchmark.runner import play_runs
from policies.global_random import seeded
from policies.user_code import load_reference
from tests.support import BRIEF, assert_same_records, global_states, run_of

HEAD = """
import collections, enum, random, threading
import numba, numpy as np, torch
from fl_edge_env import Allocation, Scenario
from policies import UniS

class Config:
    level = 0.0

CONFIG = Config()
RNG = np.random.default_rng(0)

class Mode(enum.Enum):
    A = 0

COUNTS = []

def counted(policy, _):
    COUNTS.append(0)
    return 1 / len(COUNTS)

class Mine(UniS):
    compiled = staticmethod(numba.njit(lambda rng: rng.random()))

    def __init__(self, scenario):
        super().__init__(scenario)
        self.network = torch.nn.Linear(1, 1)
        self.config, self.old = CONFIG, 0.0
        self.numpys = np.random.mtrand._rand

    def decide(self, observation):
        share = self.share(observation["queue"])
        f = self.scenario.f_min + share * (self.scenario.f_max - self.scenario.f_min)
        return Allocation(f, self.scenario.p_max, q=1 / 4)

"""
GLOBAL = """
    def reset(self, seed):
        self.other = torch.nn.Linear(1, 1)
        self.rng = np.random.default_rng()

    def share(self, _):
        numpys = np.random.rand() + self.numpys.random() + self.rng.random()
        drawn = random.random() + torch.rand(()).item() + numpys
        return (drawn + abs(self.network.bias.item()) + abs(self.other.bias.item())) / 7
"""


NOTEBOOK = """
import numpy as np
from fl_edge_env import Allocation, Scenario
from policies import UniS, evaluate

class Learns(UniS):
    seen = []

    def decide(self, observation):
        self.seen.append(1)
        return super().decide(observation)

scenario = Scenario.digits(num_devices=4, num_rounds=3, lambda_=1.0, V=1.0)
evaluate([Learns(scenario)], scenario, [0, 1], gaps=False)
"""
LATE = """n = 0

    def share(self, queue):
        self.n += 1
        return 0.5 if self.n < 20 else queue.max() / (1 + queue.max())
"""


def runs_of(folder: Path, code: str, name: str = "Mine") -> list[Run]:
    """Runs of two seeds of a class in a new file that ends with this code."""
    file = folder / "mine.py"
    file.write_text(HEAD + code)
    policy = make_policy(f"{file}:{name}", BRIEF)
    return [run_of(policy, seed) for seed in (0, 1)]


def test_play_runs__global_generators_are_seeded(tmp_path):
    runs = runs_of(tmp_path, GLOBAL)
    before = global_states()
    first = play_runs(runs, folder=tmp_path / "runs")
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert before == global_states()
    for others in play_runs(runs[::-1])[::-1], play_runs(runs, workers=2):
        assert_same_records(first, others)
    assert not first[0].rounds.reward.equals(first[1].rounds.reward)
    again = make_policy(f"{tmp_path / 'mine.py'}:Mine", BRIEF)
    assert run_key(run_of(again)) == run_key(runs[0])


def draws(seed: int) -> list[float]:
    """Numbers of global generators and of an unseeded one, with a pause for other threads."""
    with seeded(seed):
        first = random.random()
        time.sleep(0.01)
        return [first, random.random(), np.random.rand(), np.random.default_rng().random()]  # noqa: NPY002


def test_seeded__threads_do_not_share_generators():
    before = global_states()
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(draws, range(8))]
    assert found == [draws(seed) for seed in range(8)]
    assert before == global_states()
    assert np.random.default_rng().random() != np.random.default_rng().random()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def share(self, _): return RNG.random()", "cannot check.* shares a Generator of random"),
        (
            "def share(self, _): return np.random.default_rng().random()",
            "its seed does not determi",
        ),
        ("def share(self, _): return np.random.rand()", "its seed does not determine"),
        (LATE, "for a batch .* than for each alone"),
        ("def reset(self, _): self.rng = random.Random()", "reset ends in another state"),
        (
            "def share(self, _):\n        self.config.level += 0.1\n        return CONFIG.level",
            "may be wrong.* keeps values for the next run",
        ),
        ("lock = threading.Lock()\n    share = counted", "or keeps values elsewhere"),
        ("def share(self, _):\n        Mode.A.n = 0.5\n        return 1.0", "for the next run"),
    ],
)
def test_evaluate__warns_of_what_seeds_do_not_determine(tmp_path, code, why):
    (run, _) = runs_of(tmp_path, f"    def share(self, _): return 0.5\n\n    {code}\n")
    with warnings.catch_warnings(record=True, action="always") as caught:
        evaluate([run.policy], BRIEF, [0, 1], gaps=False)
    assert any(re.search(why, str(one.message)) for one in caught)


def test_make_policy__warns_of_chance_in_its_class(tmp_path):
    code = "    def share(self, _): return 0.5\n\n    def __setattr__(self, name, value):\n"
    code += "        vars(self)[name] = random.Random() if name == 'old' else value\n"
    with pytest.warns(RuntimeWarning, match=r"mine\.py:Mine may give other results .* its old dif"):
        runs_of(tmp_path, code)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("from helper_of_mine import Inner", "it imports helper_of_mine while it runs"),
        ('Inner = type(make_policy(f"{HERE}/helper_of_mine.py:Inner", self.scenario))', "it loads"),
    ],
)
def test_play_runs__keeps_nothing_of_a_helper_loaded_later(tmp_path, line, why):
    (tmp_path / "helper_of_mine.py").write_text(
        "from policies import UniS\n\nclass Inner(UniS):\n    half = 0.5\n"
    )
    code = f"    def share(self, _):\n        {line}\n        return Inner.half\n"
    code += (
        "\nimport pathlib\nfrom policies import make_policy\nHERE = pathlib.Path(__file__).parent\n"
    )
    with pytest.warns(RuntimeWarning) as caught:
        play_runs(runs_of(tmp_path, code), folder=tmp_path / "runs")
    assert why in str(caught[0].message)
    assert not list((tmp_path / "runs").iterdir())


def test_evaluate__warns_in_a_notebook_whose_code_keeps_values():
    options: dict[str, Any] = {"input": NOTEBOOK, "text": True, "capture_output": True}
    done = subprocess.run([sys.executable, "-"], check=True, **options)
    assert "keeps values for the next run" in done.stderr


SHARED = """
    def reset(self, _):
        self.own = [CONFIG]

    def share(self, _):
        assert self.config is CONFIG is self.own[0] and self.unset is UNSET
        assert self.held[0] is LEVELS[1] and SPEED[self.held[0]] == 0.5
        assert self.fastest is FASTEST and self.rules == [RULES["fast"], half]
        assert isinstance(self.made, Made) and is_made(self)
        assert self.scenario is not SCENARIO
        return 0.5

LEVELS = Config(), Config()
SPEED = {LEVELS[1]: 0.5}
UNSET = object()
SCENARIO = Scenario.digits(num_devices=4, num_rounds=3, lambda_=1.0, V=1.0)


def is_made(policy):
    return isinstance(policy, Own)

def made(base):
    class Made(base):
        pass
    return Made

Made = made(object)
Level = collections.namedtuple("Level", "share")
FASTEST = Level(1.0)
RULES = {"fast": lambda gain: gain}
half = (lambda gain: gain / 2)

class Base(Mine):
    def __init__(self, _):
        super().__init__(SCENARIO)
        self.unset, self.held = UNSET, collections.deque([LEVELS[1]])
        self.fastest, self.rules, self.made = FASTEST, [RULES["fast"], half], Made()

Own = made(Base)
ACT = torch.nn.ReLU()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = ACT

    def acts_alike(self):
        return self.act is ACT
"""


def test_copies__share_with_their_code_what_the_policy_shares(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (run, _) = runs_of(tmp_path, SHARED, "Own")
    check_policy(run.policy)
    for workers in (1, 2):
        play_runs([run, replace(run, seeds=(1,))], folder=tmp_path / "runs", workers=workers)
        assert len(list((tmp_path / "runs").glob("*.npz"))) == 2
        shutil.rmtree(tmp_path / "runs")
    policy = copied(run.policy)
    policy.reset(0)
    checkpoint = Checkpoint("key", 1)
    checkpoint.save(policy, {}, policy)
    checkpoint.load({}).share(None)
    network = load_reference(f"{tmp_path / 'mine.py'}:Net", kind="class", fits=callable)()
    checkpoint.save(network, {}, None, network)
    for same in (loads(dumps(network, network)), checkpoint.load({})):
        assert same.acts_alike()


LAZY = """
    import collections
    first = None

    def reset(self, _):
        self.counts = [0]
        self.library = self.collections.deque([self.counts])

    def share(self, queue):
        self.counts[0] += 1
        if Mine.first is None and self.counts[0] == 3:
            Mine.first = queue[0].max()
        return 1 / (1 + (Mine.first or 1))
"""


def test_evaluate__is_not_changed_by_its_own_checks(tmp_path):
    (run, _) = runs_of(tmp_path, LAZY)
    with pytest.warns(RuntimeWarning, match="keeps values for the next run"):
        table = evaluate([run.policy], BRIEF, [5], gaps=False)
    type(run.policy).first = None
    played = replace(run, seeds=(5,)).play()
    assert table["total_time"].iloc[0] == played.rounds["round_time"].sum()

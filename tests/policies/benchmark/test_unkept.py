"""Which results are kept: those of runs with a key, each once."""

from __future__ import annotations

import contextvars
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest

from fl_edge_env import Scenario
from policies import UniD, UniS, make_policy
from policies.benchmark.run import Run, run_key
from policies.benchmark.runner import RunsFailedError, play_runs

SCENARIO = Scenario.digits(num_devices=4, num_rounds=3, lambda_=1.0, V=1.0)


def run_of(policy, seed=0):
    return Run(policy.name, policy, SCENARIO, (seed,))


class Quits(UniS):
    def reset(self, _):
        raise SystemExit(0)


class Locked(UniS):
    def reset(self, _):
        self.lock = threading.Lock()


SHARE = contextvars.ContextVar("share", default=1.0)


class Uses(UniS):
    def decide(self, observation):
        SHARE.get()
        return super().decide(observation)


class Has(UniS):
    share = SHARE


def test_play_runs__without_a_key_a_run_is_not_kept(tmp_path):
    runs = [run_of(kind(SCENARIO)) for kind in (UniD, Locked, Uses, Has)]
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="results of .* are not kept") as caught:
            played = play_runs(runs, folder=tmp_path)
        assert [str(one.message).split()[3] for one in caught] == ["Locked,", "Uses,", "Has,"]
        assert [len(one.rounds) for one in played] == [3, 3, 3, 3]
        assert [path.stem for path in tmp_path.iterdir()] == [run_key(runs[0])]


UNKEPT = """
import random
import numpy as np, torch
from policies import UniS

class Node:
    def __init__(self):
        self.others = set()

def nodes():
    one, other = Node(), Node()
    one.others.add(other)
    other.others.add(one)
    return one, other

{before}

class Mine(UniS):
    {body}
"""
USES = "def decide(self, _): return it"


@pytest.mark.parametrize(
    ("before", "body", "why"),
    [
        ("it = np.random.default_rng(0)", USES, "a Generator of .* make it in reset"),
        ("it = np.random.PCG64(0)", USES, "a PCG64 of .* make it in reset"),
        ("it = [{1: random.Random(0)}]", USES, "a Random of .* make it in reset"),
        ("it = random.Random(0).random", USES, "a Random of .* make it in reset"),
        ("", "it = np.random.RandomState(0)", "a RandomState of .* make it in reset"),
        ("", "def decide(self, _, it=torch.Generator()): pass", "a Generator of .* make it in"),
        (
            "rng = random.Random(0)",
            "def reset(self, _): self.draw = rng.random",
            "a Random of .* make it in reset",
        ),
        ("", "def reset(self, _): self.nodes = nodes()", "set refer to each other"),
        ("it = set(nodes())", USES, "set refer to each other"),
        ("import importlib as it", "", "mine.py' uses importlib"),
        ("from importlib.util import find_spec", "", "mine.py' uses importlib"),
        ("import late", "", "late.py' uses pkgutil"),
        ("", "def decide(self, _): __import__('far')", "mine.py' uses __import__"),
        ("it = eval('1')", "", "mine.py' uses eval"),
        ("it = __builtins__['exec']", "", "mine.py' uses __builtins__"),
    ],
)
def test_run_key__cannot_be_made_of_what_no_key_covers(tmp_path, monkeypatch, before, body, why):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "mine.py"
    file.write_text(UNKEPT.format(before=before, body=body or "pass"))
    (tmp_path / "late.py").write_text("import pkgutil\n")
    with pytest.raises((TypeError, ValueError), match=why):
        run_key(run_of(make_policy(f"{file}:Mine", SCENARIO)))


def test_play_runs__a_reset_that_ends_the_program_is_a_failure(tmp_path):
    with pytest.warns(RuntimeWarning, match="results of Quits"), pytest.raises(RunsFailedError):
        play_runs([run_of(Quits(SCENARIO))], folder=tmp_path)


def test_play_runs__refuses_two_runs_that_would_share_a_result(tmp_path):
    runs = [Run(label, UniD(SCENARIO), SCENARIO, (0,)) for label in ("One", "Two")]
    with pytest.raises(ValueError, match=r"^One, seeds \[0\], and Two, .* are the same run"):
        play_runs(runs, folder=tmp_path)


def test_play_runs__plays_equal_runs_of_two_settings_once(tmp_path):
    runs = [
        Run("Uni-D", UniD(SCENARIO), SCENARIO, (0,), setting=setting) for setting in ("a", "b", "a")
    ]
    one, other = play_runs(runs[:2], folder=tmp_path)
    assert one is other
    with pytest.raises(ValueError, match="are the same run"):
        play_runs(runs, folder=tmp_path)


def runs_of_file(path: Path, text: str) -> list[Run]:
    """Runs of two seeds of the class Mine in a file with this text."""
    path.write_text(text)
    policy = make_policy(f"{path}:Mine", SCENARIO)
    return [run_of(policy, seed) for seed in (0, 1)]


def test_play_runs__other_processes_see_what_a_file_has_changed(tmp_path):
    (tmp_path / "settings_of_mine.py").write_text("LEVEL = 0.5\n")
    runs = runs_of_file(
        tmp_path / "mine.py",
        "import settings_of_mine\nfrom fl_edge_env import Allocation\nfrom policies import UniS\n"
        "settings_of_mine.LEVEL = 0.9\n\nclass Mine(UniS):\n    def decide(self, observation):\n"
        "        f = settings_of_mine.LEVEL * self.scenario.f_max\n"
        "        return Allocation(f, self.scenario.p_max, q=1 / 4)\n",
    )
    here, there = (play_runs(runs, workers=workers) for workers in (1, 2))
    for one, other in zip(here, there, strict=True):
        pd.testing.assert_frame_equal(one.rounds, other.rounds)


def test_play_runs__keeps_nothing_of_changed_modules(tmp_path):
    (tmp_path / "changed_by_mine.py").write_text("LEVEL = 0.5\n")
    runs = runs_of_file(
        tmp_path / "mine.py",
        "import changed_by_mine\nfrom policies import UniS\n\nclass Mine(UniS):\n"
        "    def __init__(self, scenario):\n        super().__init__(scenario)\n"
        "        changed_by_mine.LEVEL = 0.9\n",
    )
    with pytest.warns(RuntimeWarning, match="values of the module changed_by_mine changed"):
        play_runs(runs, folder=tmp_path / "runs", workers=2)
    assert not list((tmp_path / "runs").iterdir())


class Remembers(UniS):
    """Keeps values that no reset clears."""

    seen: ClassVar = []

    def decide(self, observation):
        self.seen.append(1)
        return super().decide(observation)


def test_play_runs__keeps_nothing_of_code_that_remembers_runs(tmp_path):
    runs = [run_of(Remembers(SCENARIO), seed) for seed in (0, 1)]
    with pytest.warns(RuntimeWarning, match="its code keeps values for the next run"):
        play_runs(runs, folder=tmp_path)
    assert not list(tmp_path.iterdir())


class Swallows(UniS):
    """Ignores what ends it."""

    def decide(self, observation):
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        return super().decide(observation)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C interrupt, although a shell may start background commands without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_play_runs__keeps_nothing_after_a_swallowed_signal(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play_runs([run_of(Swallows(SCENARIO))], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_own_lambda__in_a_container_runs_in_other_processes(tmp_path):
    runs = runs_of_file(
        tmp_path / "mine.py",
        "from policies import UniS\n\nclass Mine(UniS):\n    def __init__(self, scenario):\n"
        "        super().__init__(scenario)\n        self.rules = {'one': [lambda: 1]}\n"
        "        class Local: pass\n        self.kinds = (Local, Local())\n",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play_runs(runs, folder=tmp_path / "runs", workers=2)
    assert len(list((tmp_path / "runs").iterdir())) == 2

"""Which results are kept: those of runs with a key, each once."""

from __future__ import annotations

import contextvars
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import ClassVar

import gymnasium as gym
import pytest
import torch

from policies import UniD, UniS, evaluate, make_policy, uniform
from policies.benchmark.run import Run, key_and_code, run_key
from policies.benchmark.runner import RunsFailedError, play_runs
from policies.uniform import static_resources
from tests.support import BRIEF, assert_same_records, run_of
from train_fl import TrainingEnvFactory, TrainingWrapper, make_task
from train_fl.server import ServerOptimizer


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
    runs = [run_of(kind(BRIEF)) for kind in (UniD, Locked, Uses, Has)]
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="results of .* are not kept") as caught:
            played = play_runs(runs, folder=tmp_path)
        assert [str(one.message).split()[3] for one in caught] == ["Locked,", "Uses,", "Has,"]
        assert [len(one.rounds) for one in played] == [3, 3, 3, 3]
        assert [path.stem for path in tmp_path.iterdir()] == [run_key(runs[0])]


UNKEPT = """
import random
import numba, numpy as np, torch
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
        ("it = numba.njit(lambda: np.random.rand())", USES, "numba's random numbers between runs"),
        ("", "def reset(self, _): self.kinds = {Node, type}", "objects without an own hash"),
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
        run_key(run_of(make_policy(f"{file}:Mine", BRIEF)))


def test_play_runs__a_reset_that_ends_the_program_is_a_failure(tmp_path):
    with pytest.warns(RuntimeWarning, match="results of Quits"), pytest.raises(RunsFailedError):
        play_runs([run_of(Quits(BRIEF))], folder=tmp_path)


def test_play_runs__refuses_two_runs_that_would_share_a_result(tmp_path):
    runs = [Run(label, UniD(BRIEF), BRIEF, (0,)) for label in ("One", "Two")]
    with pytest.raises(ValueError, match=r"^One, seeds \[0\], and Two, .* are the same run"):
        play_runs(runs, folder=tmp_path)


def test_play_runs__plays_equal_runs_of_two_settings_once(tmp_path):
    runs = [Run("Uni-D", UniD(BRIEF), BRIEF, (0,), setting=setting) for setting in ("a", "b", "a")]
    one, other = play_runs(runs[:2], folder=tmp_path)
    assert one is other
    with pytest.raises(ValueError, match="are the same run"):
        play_runs(runs, folder=tmp_path)


def runs_of_file(path: Path, text: str) -> list[Run]:
    """Runs of two seeds of the class Mine in a file with this text."""
    path.write_text(text)
    policy = make_policy(f"{path}:Mine", BRIEF)
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
    assert_same_records(here, there)


def test_play_runs__keeps_nothing_of_changed_modules(tmp_path):
    (tmp_path / "changed_by_mine.py").write_text("LEVEL = 0.5\n")
    runs = runs_of_file(
        tmp_path / "mine.py",
        "import changed_by_mine\nfrom policies import UniS\n\nclass Mine(UniS):\n"
        "    def __init__(self, scenario):\n        super().__init__(scenario)\n"
        "        changed_by_mine.LEVEL = 0.9\n",
    )
    with pytest.warns(RuntimeWarning, match="changed after its module was loaded"):
        play_runs(runs, folder=tmp_path / "runs", workers=2)
    assert not list((tmp_path / "runs").iterdir())


class Remembers(UniS):
    """Keeps values that no reset clears."""

    seen: ClassVar = []

    def decide(self, observation):
        self.seen.append(1)
        return super().decide(observation)


def test_play_runs__keeps_nothing_of_code_that_remembers_runs(tmp_path):
    runs = [run_of(Remembers(BRIEF), seed) for seed in (0, 1)]
    why = "keeps values for the next run|Remembers changed after its module was loaded"
    with pytest.warns(RuntimeWarning, match=why):
        play_runs(runs, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.warns(RuntimeWarning, match="may be wrong, because its code or task keeps values"):
        play_runs(runs)


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """Keeps a state that no run resets."""

    state: list[torch.Tensor] = field(default_factory=list)

    def step(self, update, _):
        self.state.append(update)
        return update


class Counts:
    """Counts how often it augments."""

    calls = 0

    def __call__(self, inputs, _):
        self.calls += 1
        return inputs


class Factory(TrainingEnvFactory):
    """Counts its environments."""

    made = 0

    def __call__(self, policy):
        self.made += 1
        return super().__call__(policy)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("server", "may be wrong, because its code or task keeps values"),
        ("augment", "may be wrong, because its code or task keeps values"),
        ("factory", "may be wrong, because its code or task keeps values"),
        ("lock", "cannot check whether .* depend on other runs or processes: .*lock"),
    ],
)
def test_play_runs__warns_of_a_task_that_may_remember_runs(state, why):
    task = make_task("digits", num_devices=4, server=Momentum() if state == "server" else "fedavg")
    if state == "augment":
        task = replace(task, dataset=replace(task.dataset, augment=Counts()))
    system = task.fit(BRIEF)

    def make_env(_):
        return TrainingWrapper(gym.make("FLEdge-v0", scenario=system), task)

    policy = (Locked if state == "lock" else UniD)(system)
    maker = Factory(system, task) if state == "factory" else make_env
    with pytest.warns(RuntimeWarning, match=why):
        play_runs([Run("it", policy, system, (0,), maker)])


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
        play_runs([run_of(Swallows(BRIEF))], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_own_lambda__in_a_container_runs_in_other_processes(tmp_path):
    runs = runs_of_file(
        tmp_path / "mine.py",
        "from policies import UniS\n\nclass Mine(UniS):\n    def __init__(self, scenario):\n"
        "        super().__init__(scenario)\n        self.rules = {'one': [lambda: 1]}\n"
        "        class Local: pass\n        self.kinds = (Local, Local())\n",
    )
    play_runs(runs, folder=tmp_path / "runs", workers=2)  # a warning would be an error
    assert len(list((tmp_path / "runs").iterdir())) == 2


COPIED = """
import sys
from collections import defaultdict
from types import SimpleNamespace
import numpy as np
import torch
from pandas import Series
from scipy.sparse import csr_array
from policies import UniS

UNSET, LIMITS, KINDS = object(), (0.5, "fast"), [1]

class Config:
    level = 1

CONFIG = Config()

class Mine(UniS):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.boost = [1.0]
        self.table = np.ones((2, 4))
        {line}

def counter():
    count = 0
    def add():
        nonlocal count
        count += 1
    return add
"""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("self.rule = lambda gain: self.boost[0] * gain", "a function that uses its Mine"),
        ("boost = self.boost; self.rule = lambda: boost", "a function that uses its list"),
        ("self.rules = [lambda gain, it=self.table: it]", "a function that uses its ndarray"),
        ("self.first, self.second = self.table", "two arrays that share memory"),
        ("self.push = self.boost.append", "a function that uses its list"),
        ("self.masked = np.ma.masked_array(self.table)", "two arrays that share memory"),
        ("self.wide = np.broadcast_to(self.table[0], (3, 4))", "two arrays that share memory"),
        (
            "self.net = torch.nn.Sequential(torch.nn.Linear(1, 1)); self.b = self.net[0].bias.data",
            "two arrays that share memory",
        ),
        (
            "self.windows = np.lib.stride_tricks.sliding_window_view(self.table, 2, 0)",
            "two arrays that share memory",
        ),
        ("self.rule = counter()", "a function that assigns the nonlocal count"),
        ("self.rates = defaultdict(lambda: self.boost)", "a function that uses its Mine"),
        ("self.rule = np.vectorize(lambda gain: self.boost[0])", "a function that uses its Mine"),
        ("self.it = SimpleNamespace(all=self.table, one=self.table[0])", "two arrays that share"),
        (
            "self.all = torch.ones(2, 2, dtype=torch.bfloat16); self.one = self.all[0]",
            "two arrays that share memory",
        ),
        ("self.sums = csr_array(self.table); self.turned = self.sums.T", "two arrays that share"),
        ("self.it = Config(); self.rows = Series([self.it])", "a Config that a library does not"),
        ("self.held = CONFIG, KINDS, LIMITS, UNSET", ""),
        ("self.weight = torch.zeros(3)", ""),
        ("sys.modules[__name__].boost = self.boost", ""),
        ("self.rule = lambda gain: gain / scenario.num_devices", ""),
        ("self.rule = self.decide; self.first = self.table[0].copy()", ""),
        ("self.first, self.second = np.ones((2, 4))", ""),
    ],
)
def test_evaluate__refuses_policies_whose_copies_differ(tmp_path, line, why):
    file = tmp_path / "mine.py"
    file.write_text(COPIED.format(line=line))
    refused = pytest.raises(ValueError, match=f"Mine cannot be copied: it holds {why}")
    with refused if why else nullcontext():
        evaluate([make_policy(f"{file}:Mine", BRIEF)], BRIEF, [0], gaps=False)


@pytest.mark.parametrize(
    "line",
    [
        "self.few = {*range(99)}; self.few -= {*range(99)} - {5, 40}",
        "self.few = type('Few', (defaultdict,), {})(); self.few.limit = 1",
    ],
)
def test_evaluate__warns_of_what_copies_lose(tmp_path, line):
    file = tmp_path / "mine.py"
    file.write_text(COPIED.replace("{line}", line))
    with pytest.warns(RuntimeWarning, match="have another few: "):
        evaluate([make_policy(f"{file}:Mine", BRIEF)], BRIEF, [0], gaps=False)


RULES = """
import enum, functools, threading
from fl_edge_env import Allocation
from policies import UniS

KINDS = {}
LOCK = threading.Lock()

def register(kind):
    KINDS[kind.__name__] = kind
    return kind
"""
MODES = """
from rules_of_modes import *

class Mode(enum.Enum):
    FAST = 1

@functools.cache
def mode():
    return Mode.FAST

@register
class Fast:
    pass

class Mine(UniS):
    def decide(self, observation):
        alike = mode() is Mode.FAST and isinstance(KINDS["Fast"](), Fast)
        f = self.scenario.f_max if alike else self.scenario.f_min
        return Allocation(f, self.scenario.p_max, q=1 / 4)
"""


def test_play_runs__has_each_class_once_in_every_process(tmp_path):
    (tmp_path / "rules_of_modes.py").write_text(RULES)
    runs = runs_of_file(tmp_path / "mine.py", MODES)
    here, there = (play_runs(runs, workers=workers) for workers in (1, 2))
    assert_same_records(here, there)


def test_play_runs__names_a_file_that_fails_in_other_processes(tmp_path):
    code = (
        "from multiprocessing import current_process\nfrom policies import UniS\n\n"
        "if current_process().name != 'MainProcess':\n    raise OSError('only once')\n"
        "class Mine(UniS):\n    pass\n"
    )
    runs = runs_of_file(tmp_path / "mine.py", code)
    with pytest.raises(RunsFailedError, match=r"cannot import .*mine\.py': OSError: only once"):
        play_runs([*runs, run_of(UniS(BRIEF))], workers=2)


def test_changed_value__is_found_in_a_module_with_a_lock(tmp_path):
    (tmp_path / "rules_of_locks.py").write_text(f"{RULES}\nLEVEL = 1\n")
    code = "import rules_of_locks\nfrom policies import UniS\n\nclass Mine(UniS):\n    pass\n"
    (run, _) = runs_of_file(tmp_path / "mine.py", code)
    _, code = key_and_code(run)
    assert not code.changed_value()
    sys.modules["rules_of_locks"].LEVEL = 2
    assert code.changed_value() == "rules_of_locks.LEVEL"


def test_play_runs__keeps_nothing_of_changed_code_of_fledge(tmp_path, monkeypatch):
    monkeypatch.setattr("policies.benchmark.attempt.code_hash", lambda: "of edited files")
    with pytest.warns(RuntimeWarning, match="FLEdge's code has changed"):
        play_runs([run_of(UniS(BRIEF))], folder=tmp_path)
    assert not list(tmp_path.iterdir())


class Replaces(UniS):
    """Replaces a function of FLEdge for all who play after it."""

    def reset(self, _):
        uniform.static_resources = lambda *given: static_resources(*given)


def test_play_runs__keeps_nothing_of_what_others_have_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(uniform, "static_resources", uniform.static_resources)
    key = run_key(run_of(UniS(BRIEF)))
    with pytest.warns(RuntimeWarning, match="replaced policies.uniform.static_resources since"):
        play_runs([run_of(UniS(BRIEF)), run_of(Replaces(BRIEF))], folder=tmp_path)
    assert key not in [path.stem for path in tmp_path.iterdir()]


METHODS = """
from fl_edge_env import Allocation
from policies import UniS

def plain(function):
    def wrapped(self):
        return function(self)
    return wrapped

class Mine(UniS):
    fast, slow = plain(lambda self: 1.0), plain(lambda self: 0.5)

    def __init__(self, scenario, *, mode="fast"):
        super().__init__(scenario)
        self.rule = getattr(self, mode)

    def decide(self, observation):
        return Allocation(self.rule() * self.scenario.f_max, self.scenario.p_max, q=1 / 4)
"""


def test_run_key__knows_methods_of_one_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(METHODS)
    kinds = [make_policy(f"{file}:Mine", BRIEF, mode=mode) for mode in ("fast", "slow")]
    assert len({run_key(run_of(policy)) for policy in kinds}) == 2
    here, there = (play_runs([*map(run_of, kinds)], workers=workers) for workers in (1, 2))
    assert_same_records(here, there)


def test_play_runs__warns_of_changes_that_others_do_not_see(tmp_path, monkeypatch):
    (tmp_path / "changed_later.py").write_text("LEVEL = 0.5\n")
    code = "import changed_later\nfrom policies import UniS\n\nclass Mine(UniS):\n    pass\n"
    runs = runs_of_file(tmp_path / "mine.py", code)
    sys.modules["changed_later"].LEVEL = 0.9
    with pytest.warns(RuntimeWarning, match="results of Mine.* may be wrong, because .* changed"):
        play_runs(runs, workers=2)
    scripts = FunctionType(compile("0", "script", "eval"), {"__name__": "__main__"})
    monkeypatch.setattr(UniS, "rate", scripts, raising=False)
    with pytest.warns(RuntimeWarning, match="may be wrong, because its code was changed after"):
        play_runs([run_of(UniS(BRIEF), seed) for seed in (0, 1)], workers=2)
    (tmp_path / "mine.py").write_text(code + "# more\n")
    with pytest.warns(RuntimeWarning, match="mine.py' has changed since this process loaded it"):
        make_policy(f"{tmp_path / 'mine.py'}:Mine", BRIEF)

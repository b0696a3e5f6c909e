"""Keys of results: different for all that changes a result, the same for nothing else."""

from __future__ import annotations

import copy
import functools
import os
import sys
import types
from code import InteractiveInterpreter
from pathlib import Path

import numpy as np
import pytest
import torch

from policies import LROA, UniD, UniS, make_policy
from policies.benchmark.fingerprint import Fingerprint
from policies.benchmark.run import Run, code_hash, run_key
from policies.benchmark.runner import play_runs
from tests.support import BRIEF, python, run_of
from train_fl import Dataset, TrainingEnvFactory, make_task


def key_of(policy, scenario=BRIEF, seeds=(0,), **more) -> str:
    return run_key(Run(policy.name, policy, scenario, seeds, **more))


def test_keys__change_with_every_input_and_with_nothing_else():
    given = [
        (LROA(BRIEF), BRIEF, (0, 1)),
        (LROA(BRIEF, variant="paper"), BRIEF, (0, 1)),
        (UniD(BRIEF), BRIEF, (0, 1)),
        (LROA(BRIEF), BRIEF.replace(mu=1.5), (0, 1)),
        (LROA(BRIEF), BRIEF.replace(p_max=0.1 * (1 + 1e-15)), (0, 1)),
        (LROA(BRIEF), BRIEF, (0, 2)),
    ]
    keys = [key_of(*each) for each in given]
    assert len(set(keys)) == len(keys)
    lroa = given[0][0]
    lroa.decide({"channel_gain": np.full(4, 0.1), "queue": np.ones(4)})
    assert key_of(lroa, BRIEF.replace(), (0, 1)) == keys[0]


def test_keys__change_with_the_code_of_the_packages(monkeypatch, tmp_path):
    keys = []
    monkeypatch.setattr("policies.benchmark.run.PACKAGES", (tmp_path,))
    for code in ("a = 1", "a = 2"):
        (tmp_path / "code.py").write_text(code)
        code_hash.cache_clear()
        keys.append(key_of(UniS(BRIEF)))
    code_hash.cache_clear()
    assert keys[0] != keys[1]


def test_fingerprint__knows_which_parts_are_one_object():
    one = [1]
    cells = [{"devices": []}, {"devices": []}]
    for cell in cells:
        cell["devices"].append({"cell": cell})
    first, second = (cell["devices"][0] for cell in cells)
    values = [one, one], [[1], [1]], [cells, first], [cells, second]
    hashes = [Fingerprint().of(value) for value in values]
    assert len(set(hashes)) == 4
    assert [Fingerprint().of(value) for value in copy.deepcopy(values)] == hashes


def test_keys__change_with_data_augmentation_and_network(monkeypatch):
    def made(name="it", seed=0, flip=1.0, width=3):
        inputs = np.random.default_rng(seed).random((8, 2))
        targets = np.arange(8) % 2
        dataset = Dataset.from_arrays(
            name, inputs, targets, inputs, targets, augment=lambda batch, _: flip * batch
        )

        def network():
            slope = torch.nn.LeakyReLU(float(os.environ["SLOPE"]))
            return torch.nn.Sequential(torch.nn.Linear(2, width), slope, torch.nn.Linear(width, 2))

        task = make_task(dataset, num_devices=4, learning_rate=0.1, model=network)
        factory = TrainingEnvFactory(BRIEF, task).fitted()
        return key_of(UniS(factory.scenario), factory.scenario, make_env=factory)

    monkeypatch.setenv("SLOPE", "0.1")
    keys = [made(), made(name="other"), made(seed=1), made(flip=-1.0), made(width=4)]
    assert made() == keys[0]
    monkeypatch.setenv("SLOPE", "0.2")
    assert len({*keys, made()}) == len(keys) + 1


# Classes and objects of a user's file, none of which may share a key with another.
MINE = """
import enum, functools, re, threading, types
import numpy as np, torch
from scipy.stats import norm
from policies import Scheduler, UniD, UniS
from policies.selection import BestChannel
import helper, space.part

class Mine(UniD):
    pass

class Twin(UniD):
    def decide(self, observation):
        return norm.cdf(helper.SHARE)

def at(level):
    class At(UniD):
        def decide(self, observation):
            return level, helper.SHARE
    return At

def called(level):
    decide = lambda self, observation: self.level
    return type("Called", (UniD,), {"level": level, "decide": decide})

def quiet(level):
    class Quiet(UniD):
        @torch.no_grad()
        def decide(self, observation):
            return level
    return Quiet

def seen(value):
    class Seen(UniD):
        def decide(self, observation):
            return value
    return Seen

class Attribute(UniD):
    module = helper
    def decide(self, observation):
        return self.module.LEVEL

class Default(UniD):
    def decide(self, observation, module=helper):
        return module.LEVEL

made = types.ModuleType("made")

class Mode(enum.Enum):
    FAST = 1
    SLOW = 2

def marked(level):
    @functools.wraps(np.mean)
    def mean(values):
        return mean.level
    mean.level = level
    return mean

class Node:
    def __init__(self):
        self.next = self

def nodes(cycle):
    one, other = Node(), Node()
    one.next = other
    if cycle:
        other.next = one
    return one

CONFIG = {"utility": np.log1p}

class Changed(UniD):
    level = 1
    def decide(self, observation):
        import late
        return CONFIG, vars(helper), vars(late)

def changed(attribute=1, value=1, far=1, later=1):
    import late
    Changed.level = attribute
    CONFIG["level"] = value
    helper.LEVEL = far
    late.LEVEL = later
    return Changed

class Holds(UniD):
    def __init__(self, scenario, held):
        super().__init__(scenario)
        self.held = held

class Called:
    def __init__(self, func, level):
        self.func = func
        self.level = level

class Lazy(UniD):
    def decide(self, observation):
        import late
        return late.SHARE

def rule(level):
    return lambda cohort, observation, scenario, *more: (level, level)

def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(2, 2)

class Unused:
    pass

def signed(many):
    if many:
        return lambda *gain: gain[0]
    return lambda gain: gain[0]

def marked_class(level):
    class Marked(UniD):
        __level__ = level
    return Marked

def policies(scenario):
    yield from (Mine(scenario), Twin(scenario), UniD(scenario), Lazy(scenario))
    yield from (kind(scenario) for kind in (at(0.1), at(0.9), called(1), called(2)))
    yield from (kind(scenario) for kind in (quiet(0.1), quiet(0.9)))
    yield from (marked_class(level)(scenario) for level in (1, 2))
    yield from (Holds(scenario, signed(many)) for many in (False, True))
    yield from (Holds(scenario, np.ones((2, 2), order=order)) for order in "CF")
    yield from (seen(types.MappingProxyType({"a": level}))(scenario) for level in (1, 2))
    yield from (Holds(scenario, marked(level)) for level in (1, 2))
    yield from (Holds(scenario, nodes(cycle)) for cycle in (False, True))
    yield from (Holds(scenario, dict.fromkeys(order)) for order in ("ab", "ba"))
    yield from (Holds(scenario, {np.log1p: re.compile(word)}) for word in "ab")
    yield from (Holds(scenario, [lambda: level]) for level in (1, 2))
    yield from (Holds(scenario, functools.partial(at, level)) for level in (1, 2))
    yield from (Holds(scenario, Called(at, level)) for level in (1, 2))
    yield from (Holds(scenario, Called(at, level).__init__) for level in (1, 2))
    yield from (Holds(scenario, {"some", "words", level}) for level in ("a", "b"))
    yield from (Holds(scenario, network(seed)) for seed in (0, 1))
    yield from (Holds(scenario, network(seed).weight.detach().bfloat16()) for seed in (0, 1))
    yield from (Holds(scenario, kind) for kind in (Unused, at))
    yield from (Scheduler(BestChannel(scenario), resources=rule(level)) for level in (1, 2))
    yield from (seen(modes)(scenario) for modes in ({Mode.FAST}, {Mode.FAST, Mode.SLOW}))
    for level in (1, 2):
        helper.LEVEL = space.part.LEVEL = made.LEVEL = level
        yield from (Attribute(scenario), Default(scenario))
        yield from (seen(value)(scenario) for value in (helper, [helper], {1: helper}, space, made))
"""
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.run import Run, run_key
from policies.user_code import load_reference

scenario = Scenario.digits(num_devices=4, num_rounds=3)
names = sys.argv[1:]
for name in names:
    load_reference(f"{name}:Mine", kind="class", fits=callable)
for name in names:
    mine = load_reference(f"{name}:policies", kind="function", fits=callable)
    keys = [run_key(Run(policy.name, policy, scenario, (3,))) for policy in mine(scenario)]
    changed = load_reference(f"{name}:changed", kind="function", fits=callable)
    for levels in ((), (2,), (1, 2), (1, 1, 2), (1, 1, 1, 2)):
        keys.append(run_key(Run("it", changed(*levels)(scenario), scenario, (3,))))
    print(*keys)
"""


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    files = {
        "mine.py": MINE,
        "other.py": MINE + "\n",
        "near.py": "import helper\nfrom policies import UniD as Mine\n",
        "helper.py": "SHARE = 1\n",
        "late.py": "SHARE = 1\n",
        "space/part.py": "",
    }
    made = [tmp_path / "one", tmp_path / "two"]
    for folder in made:
        (folder / "space").mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    return made


def keys_in(folder: Path, *names: str, seed: str = "0", path: str = "") -> list[list[str]]:
    """The keys of the policies in each of some files."""
    variables = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
    done = python(SCRIPT, *names, cwd=folder, env=variables)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_keys__know_a_policys_code_and_are_equal_everywhere(folders):
    one, two = folders
    (first,) = keys_in(one, "mine.py")
    assert len(set(first)) == len(first)
    # Neither the folder, nor the process, nor a scheduler in another file matters.
    again, others = keys_in(two, "mine.py", "other.py", seed="1")
    assert again == first
    # A file of the same name and classes of the same names are something else.
    uni_d = first[2]
    assert set(first) & set(others) == {uni_d}


# Finds a package as an editable install does, for which Python looks in a file next to libraries.
FINDER = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "far":
            return spec_from_file_location(name, {file!r}, submodule_search_locations=[{folder!r}])

sys.meta_path.append(Finder)
"""
AT_ONCE = """
from policies import UniD
{imported}

class Mine(UniD):
    pass

def policies(scenario):
    return [Mine(scenario), UniD(scenario)]

def changed(*_):
    return Mine
"""
LATER = AT_ONCE.replace("{imported}", "").replace(
    "    pass",
    """
    def decide(self, observation):
        {imported}
""",
)
# Files with the one that each imports: a neighbour, of its package, and others.
IMPORTS = {
    "one.py": (AT_ONCE, "import helper", "helper.py"),
    "two.py": (LATER, "import late", "late.py"),
    "site-packages/pack/mine.py": (AT_ONCE, "from pack import own", "site-packages/pack/own.py"),
    "four.py": (LATER, "from far.away import SHARE", "code/for_far/away.py"),
    "five.py": (LATER, "import over.under.deep", "over/under/deep.py"),  # without __init__.py
}


def test_keys__change_with_the_code_of_what_a_file_imports(tmp_path):
    far = tmp_path / "code" / "for_far"
    for package in (tmp_path / "site-packages" / "pack", far):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    finder = FINDER.format(file=str(far / "__init__.py"), folder=str(far))
    (tmp_path / "over/under").mkdir(parents=True)
    (tmp_path / "sitecustomize.py").write_text(finder)
    path = f"{tmp_path}{os.pathsep}{tmp_path / 'site-packages'}"
    found = []
    for share in (1, 2):
        for name, (code, imported, other) in IMPORTS.items():
            (tmp_path / name).write_text(code.format(imported=imported))
            (tmp_path / other).write_text(f"SHARE = {share}\n")
        places = "one.py", "two.py", "pack.mine", "four.py", "five.py"
        found.append(keys_in(tmp_path, *places, path=path))
    for before, after in zip(*found, strict=True):
        assert set(before) & set(after) == {before[1]}


def test_keys__change_with_what_replaces_code_of_the_packages(monkeypatch):
    def mine(*_):
        return helper

    class Mine(UniD):
        pass

    helper = types.ModuleType("helper")
    helper.__file__ = __file__
    given = [
        ("policies.uniform.static_resources", mine),
        ("policies.uniform.static_resources", functools.partial(mine, 1)),
        ("policies.uniform.static_resources", functools.wraps(UniS.decide)(lambda *_: 1)),
        ("policies.uniform.np", helper),
        ("policies.UniD", Mine),
        ("policies.UniD", Mine(BRIEF)),
        ("fl_edge_env.FLEdgeVectorEnv.step", mine),
        ("fl_edge_env.FLEdgeVectorEnv.step", staticmethod(mine)),
        ("fl_edge_env.FLEdgeVectorEnv.step", property(mine)),
    ]
    keys = [key_of(LROA(BRIEF))]
    for place, value in given:
        with monkeypatch.context() as patch:
            patch.setattr(place, value)
            keys.append(key_of(LROA(BRIEF)))
    assert len(set(keys)) == len(keys)
    assert key_of(LROA(BRIEF)) == keys[0]


def test_fingerprint__of_fields_does_not_see_the_bytes_between():
    def tables(value, between):
        kind = np.dtype([("a", "f8"), ("b", [("c", "u1"), ("d", "f8")], 2)], align=True)
        table = np.full(3 * kind.itemsize, between, dtype=np.uint8).view(kind)
        table["a"] = value
        table["b"]["c"] = table["b"]["d"] = 1
        parts = table, table[::2], table[1], table.view(np.recarray)
        return [Fingerprint().of(part) for part in parts]

    assert tables(1.0, between=0) == tables(1.0, between=7) != tables(2.0, between=0)


def test_play_runs__keeps_nothing_of_a_changed_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from policies import UniS\n\nclass Mine(UniS):\n    pass\n")
    policy = make_policy(f"{file}:Mine", BRIEF)
    before = key_of(policy)
    file.write_text(file.read_text() + "# more\n")
    assert key_of(policy) == before  # the code that is loaded
    with pytest.warns(RuntimeWarning, match="results of Mine, .* not kept, because .* has changed"):
        play_runs([run_of(policy), run_of(UniD(BRIEF))], folder=tmp_path / "records")
    assert not list((tmp_path / "records").glob(f"{before}.npz"))


@pytest.mark.parametrize("search", ["", "sys.path.insert(0, {!r})", "sys.path.append({!r})"])
def test_user_code__means_one_helper_of_a_name(folders, search):
    files = [folder / "space" / "mine.py" if search else folder / "near.py" for folder in folders]
    for folder, file in zip(folders, files, strict=True):
        imported = f"import sys\n{search.format(str(folder))}\nimport helper"
        file.write_text(AT_ONCE.format(imported=imported))
    names = [f"{file}:Mine" for file in files]
    script = (
        "import sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from fl_edge_env import Scenario\nfrom policies import make_policy\n"
        "for name in sys.argv[1:]: make_policy(name, Scenario.digits())"
    )
    done = python(script, *names)
    assert "imports helper, which is" in done.stderr.splitlines()[-1]


CELL = """
class Mine(UniD):
    def decide(self, observation):
        return {value}
"""


def test_keys__of_a_notebook_change_with_the_code_of_its_classes(monkeypatch):
    def key(value):
        module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        vars(module)["UniD"] = UniD
        InteractiveInterpreter(vars(module)).runsource(CELL.format(value=value), symbol="exec")
        return key_of(module.Mine(BRIEF))

    assert key(1) == key(1) != key(2)

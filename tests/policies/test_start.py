"""What a start takes: no import that is not used, and solvers that compile everywhere."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
from numba.core.caching import CacheImpl

from fl_edge_env import Scenario
from policies.outcome import outcome_prices
from policies.solvers import compiled, waits
from tests.support import python

HEAVY = {"joblib", "matplotlib", "numba", "pandas", "ray", "scipy", "torch"}


@pytest.mark.parametrize(
    "code",
    [
        "import policies",
        "import train_fl.command_line as c; c._COMMANDS['compare']()",  # what its --help needs
    ],
)
def test_start__waits_for_no_library_that_is_not_used(code):
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {code}"
    loaded = set(python(code).stdout.splitlines()[-1].split())
    assert "fl_edge_env" in loaded
    assert not HEAVY & loaded


def test_compiling__works_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # as where all folders are read-only
    compiled._warn.cache_clear()
    with pytest.warns(UserWarning, match="or set NUMBA_CACHE_DIR to a writable one"):
        assert compiled.entry(lambda x: x + 1.0)(1.0) == 2.0


ANNOUNCED = r"compiling the solvers.*\nsearching for prices.*\(N = 4, K = 2\)\n"


@pytest.mark.parametrize(
    ("terminal", "patience", "expected"),
    [(True, 0.0, r"(\r.{80}\n){2}"), (False, 0.0, ANNOUNCED), (False, 60.0, "")],
)
def test_waits__are_announced_on_any_standard_error(
    terminal, patience, expected, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(waits, "_PATIENCE", patience)
    monkeypatch.setattr(waits, "current_process", lambda: SimpleNamespace(name="MainProcess"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    waits._announce.cache_clear()
    compiled.entry(lambda x: 2.0 * x)(1.0)
    outcome_prices.cache_clear()
    outcome_prices(Scenario.digits(num_devices=4, energy_budget_j=2.0))
    out, error = capsys.readouterr()
    assert not out
    assert re.fullmatch(expected, error)


def twice(x):
    return 2.0 * x


def fill(_):
    raise OSError(28, "No space left on device")


DAMAGES = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "empty": lambda file: file.write_bytes(b""),
    "random": lambda file: file.write_bytes(bytes(range(256)) * 40),
    "changed": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"),
    "folder": lambda file: file.unlink() or file.mkdir(),
}


@pytest.mark.parametrize("damage", [*DAMAGES, "full"])
def test_compiling__is_all_that_a_bad_cache_costs(damage, monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    if damage == "full":
        monkeypatch.setattr(compiled, "atomic_path", fill)
    else:
        compiled.entry(twice)(1.0)
        (kept,) = tmp_path.rglob("*.nbc")
        DAMAGES[damage](kept)
    compiled._warn.cache_clear()
    double = compiled.entry(twice)
    folder = double._cache.cache_path if damage == "full" else str(kept.parent)
    with pytest.warns(UserWarning, match=f"{folder}', is damaged") as caught:
        assert double(1.0) == 2.0
    assert len(caught) == 1  # also if both loading and saving fail


SOURCES = """
from typing import NamedTuple
from policies.solvers.compiled import compiled, entry
FACTOR = 2.0
class Pair(NamedTuple):
    first: float
    second: float
@compiled
def inner(pair): return FACTOR * pair.first + 1.0
@compiled
def outer(x): return inner(Pair(x, 4.0))
@entry
def kernel(x): return outer(x)
"""


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        ("FACTOR = 2.0", "FACTOR = 3.0", 31.0),
        ("pair.first + 1.0", "pair.first - 1.0", 19.0),
        ("return outer(x)", "return outer(x + 1.0)", 23.0),
        ("first: float\n    second", "second: float\n    first", 9.0),
    ],
)
def test_compiling__keeps_only_code_of_the_loaded_sources(
    before, after, result, monkeypatch, tmp_path
):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    file = tmp_path / "kernel.py"
    file.write_text("")  # what it holds now does not matter

    def run(source: str) -> tuple[float, int]:
        names = {"__name__": "kernel"}
        exec(compile(source, file, "exec"), names)
        return names["kernel"](10.0), len(names["kernel"].stats.cache_hits)

    changed = SOURCES.replace(before, after)
    found = [run(source) for source in (SOURCES, SOURCES, changed, changed)]
    assert found == [(21.0, 0), (21.0, 1), (result, 0), (result, 1)]
    assert len([*tmp_path.rglob("*.nbc")]) == 1

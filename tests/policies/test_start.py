"""What a start takes: no import that is not used, and solvers that compile everywhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fl_edge_env import Scenario
from policies.outcome import outcome_prices, prices
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
    monkeypatch.setattr(compiled.config, "CACHE_DIR", __file__)  # no folder
    with pytest.warns(UserWarning, match="cannot write to .*: set NUMBA_CACHE_DIR to a writable"):
        monkeypatch.setattr(compiled, "_FOLDER", compiled._cache_folder())
    assert compiled.entry(lambda x: x + 1.0)(1.0) == 2.0


ANNOUNCED = r"compiling the solvers.*\nsearching for prices.*\(N = 4, K = 2\)\n"


@pytest.mark.parametrize(
    ("terminal", "patience", "expected"),
    [(True, 0.0, r"(\r.{80}\n){2}"), (False, 0.0, ANNOUNCED), (False, 60.0, "")],
)
def test_waits__are_announced_on_any_standard_error(
    terminal, patience, expected, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(compiled, "_FOLDER", tmp_path)
    monkeypatch.setattr(waits, "_PATIENCE", patience)
    monkeypatch.setattr(waits, "current_process", lambda: SimpleNamespace(name="MainProcess"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    waits._announce.cache_clear()
    compiled.entry(lambda x: 2.0 * x)(1.0)
    prices._KNOWN.clear()
    outcome_prices(Scenario.digits(num_devices=4, energy_budget_j=2.0))
    out, error = capsys.readouterr()
    assert not out
    assert re.fullmatch(expected, error)


def twice(x):
    return 2.0 * x


def test_compiling__is_announced_only_if_something_compiles(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compiled, "_FOLDER", tmp_path)
    monkeypatch.setattr(waits, "_PATIENCE", 0.0)
    for expected in ("compiling the solvers", ""):
        waits._announce.cache_clear()
        compiled.entry(twice)(1.0)
        assert capsys.readouterr().err.startswith(expected)
    assert waits._announce.cache_info().misses == 0


DAMAGES = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "empty": lambda file: file.write_bytes(b""),
    "random": lambda file: file.write_bytes(bytes(range(256)) * 40),
    "folder": lambda file: file.unlink() or file.mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["nbi", "nbc"])  # numba's index and code
def test_compiling__is_all_that_a_damaged_cache_costs(damage, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "_FOLDER", tmp_path / "solvers")
    before = compiled.config.CACHE_DIR
    compiled.entry(twice)(1.0)
    assert before == compiled.config.CACHE_DIR  # of the user's functions
    (kept,) = tmp_path.rglob(f"*.{kind}")
    DAMAGES[damage](kept)
    with pytest.warns(UserWarning, match=f"{tmp_path}/solvers', is damaged") as caught:
        assert compiled.entry(twice)(1.0) == 2.0
    assert len(caught) == 1


def test_cache__is_one_of_the_present_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "solvers" / "compiled.py"))
    for folder in ("outcome", "p2", "solvers"):
        (tmp_path / folder).mkdir()
        before = compiled._cache_folder()
        (tmp_path / folder / "kernel.py").write_text("x = 1")
        assert compiled._cache_folder() != before
    assert compiled._cache_folder() == compiled._cache_folder()


def test_kernels__import_constants_from_these_folders_alone():
    policies = Path(compiled.__file__).parents[1]
    for name in ("outcome/kernel", "outcome/search", "p2/certificate", "p2/kernel"):
        text = (policies / f"{name}.py").read_text()
        assert set(re.findall(r"^from (fl_edge_env\S*|policies\.\w+)", text, re.M)) <= {
            "fl_edge_env.allocation",  # LEAST_Q
            "fl_edge_env.typing",
            "policies.outcome",
            "policies.p2",
            "policies.solvers",
        }

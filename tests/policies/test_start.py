"""What a start takes: no import that is not used, and compiling is announced on a terminal."""

from __future__ import annotations

import io
import subprocess
import sys

import numba
import pytest
from numba.core.caching import CacheImpl

from policies.solvers import compiled

HEAVY = {"joblib", "matplotlib", "numba", "pandas", "ray", "scipy.stats", "torch"}


@pytest.mark.parametrize(
    "code",
    [
        "import policies",
        "import train_fl.command_line as c; c._COMMANDS['compare']()",  # what --help needs
    ],
)
def test_start__waits_for_no_library_that_is_not_used(code):
    code += "; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("terminal", [True, False])
def test_compiling__is_announced_once_on_a_terminal(terminal, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    compiled._listen()
    compiled._announce.cache_clear()
    for function in (lambda x: x + 1.0, lambda x: x + 2.0):
        function.__module__ = compiled.__name__  # a user's own functions are not announced
        numba.njit(function)(1.0)
    assert stream.getvalue().count("compiling the solvers") == terminal
    assert stream.getvalue().count("\n") == terminal


def test_compiling__where_nothing_can_be_kept_works_and_names_the_folder_to_set(
    monkeypatch, capsys
):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # as where all folders are read-only
    compiled._report_no_cache.cache_clear()
    for function in (lambda x: x + 1.0, lambda x: x + 2.0):
        assert compiled.entry(function)(1.0) == function(1.0)
    assert capsys.readouterr().err.count("set NUMBA_CACHE_DIR to a folder") == 1

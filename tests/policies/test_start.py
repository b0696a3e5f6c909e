"""What is imported before anything is run: no more than that takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

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

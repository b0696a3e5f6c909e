"""The command `fl-edge`: its help, what it imports, lost output, and where packages are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import train_fl
from tests.support import MAIN, python
from train_fl.command_line import main

SHORT = "--no-train --rounds 3 --seeds 2 --workers 1 --policies uni-d --set num_devices=4"


def test_help__names_the_commands_without_importing_any():
    code = """
import sys
from train_fl.command_line import main
try:
    main(["--help"])
finally:
    for heavy in "fl_edge_env joblib numpy pandas policies ray torch".split():
        assert heavy not in sys.modules, heavy
"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert all(f" {name} " in result.stdout for name in ("compare", "leaderboard"))


def test_main__prints_the_version_and_fixes_the_order_of_sets(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from train_fl.command_line import main\nmain()\nprint(hash('text'))\n")
    told = set()
    for seed in ("1", "2", "random"):
        variables = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, str(script), "--version"]
        told.add(subprocess.check_output(command, env=variables, text=True))
    (same,) = told
    assert same.startswith(f"fl-edge {version('fl-edge-env')}\n")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("", "Expected one of {compare, leaderboard}"),
        ("contrast", "command must be one of compare, leaderboard, got 'contrast'"),
        ("comapre --seeds 3", "got 'comapre': did you mean 'compare'?"),
        ("compare --seed 3", "--seeds INT"),
        ("compare --seeds 1 --seeds=2", "--seeds is given twice: give all its values once"),
        ("leaderboard", "Required options"),
        ("compare --rounds many", "--rounds"),
    ],
)
def test_main__refuses_unknown_words_with_status_2(capsys, arguments, fragment):
    with pytest.raises(SystemExit) as raised:
        main(arguments.split())
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert fragment in error
    assert "None" not in error


# The command without pictures, whose drawing takes long.
PLAIN = f"from matplotlib.figure import Figure; Figure.savefig = lambda *_, **__: None\n{MAIN}"


@pytest.mark.parametrize(
    ("words", "status", "errors"),
    [
        ("--help | true", 141, 0),
        (f"{SHORT} --out it | true", 141, 0),
        (f"{SHORT} --out it > /dev/full", 1, 1),
    ],
)
def test_compare__keeps_results_if_its_output_is_lost(tmp_path, words, status, errors):
    shell = f'set -o pipefail; "{sys.executable}" -c "{PLAIN}" compare {words}'
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status, done
    assert done.stderr.count("rror") == errors
    assert (tmp_path / "it" / "summary.csv").exists() == ("--out" in words)


# The command where no package of an extra is installed.
WITHOUT_EXTRAS = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "torchvision", "stable_baselines3", "sklearn", "matplotlib_inline"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from train_fl.command_line import main
try:
    main(["compare"])
except SystemExit as stopped:
    assert stopped.code == 2
{MAIN}
"""


def test_compare__names_a_missing_extra_and_needs_none(tmp_path):
    poor = os.environ | {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONIOENCODING": "ascii",  # in which some signs of a table cannot be written
        "TERM": "dumb",
        "COLUMNS": "0",
    }
    del poor["HOME"]
    result = python(WITHOUT_EXTRAS, "compare", *SHORT.split(), cwd=tmp_path, env=poor)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "status" in result.stdout
    assert "runs " not in result.stdout  # the bar
    assert result.stderr.startswith("error: No module named 'torch': install the extra `train`")
    assert "\nwarning: no sampled decision meets" in result.stderr
    assert list(tmp_path.glob("runs/digits-*/overview.png"))


def test_train_fl__names_are_there_when_they_are_asked_for():
    for name in train_fl.__all__:
        assert getattr(train_fl, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'TrainingWraper'"):
        train_fl.TrainingWraper  # noqa: B018


@pytest.mark.parametrize(
    ("module", "extra"), [("train_fl", "train"), ("train_fl.federation", "federation")]
)
def test_module__names_the_package_that_is_missing(module, extra):
    done = python(f"import sys; sys.modules['torch'] = None; from {module} import make_task")
    assert f"needs the package torch: install the extra `{extra}`" in done.stderr

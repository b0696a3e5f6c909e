"""The command `fl-edge`: its help, what it imports, and where packages are missing."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import train_fl
from tests.support import MAIN, python
from train_fl.command_line import main

COMMANDS = ("compare", "leaderboard")
EXTRAS = ("torch", "torchvision", "stable_baselines3", "sklearn", "matplotlib_inline")


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
    assert all(f" {name} " in result.stdout for name in COMMANDS)


def test_main__fixes_the_order_of_sets(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from train_fl.command_line import main\nmain()\nprint(hash('text'))\n")
    told = set()
    for seed in ("1", "2", "random"):
        variables = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, str(script), "--version"]
        told.add(subprocess.check_output(command, env=variables, text=True))
    assert len(told) == 1


def test_main__prints_the_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"fl-edge {version('fl-edge-env')}\n"


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("", "Expected one of {compare, leaderboard}"),
        ("contrast", "command must be one of compare, leaderboard, got 'contrast'"),
        ("comapre --seeds 3", "got 'comapre': did you mean 'compare'?"),
        ("compare --seed 3", "--seeds INT"),
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


@pytest.mark.parametrize("words", ["--help", "{SHORT} --out it"])
def test_compare__ends_quietly_if_its_reader_has_gone(tmp_path, words):
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN, "compare", *words.format(SHORT=SHORT).split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()  # before anything is printed
        assert b"error" not in process.stderr.read()
    assert process.returncode == 141
    assert (tmp_path / "it" / "summary.csv").exists() == ("--out" in words)


# The command where no package of an extra is installed.
WITHOUT_EXTRAS = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
{MAIN}
"""


def test_compare__names_the_extra_that_is_missing(tmp_path):
    result = python(WITHOUT_EXTRAS, "compare", cwd=tmp_path)
    assert result.returncode == 2
    told = " ".join(result.stderr.split())
    assert told.startswith("error: this needs the package ")
    assert 'pip install -e ".[train]"' in told


SHORT = "--no-train --rounds 3 --seeds 2 --workers 1 --policies uni-d --set num_devices=4"


def test_compare__needs_no_package_of_an_extra_and_no_notebook(tmp_path):
    poor = {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONIOENCODING": "ascii",  # in which some signs of a table cannot be written
        "TERM": "dumb",
        "COLUMNS": "0",
    }
    poor = {name: value for name, value in os.environ.items() if name != "HOME"} | poor
    result = python(WITHOUT_EXTRAS, "compare", *SHORT.split(), cwd=tmp_path, env=poor)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "status" in result.stdout
    assert "runs " not in result.stdout  # the bar
    assert result.stderr.startswith("warning: no sampled decision meets")
    assert list(tmp_path.glob("runs/digits-*/overview.png"))


@pytest.mark.parametrize(
    ("shell", "status"),
    [("{command} >&- 2>&-", 0), ("{command} > /dev/full 2> /dev/full", 1)],
)
def test_compare__keeps_results_whatever_becomes_of_its_output(tmp_path, shell, status):
    command = f'"{sys.executable}" -c "{PLAIN}"'
    done = subprocess.run(
        ["/bin/sh", "-c", shell.format(command=f"{command} compare {SHORT} --out it")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    assert (tmp_path / "it" / "summary.csv").read_text().count("\n") == 3


@pytest.mark.parametrize("flag", ["--policies", "--seeds", "--rounds"])
def test_compare__refuses_a_flag_that_is_given_twice(capsys, flag):
    with pytest.raises(SystemExit) as raised:
        main(["compare", flag, "1", f"{flag}=2"])
    assert raised.value.code == 2
    assert capsys.readouterr().err == f"error: {flag} is given twice: give all its values once\n"


def test_train_fl__names_are_there_when_they_are_asked_for():
    assert set(train_fl.__all__) <= set(dir(train_fl))
    for name in train_fl.__all__:
        assert getattr(train_fl, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'TrainingWraper'"):
        train_fl.TrainingWraper  # noqa: B018


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("train_fl", "torch", "train"), ("train_fl.federation", "torch", "federation")],
)
def test_module__names_the_package_that_is_missing(monkeypatch, module, package, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == "train_fl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = f"needs the package {package}: install the extra `{extra}`"
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module(module).make_task  # noqa: B018

"""A file imports only what stands below it, on the floors that `pyproject.toml` lists."""

from __future__ import annotations

import importlib
import tomllib
from collections import Counter
from importlib.util import find_spec
from types import ModuleType

import grimp
import pytest

from tests.support import ROOT, python

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(*CONTRACTS["root_packages"], cache_dir=None)


def test_contracts__hold():
    # In a process of its own, as it sets up logging and the import path.
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    checked = python(program, "--no-cache", cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file__stands_on_one_floor(graph):
    floors = Counter(
        f"{contract['containers'][0]}.{name.strip()}"
        for contract in CONTRACTS["contracts"]
        if "containers" in contract
        for floor in contract["layers"]
        for name in floor.split("|")
    )
    files = {module for module in graph.modules if not graph.find_children(module)}
    assert floors == Counter(files)


def test_packages__have_no_names_by_accident(graph):
    for name in {module for module in graph.modules if graph.find_children(module)}:
        if name == "train_fl.federation" and find_spec("flwr") is None:
            continue
        package = importlib.import_module(name)
        known = {*getattr(package, "__all__", []), "annotations"}
        others = [n for n in dir(package) if n not in known and not n.startswith("_")]
        assert not [n for n in others if not isinstance(getattr(package, n), ModuleType)], name


def test_no_file__imports_a_package_that_gathers_it(graph):
    # What a package gathers for its users comes after all that it gathers.
    circles = [
        (importer, package)
        for package in graph.modules
        for importer in graph.find_modules_that_directly_import(package)
        if importer.startswith(f"{package}.")
        and graph.chain_exists(importer=package, imported=importer)
    ]
    assert not circles

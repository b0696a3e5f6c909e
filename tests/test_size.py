"""The size of code and pages, in parts rather than lines, so that dense code gains nothing."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from pathlib import Path

import pytest

from fl_edge_env import Scenario

ROOT = Path(__file__).parents[1]
PACKAGES = "fl_edge_env", "policies", "train_fl"
# The most parts of the Python in these folders: statements and expressions.
PARTS = {PACKAGES: 65_000, ("tests",): 64_000, ("examples",): 8_000}
# Solvers apart, the most parts of a function, and the most functions with more than MANY.
LARGEST = 300
MANY = 160
LARGE = 30
SOLVERS = "policies/solvers", "policies/p2", "policies/outcome"
PACKED = 8  # `a, b = c, d` of values that do not belong together, per 1,000 statements
WALRUS = 1  # `:=`, per 1,000 statements
LONGEST = 500  # lines of a file
NAME = 60  # characters of a test's name
WORDS = 15_000  # of README and pages


def files_in(*folders: str) -> list[Path]:
    """All Python files below folders of the repository."""
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All parts of a file."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def counts(node: ast.AST) -> bool:
    """Whether a node is a part: a statement or an expression, but no plain string."""
    plain = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return isinstance(node, (ast.stmt, ast.expr)) and not plain


def parts_of(path: Path) -> int:
    """The statements and expressions of a file, except for docstrings and other plain strings."""
    return sum(map(counts, nodes_of(path)))


@pytest.mark.parametrize("folders", PARTS)
def test_code__keeps_to_its_limit(folders):
    assert sum(map(parts_of, files_in(*folders))) <= PARTS[folders]


def test_functions__are_not_large():
    files = [path.relative_to(ROOT) for path in files_in(*PACKAGES)]
    read = [path for path in files if not path.as_posix().startswith(SOLVERS)]
    sizes = [
        sum(map(counts, ast.walk(node)))
        for path in read
        for node in nodes_of(ROOT / path)
        if isinstance(node, ast.FunctionDef)
    ]
    assert max(sizes) <= LARGEST
    assert sum(size > MANY for size in sizes) <= LARGE


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_lines__say_one_thing(folder):
    nodes = [node for path in files_in(folder) for node in nodes_of(path)]
    thousands = sum(isinstance(node, ast.stmt) for node in nodes) / 1000
    assert sum(isinstance(node, ast.NamedExpr) for node in nodes) <= WALRUS * thousands
    pairs = [(node.targets[0], node.value) for node in nodes if isinstance(node, ast.Assign)]
    packed = [pair for pair in pairs if all(isinstance(side, ast.Tuple) for side in pair)]
    assert len(packed) <= PACKED * thousands


def test_names_of_tests__are_short():
    text = "\n".join(path.read_text(encoding="utf-8") for path in files_in("tests"))
    names = re.findall(r"^def (test_\w+)", text, re.M)
    assert not [name for name in names if len(name) > NAME]


def test_scenario__has_no_field_too_many():
    assert len(dataclasses.fields(Scenario)) <= 32


def test_files__are_not_long():
    lines = {
        path: len(path.read_bytes().splitlines()) for path in files_in(*PACKAGES, "tests", "docs")
    }
    assert not [path for path, count in lines.items() if count > LONGEST]


def test_pages__are_not_long():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= WORDS

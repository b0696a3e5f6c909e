"""The size of code and pages: a room that outgrows its limit pays for what is new."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fl_edge_env import Scenario

ROOT = Path(__file__).parents[1]
# The most lines of Python in each room, all folders below it included.
ROOMS = {
    "fl_edge_env": 5_185,
    "policies": 8_450,
    "policies/benchmark": 3_840,
    "train_fl": 4_610,
    "docs": 313,
    "tests": 13_000,
}
LONGEST = 500  # lines of a file
WORDS = 14_000  # of README and pages


def lines_of(room: str) -> dict[str, int]:
    """The lines of each file of Python in a room, by its path."""
    files = (ROOT / room).rglob("*.py")
    return {
        path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines()) for path in files
    }


@pytest.mark.parametrize("room", ROOMS)
def test_room__keeps_to_its_limit(room):
    assert sum(lines_of(room).values()) <= ROOMS[room]


def test_scenario__has_no_field_too_many():
    assert len(dataclasses.fields(Scenario)) <= 32


def test_files__are_not_long():
    lines = {path: count for room in ROOMS for path, count in lines_of(room).items()}
    assert not [path for path, count in lines.items() if count > LONGEST]


def test_pages__are_not_long():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= WORDS

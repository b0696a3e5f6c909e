"""For all tests: which examples are drawn, a process for each core, no windows.

By default each property sees the same few examples in every run. Where slow tests may run, as with
``pytest -m "slow or hypothesis"``, it sees many random ones, and a failure says how to repeat it.
"""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=20)
settings.register_profile(
    "many", deadline=None, derandomize=False, max_examples=300, print_blob=True
)
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples, unless ``--hypothesis-profile`` does."""
    slow = "not slow" not in config.getoption("markexpr")
    settings.load_profile("many" if slow else "repeatable")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name what would be long by its argument: some tests are given files of 64 MiB."""
    return argname if isinstance(val, (str, bytes)) and len(val) > 60 else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """All cores, but one process where benchmarks may run: they measure."""
    return 0 if re.search(r"(?<!not )\bbenchmark\b", config.getoption("markexpr")) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """One thread in each of several processes, which would wait for each other otherwise."""
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

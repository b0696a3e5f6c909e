"""For all tests: the same examples in every run, a process for each core, windows unseen."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name what would be long by its argument: some tests are given files of 64 MiB."""
    return argname if isinstance(val, (str, bytes)) and len(val) > 60 else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """All cores, but one process where soak tests or benchmarks may run: they measure."""
    left_out = re.findall(r"\bnot (slow|benchmark)\b", config.getoption("markexpr"))
    return None if {*left_out} == {"slow", "benchmark"} else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """One thread in each of several processes, which would wait for each other otherwise."""
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

"""Benchmarks report ratios of two routes measured in one process; none fails for being slow."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_lines: list[str] = []


@pytest.fixture
def report() -> Callable[[str], None]:
    """Add a line to the summary at the end of the run."""
    return _lines.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _lines:
        terminalreporter.section("ratios")
        for line in _lines:
            terminalreporter.write_line(line)


@pytest.fixture
def seconds() -> Callable[..., float]:
    """Mean time of a call after one to warm up, in the fastest of the repeats.

    What else the machine does only adds to it.
    """

    def measure(routine: Callable[[], object], calls: int, repeats: int = 7) -> float:
        routine()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(calls):
                routine()
            times.append((time.perf_counter() - start) / calls)
        return min(times)

    return measure

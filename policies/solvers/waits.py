"""Announce what takes long, so that nobody waits without knowing for what."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import current_process
from threading import Event, Thread
from typing import Any

from fl_edge_env import Scenario

# Seconds after which standard error shows what is being computed.
_PATIENCE = 2.0


def console_options() -> dict[str, Any]:
    """Options of a rich `Console`: no control codes in a notebook, which only seems a terminal.

    Jupyter's kernels set this variable, and their commands inherit it.
    """
    notebook = "JPY_PARENT_PID" in os.environ
    return {"force_terminal": False, "force_jupyter": False} if notebook else {}


@cache
def _announce(what: str) -> None:
    """Print a line once; among several workers, only in the first."""
    if current_process().name in ("MainProcess", "LokyProcess-1"):
        # On a terminal, wide enough to cover another process's progress bar.
        line = f"\r{what:80}" if sys.stderr.isatty() and not console_options() else what
        print(line, file=sys.stderr, flush=True)


@contextmanager
def announced(
    what: str, scenario: Scenario | None = None, so_far: Callable[[], object] = lambda: True
) -> Iterator[None]:
    """Print on standard error what is being computed if it takes longer than two seconds.

    Only once `so_far` returns something true.
    """
    if scenario is not None:
        what += f" (N = {scenario.num_devices:,}, K = {scenario.cohort_size:,})"
    done = Event()

    def watch() -> None:
        while not done.wait(_PATIENCE):
            if so_far():
                _announce(what)
                return

    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()

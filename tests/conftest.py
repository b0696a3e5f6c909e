"""For all tests: examples are the same in every run, windows open where nobody sees them."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name what would be long by its argument: some tests are given files of 64 MiB."""
    return argname if isinstance(val, (str, bytes)) and len(val) > 60 else None

"""Property tests draw the same examples in every run; windows open where nobody sees them."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

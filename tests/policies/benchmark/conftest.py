"""Commands whose pictures nobody looks at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure


@pytest.fixture
def plain_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the numbers of a picture's lines in its place: its drawing takes most of a command."""

    def save(figure: Figure, path: Path, **_: object) -> None:
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        path.write_bytes(b"".join(np.asarray(line.get_xydata()).tobytes() for line in lines))

    monkeypatch.setattr(Figure, "draw_without_rendering", lambda _: None)
    monkeypatch.setattr(Figure, "savefig", save)

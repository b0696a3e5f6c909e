"""For all tests: which examples are drawn, a process for each core, no windows, no pictures.

By default each property sees the same few examples in every run. With ``pytest -m slow`` it sees
many random ones, and a failure says how to repeat it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from matplotlib.figure import Figure

from fl_edge_env.files import user_cache

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=20)
settings.register_profile(
    "many", deadline=None, derandomize=False, max_examples=300, print_blob=True
)
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
# Compile the solvers once, also for tests whose user has an empty cache.
os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache()))


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples, unless ``--hypothesis-profile`` does."""
    settings.load_profile("many" if _slow_may_run(config) else "repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A property that sees many examples is slow."""
    for item in items if _slow_may_run(config) else []:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("slow")


def _slow_may_run(config: pytest.Config) -> bool:
    return "not slow" not in config.getoption("markexpr")


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


@pytest.fixture
def plain_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the numbers of a picture's lines in its place: its drawing takes most of a command."""

    def save(figure: Figure, path: Path, **_: object) -> None:
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        path.write_bytes(b"".join(np.asarray(line.get_xydata()).tobytes() for line in lines))

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The pictures of a test, of which no file is written."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the solvers share even the smallest batch among four threads."""
    monkeypatch.setattr("policies.solvers.inputs._WORTH_A_THREAD", 1)
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 4)


@pytest.fixture(scope="session", autouse=True)
def short_searches() -> Iterator[tuple[int, tuple[int, ...]]]:
    """Search for prices in few rounds: any prices give valid bounds. Yields the usual numbers."""
    from policies.benchmark import bounds, setting
    from policies.outcome import prices

    usual = bounds._PRICE_ROUNDS, prices._STAGES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_PRICE_ROUNDS", 50)
        patch.setattr(prices, "_STAGES", (20,))
        patch.setattr(setting, "_ROUNDS", 5)  # to look for what seeds do not determine
        yield usual


@pytest.fixture
def whole_searches(
    short_searches: tuple[int, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Search for prices as long as users do."""
    from policies.benchmark import bounds
    from policies.outcome import prices

    monkeypatch.setattr(bounds, "_PRICE_ROUNDS", short_searches[0])
    monkeypatch.setattr(prices, "_STAGES", short_searches[1])
    prices._KNOWN.clear()
    yield
    prices._KNOWN.clear()


@pytest.fixture(autouse=True)
def own_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's other processes run the files that it has loaded, not those of the tests before."""
    monkeypatch.setattr("policies.user_code._LOADED", {})


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of checkpoints, in a cache of the user's that is empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "fl-edge"

"""The trained agents in `examples/agents`, which no test trains."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Scenario
from fl_edge_env.tasks import TASKS, normalized_score
from policies import evaluate, make_policy
from tests.support import EXAMPLES

FOLDER = EXAMPLES / "agents"
ROWS = re.findall(
    r"^\| ([\w-]+\.zip) \| (\S+) \| (\S+) \| \S+ \| (\S+) \|",
    (FOLDER / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_agents__are_all_listed_and_small():
    files = [*FOLDER.glob("*.zip")]
    assert sorted(file.name for file in files) == sorted(name for name, *_ in ROWS)
    assert sum(file.stat().st_size for file in files) <= 350_000


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 cannot read files of NumPy 2")
@pytest.mark.usefixtures("whole_searches")
@pytest.mark.parametrize(
    ("file", "system", "time", "score"),
    [pytest.param(*row, marks=[pytest.mark.slow] * (row[1] != "digits")) for row in ROWS],
)
def test_agent__reaches_its_listed_score(file, system, time, score):
    frozen = system.startswith("FLEdge")
    scenario = gym.make(system).unwrapped.scenario if frozen else Scenario.preset(system)
    table = evaluate([make_policy(str(FOLDER / file), scenario)], scenario, seeds=range(5))
    assert set(table["status"]) == {"ok"}
    assert table["priced_time"].mean() == pytest.approx(float(time), rel=1e-3)
    if system in TASKS:
        reached = normalized_score(system, table[TASKS[system].measure].mean())
        assert reached == pytest.approx(float(score), abs=2e-3)

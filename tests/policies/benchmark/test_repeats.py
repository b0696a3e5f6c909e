"""Results depend on seeds alone, or a warning says what else they depend on."""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fl_edge_env import Scenario
from policies import evaluate, make_policy
from policies.benchmark.run import Run, run_key
from policies.benchmark.runner import play_runs

SCENARIO = Scenario.digits(num_devices=4, num_rounds=3, lambda_=1.0, V=1.0)
HEAD = """
import random
import numpy as np, torch
from fl_edge_env import Allocation
from policies import UniS

class Config:
    level = 0.0

CONFIG = Config()
RNG = np.random.default_rng(0)

class Mine(UniS):
    def __init__(self, scenario):
        super().__init__(scenario)
        self.network = torch.nn.Linear(1, 1)
        self.config, self.old = CONFIG, 0.0

    def decide(self, observation):
        share = self.share(observation["queue"])
        f = self.scenario.f_min + share * (self.scenario.f_max - self.scenario.f_min)
        return Allocation(f, self.scenario.p_max, q=1 / 4)

"""
GLOBAL = """
    def reset(self, seed):
        self.other = torch.nn.Linear(1, 1)

    def share(self, _):
        drawn = random.random() + np.random.rand() + torch.rand(()).item()
        return (drawn + abs(self.network.bias.item()) + abs(self.other.bias.item())) / 5
"""


LATE = """n = 0

    def share(self, queue):
        self.n += 1
        return 0.5 if self.n < 20 else queue.max() / (1 + queue.max())
"""


def runs_of(folder: Path, code: str) -> list[Run]:
    """Runs of two seeds of the class Mine in a new file that ends with this code."""
    file = folder / "mine.py"
    file.write_text(HEAD + code)
    policy = make_policy(f"{file}:Mine", SCENARIO)
    return [Run("Mine", policy, SCENARIO, (seed,)) for seed in (0, 1)]


def test_play_runs__global_generators_are_seeded(tmp_path):
    runs = runs_of(tmp_path, GLOBAL)
    before = random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())  # noqa: NPY002
    first = play_runs(runs, folder=tmp_path / "runs")
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert before == (
        random.getstate(),
        torch.get_rng_state().tolist(),
        str(np.random.get_state()),  # noqa: NPY002
    )
    for others in play_runs(runs[::-1])[::-1], play_runs(runs, workers=2):
        for one, other in zip(first, others, strict=True):
            pd.testing.assert_frame_equal(one.rounds, other.rounds)
    assert not first[0].rounds.reward.equals(first[1].rounds.reward)
    again = make_policy(f"{tmp_path / 'mine.py'}:Mine", SCENARIO)
    assert run_key(Run("Mine", again, SCENARIO, (0,))) == run_key(runs[0])


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def share(self, _): return RNG.random()", "may be wrong.* shares a Generator of random"),
        (
            "def share(self, _): return np.random.default_rng().random()",
            "its seed does not determi",
        ),
        ("def share(self, _): return np.random.rand()", "its seed does not determine"),
        (LATE, "for a batch .* than for each alone"),
        ("def reset(self, _): self.rng = np.random.default_rng()", "reset draws random numbers"),
        (
            "def share(self, _):\n        self.config.level += 0.1\n        return CONFIG.level",
            "may be wrong.* it changes a Config that its code also uses",
        ),
    ],
)
def test_evaluate__warns_of_what_seeds_do_not_determine(tmp_path, code, why):
    (run, _) = runs_of(tmp_path, f"    def share(self, _): return 0.5\n\n    {code}\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate([run.policy], SCENARIO, [0, 1], gaps=False)
    assert any(re.search(why, str(one.message)) for one in caught)


def test_play_runs__keeps_nothing_of_a_helper_imported_later(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("SHARE = 0.5\n")
    code = (
        "    def share(self, _):\n        from helper_of_mine import SHARE\n        return SHARE\n"
    )
    with pytest.warns(RuntimeWarning) as caught:
        play_runs(runs_of(tmp_path, code), folder=tmp_path / "runs")
    assert "it imports helper_of_mine while it runs" in str(caught[0].message)
    assert not list((tmp_path / "runs").iterdir())


LAZY = """
    import collections
    first = None

    def reset(self, _):
        self.counts = [0]
        self.library = self.collections.deque([self.counts])

    def share(self, queue):
        self.counts[0] += 1
        if Mine.first is None and self.counts[0] == 3:
            Mine.first = queue[0].max()
        return 1 / (1 + (Mine.first or 1))
"""


def test_evaluate__is_not_changed_by_its_own_checks(tmp_path):
    (run, _) = runs_of(tmp_path, LAZY)
    with pytest.warns(RuntimeWarning, match="keeps values for the next run"):
        table = evaluate([run.policy], SCENARIO, [5], gaps=False)
    type(run.policy).first = None
    played = replace(run, seeds=(5,)).play()
    assert table["total_time"].iloc[0] == played.rounds["round_time"].sum()

"""Opportunistic and LROA in suite-1 on drawn seeds: ``pytest -m benchmark -s`` prints means."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from policies import evaluate, make_policy
from train_fl.commands.leaderboard_file import find_leaderboard, read_leaderboard

SUITE = {one.name: one.options for one in read_leaderboard(find_leaderboard(Path("suite-1"))[0])}


@pytest.mark.benchmark
@pytest.mark.usefixtures("whole_searches")
@pytest.mark.parametrize("setting", [name for name in SUITE if not name.endswith("trained")])
def test_suite_1__opportunistic_is_ok_and_near_the_bound(setting):
    scenario = SUITE[setting].make_scenario()
    halved = make_policy("lroa", scenario.replace(mu=0.5))
    halved.name = "LROA, mu = 0.5"
    policies = [make_policy("opportunistic", scenario), make_policy("lroa", scenario), halved]
    first = secrets.randbelow(2**62)
    runs = evaluate(policies, scenario, range(first, first + 10)).groupby("policy")
    means = runs.agg({"status": "first", "outcome_gap": "mean", "priced_time": "mean"})
    means["over LROA's"] = means["priced_time"] / means["priced_time"]["LROA"]
    print(f"\n{setting}, seeds from {first}\n{means.round(3)}")
    assert means["status"]["Opportunistic"] == "ok"
    assert scenario.csi != "full" or means["outcome_gap"]["Opportunistic"] <= 0.025

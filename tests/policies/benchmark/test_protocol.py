"""The protocol's table on runs made up by hand, and the choice by validation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, evaluate
from policies.benchmark.protocol import (
    TABLE_WIDTH,
    TEST_SEEDS,
    TUNING,
    VALIDATION_SEEDS,
    Cost,
    constrained_rank,
    decision_time,
    method_table,
    printed_table,
    tuned,
    tuning_candidates,
)
from policies.learning.views import FIRST_EPISODE

BOUNDS = pd.DataFrame({"policy": "bound", "seed": [0, 0, 1, 1], "bound": [8.0, 12.0, 9.0, 11.0]})


def rounds(policy: str, seed: int, penalty: list[float], worst: float, **last: float) -> dict:
    """Rounds of a run with a penalty each and what stands in the last."""
    count = len(penalty)
    return {
        "policy": [policy] * count,
        "seed": [seed] * count,
        "penalty": penalty,
        "priced_objective": np.add(penalty, last.get("price", 0.0)),
        "worst_energy_ratio": [9.0] * (count - 1) + [worst],
        "over_budget": [0.9] * (count - 1) + [last.get("over", 0.0)],
        "max_queue": [last.get("queue", 1.0)] + [0.5] * (count - 1),
    }


def frame(*runs: dict) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(run) for run in runs], ignore_index=True)


def made_up() -> pd.DataFrame:
    return frame(
        rounds("LROA", 0, [11.0, 13.0], 1.01),
        rounds("LROA", 1, [12.0, 16.0], 1.02),
        rounds("Uni-D", 0, [18.0, 22.0], 1.03, queue=7.0),
        rounds("Uni-D", 1, [28.0, 32.0], 1.0, queue=8.0, over=0.5),
        rounds("A 0", 0, [11.0, 11.0], 1.02),
        rounds("A 0", 1, [14.0, 14.0], 1.0),
        rounds("A 1", 1, [20.0, 20.0], 1.0),  # seeds in another order
        rounds("A 1", 0, [20.0, 20.0], 1.0),
    )


def test_method_table__by_hand():
    methods = {"LROA": ["LROA"], "Uni-D": ["Uni-D"], "A": ["A 0", "A 1"]}
    table = method_table(made_up(), methods, BOUNDS).set_index("method")
    # Uni-D has 20 and 30, so the span to the bound is 10 and 20.
    assert table.loc["Uni-D", "score"] == 0.0
    assert table.loc["LROA", "score"] == pytest.approx((8 / 10 + 16 / 20) / 2)
    # Scores 0.9, 0.8 and 0, 0.5.
    assert table.loc["A", "score"] == pytest.approx(0.55)
    assert table.loc["A", "trainings"] == "0.850 0.250"
    assert table.loc["A", "score_low"] < 0.55 < table.loc["A", "score_high"]
    assert table.loc["A", "penalty"] == pytest.approx((11 + 14 + 20 + 20) / 4)
    # Against LROA's 12 and 14: better once, equal once, worse twice.
    assert table.loc["A", "better"] == pytest.approx(1.5 / 4)
    assert table.loc["LROA", "better"] == 0.5
    assert table.loc["Uni-D", "largest_queue"] == 8.0
    assert table.loc["Uni-D", "over_budget"] == 0.25
    assert table["worst_energy_ratio"].to_dict() == {"LROA": 1.02, "Uni-D": 1.03, "A": 1.02}
    assert table["allowed"].to_dict() == {"LROA": True, "Uni-D": False, "A": True}


def test_method_table__scores_by_the_price_of_what_is_spent_beyond_the_budget():
    runs = frame(
        rounds("LROA", 0, [12.0], 1.01),
        rounds("Uni-D", 0, [20.0], 1.0),
        rounds("A", 0, [9.0], 1.5, price=4.0),  # below the bound, at a price
    )
    table = method_table(runs, {"A": ["A"], "LROA": ["LROA"]}, BOUNDS).set_index("method")
    assert table.loc["A", "score"] == pytest.approx((20 - 13) / (20 - 10))
    assert table.loc["A", "penalty"] == 9.0
    assert table.index.tolist() == ["LROA", "A"]  # which spends more than LROA


def test_constrained_rank__energy_comes_first():
    # Penalty and energy: the first two are within what is allowed, then the less over.
    order = [(8.0, 1.1 + 1e-12), (9.0, 1.0), (5.0, 1.15), (1.0, 1.2)]
    shuffled = [order[2], order[0], order[3], order[1]]
    assert sorted(shuffled, key=lambda run: constrained_rank(*run, 1.1)) == order


def test_method_table__within_budget_a_device_may_use_more_than_lroas():
    data = made_up().assign(worst_energy_ratio=lambda table: table["worst_energy_ratio"] / 10)
    data.loc[data["policy"] == "A 0", "worst_energy_ratio"] = 0.99
    table = method_table(data, {"LROA": ["LROA"], "A": ["A 0"]}, BOUNDS)
    assert table["allowed"].all()


def test_method_table__of_a_method_depends_neither_on_the_others_nor_on_the_order_of_runs():
    ours = {"A": ["A 0", "A 1"]}
    shuffled = pd.concat([group for _, group in list(made_up().groupby(["policy", "seed"]))[::-1]])
    alone, among, other = (
        method_table(data, methods, BOUNDS, seed=1).set_index("method").loc["A"]
        for data, methods in (
            (made_up(), ours),
            (made_up(), {"LROA": ["LROA"], "Uni-D": ["Uni-D"]} | ours),
            (shuffled, ours),
        )
    )
    pd.testing.assert_series_equal(alone, among)
    pd.testing.assert_series_equal(alone, other)
    # The seeds of training, validation and test are apart.
    assert set(TEST_SEEDS).isdisjoint(VALIDATION_SEEDS)
    assert max(*TEST_SEEDS, *VALIDATION_SEEDS) < FIRST_EPISODE


def test_tuned__is_the_best_of_each_kind_within_lroas_energy():
    scenario = Scenario.digits(num_devices=5)
    candidates = tuning_candidates(scenario)
    assert len(candidates) == 2 * len(TUNING) == 24
    assert len({policy.name for policy in candidates}) == 24
    assert {"LROA", "Uni-D"} < {policy.name for policy in candidates}
    for policy in candidates:
        if policy.name == "LROA μ×0.7 ν×0.8":
            assert policy.scenario == scenario.replace(mu=0.7, nu=0.8e5)
    runs = [rounds(policy.name, 0, [20.0], 1.0) for policy in candidates]
    special = {"LROA μ×0.7 ν×0.8": (5.0, 1.0), "LROA μ×0.5 ν×1": (1.0, 1.01)}
    special |= {"Uni-D μ×1.4 ν×0.5": (19.0, 0.9)}
    assert {p.name for p in tuned(candidates, frame(*runs))} == {"LROA", "Uni-D"}  # no better
    for run in runs:
        if run["policy"][0] in special:
            run["penalty"][0], run["worst_energy_ratio"][0] = special[run["policy"][0]]
    best = {policy.name for policy in tuned(candidates, frame(*runs))}
    assert best == {"LROA μ×0.7 ν×0.8", "Uni-D μ×1.4 ν×0.5"}


def test_tuning__decides_by_other_weights_but_is_judged_by_the_scenarios():
    scenario = Scenario.cifar10(num_devices=20, num_samples=400, num_rounds=300)
    candidates = {policy.name: policy for policy in tuning_candidates(scenario)}
    names = ["LROA", "LROA μ×0.5 ν×1", "LROA μ×1 ν×0.5"]
    table = evaluate([candidates[name] for name in names], scenario, range(3))
    penalty = table.groupby("policy")["mean_objective"].mean()
    error = table.groupby("policy")["sampling_error"].mean()
    energy = table.groupby("policy")["worst_energy_ratio"].mean()
    assert error["LROA μ×0.5 ν×1"] > error["LROA"]  # which it weighs less
    assert penalty["LROA μ×0.5 ν×1"] > penalty["LROA"]
    assert energy["LROA μ×1 ν×0.5"] < energy["LROA"]


def test_table__has_what_a_reader_needs():
    methods = {name: [name] for name in ("Uni-D", "LROA")} | {"A": ["A 0", "A 1"]}
    table = method_table(made_up(), methods, BOUNDS)
    scenario = Scenario.digits(num_devices=10)
    seconds = decision_time(LROA(scenario), scenario, 3)
    assert 0 < seconds < 1
    console = Console(width=TABLE_WIDTH, record=True)
    costs = {"LROA": Cost(seconds), "Uni-D": Cost(seconds), "A": Cost(0.00125, 2, 40_000, 2.34)}
    console.print(printed_table(table, costs, "digits"))
    rows = {line.split()[0]: line for line in console.export_text().splitlines() if line.strip()}
    for told in ("1.25 ms", "2 x 2.3 min", "0.25 to 0.85"):
        assert told in rows["A"]
    assert "0.000 [0.000, 0.000]" in rows["Uni-D"]
    assert [name for name in rows if name in methods] == ["LROA", "A", "Uni-D"]  # best first

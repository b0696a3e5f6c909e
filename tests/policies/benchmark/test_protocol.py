"""The protocol's table on runs made up by hand, and the choice by validation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, evaluate
from policies.benchmark.protocol import (
    RULES,
    STEPS,
    TABLE_WIDTH,
    TUNING,
    VALIDATION_SEEDS,
    analytic_policies,
    constrained_rank,
    decision_time,
    method_table,
    printed_table,
    run_table,
    tuned,
    tuning_candidates,
)
from policies.learning.views import FIRST_EPISODE

PENALTY, OUTCOME = RULES["penalty"], RULES["outcome"]
ONE = pd.Series([10.0, 10.0], index=[0, 1])


def rounds(policy: str, seed: int, penalty: list[float], worst: float, **last: float) -> dict:
    """Rounds of a run with a penalty each, the price of its energy, and what the last has."""
    count = len(penalty)
    return {
        "policy": [policy] * count,
        "seed": [seed] * count,
        "elapsed_time": [last.get("time", 100.0) * (i + 1) / count for i in range(count)],
        "penalty": penalty,
        "priced_objective": np.add(penalty, last.get("price", 0.0)),
        "worst_energy_ratio": [9.0] * (count - 1) + [worst],
        "influence": [0.0] * (count - 1) + [last.get("influence", 1.0)],
        "status": ["ok"] * count,
    }


def frame(*runs: dict) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(run) for run in runs], ignore_index=True)


def made_up() -> pd.DataFrame:
    return frame(
        rounds("LROA", 0, [11.0, 13.0], 1.01),
        rounds("LROA", 1, [12.0, 16.0], 1.02),
        rounds("Uni-D", 0, [18.0, 22.0], 1.03, time=200.0, influence=0.8),
        rounds("Uni-D", 1, [28.0, 32.0], 1.0, time=300.0, influence=0.7),
        rounds("A 0", 0, [11.0, 11.0], 1.02),
        rounds("A 0", 1, [14.0, 14.0], 1.0),
        rounds("A 1", 1, [20.0, 20.0], 1.0),  # seeds in another order
        rounds("A 1", 0, [20.0, 20.0], 1.0),
    )


def table_of(data: pd.DataFrame, methods: dict[str, list[str]], **options) -> pd.DataFrame:
    table = method_table(run_table(data, PENALTY), methods, ONE, "LROA", PENALTY, **options)
    return table.set_index("method")


def test_method_table__by_hand():
    methods = {"LROA": ["LROA"], "Uni-D": ["Uni-D"], "A": ["A 0", "A 1"]}
    table = table_of(made_up(), methods)
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
    assert table.loc["Uni-D", "total_time"] == 250.0
    assert table.loc["Uni-D", "influence"] == pytest.approx(0.75)
    assert table["worst_energy"].to_dict() == {"LROA": 1.02, "Uni-D": 1.03, "A": 1.02}
    assert table["allowed"].to_dict() == {"LROA": True, "Uni-D": False, "A": True}


def test_method_table__score_and_better_by_the_price_of_what_is_spent_beyond_the_budget():
    runs = frame(
        rounds("LROA", 0, [12.0], 1.01),
        rounds("LROA", 1, [14.0], 1.01),
        rounds("Uni-D", 0, [20.0], 1.0),
        rounds("Uni-D", 1, [30.0], 1.0),
        rounds("A", 0, [9.0], 1.5, price=4.0),  # below the bound and LROA, at a price
        rounds("A", 1, [13.0], 1.0, price=3.0),
    )
    table = table_of(runs, {"A": ["A"], "LROA": ["LROA"]})
    # Costs are 13 and 16, where LROA has 12 and 14: never better, though every penalty is.
    assert table.loc["A", "score"] == pytest.approx((7 / 10 + 14 / 20) / 2)
    assert table.loc["A", "better"] == 0.0
    assert table.loc["A", "penalty"] == 11.0
    assert table.index.tolist() == ["LROA", "A"]  # which spends more than LROA


def outcome(policy: str, seed: int, cost: float, worst: float, status: str = "ok") -> dict:
    """A round of a run by its priced outcome."""
    return {
        "policy": [policy],
        "seed": [seed],
        "elapsed_time": [cost],
        "penalty": [np.nan],
        "priced_outcome": [cost],
        "worst_spent_ratio": [worst],
        "influence": [1.0],
        "status": [status],
    }


def test_method_table__of_the_outcome_by_hand():
    zero = OUTCOME.zero
    runs = frame(
        outcome(zero, 0, 40.0, 3.0),
        outcome(zero, 1, 60.0, 3.0),
        outcome("Opportunistic", 0, 20.0, 1.2),
        outcome("Opportunistic", 1, 20.0, 1.2),
        outcome("A 0", 0, 10.0, 1.4),
        outcome("A 0", 1, 30.0, 1.4),
        outcome("A 1", 0, 20.0, 1.4, "leaves out"),
        outcome("A 1", 1, 10.0, 1.4, "leaves out"),
    )
    methods = {zero: [zero], "Opportunistic": ["Opportunistic"], "A": ["A 0", "A 1"]}
    one = pd.Series([20.0, 20.0], index=[0, 1])
    table = method_table(run_table(runs, OUTCOME), methods, one, "Opportunistic", OUTCOME)
    table = table.set_index("method")
    # Scores 1.5 and 0.75, 1 and 1.25; against 20 better twice, equal and worse once.
    assert table["score"].to_dict() == pytest.approx({zero: 0.0, "Opportunistic": 1.0, "A": 1.125})
    assert table.loc["A", "better"] == pytest.approx(2.5 / 4)
    assert table.loc["A", "status"] == "1 ok, 1 leaves out"
    # Who is not ok stands below; energy has its price, and no limit of its own.
    assert table.index.tolist() == ["Opportunistic", zero, "A"]
    assert table["penalty"].isna().all()


def test_constrained_rank__energy_comes_first():
    # Penalty and energy: the first two are within what is allowed, then the less over.
    order = [(8.0, 1.1 + 1e-12), (9.0, 1.0), (5.0, 1.15), (1.0, 1.2)]
    shuffled = [order[2], order[0], order[3], order[1]]
    assert sorted(shuffled, key=lambda run: constrained_rank(*run, 1.1)) == order


def test_method_table__within_budget_a_device_may_use_more_than_lroas():
    data = made_up().assign(worst_energy_ratio=lambda table: table["worst_energy_ratio"] / 10)
    data.loc[data["policy"] == "A 0", "worst_energy_ratio"] = 0.99
    table = table_of(data, {"LROA": ["LROA"], "A": ["A 0"]})
    assert table["allowed"].all()


def test_method_table__of_a_method_depends_neither_on_the_others_nor_on_the_order_of_runs():
    ours = {"A": ["A 0", "A 1"]}
    shuffled = pd.concat([group for _, group in list(made_up().groupby(["policy", "seed"]))[::-1]])
    alone, among, other = (
        table_of(data, methods, seed=1).loc["A"]
        for data, methods in (
            (made_up(), ours),
            (made_up(), {"LROA": ["LROA"], "Uni-D": ["Uni-D"]} | ours),
            (shuffled, ours),
        )
    )
    pd.testing.assert_series_equal(alone, among)
    pd.testing.assert_series_equal(alone, other)
    # The seeds of training, validation and test are apart.
    assert max(rules.seeds for rules in RULES.values()) <= VALIDATION_SEEDS[0]
    assert VALIDATION_SEEDS[-1] < FIRST_EPISODE


def test_tuned__is_the_best_of_each_kind_within_lroas_energy():
    scenario = Scenario.digits(num_devices=5)
    candidates = tuning_candidates(scenario, "penalty")
    assert len(candidates) == 2 * len(TUNING) == 24
    assert len({policy.name for policy in candidates}) == 24
    assert {"LROA", "Uni-D"} < {policy.name for policy in candidates}
    for policy in candidates:
        if policy.name == "LROA μ×0.7 ν×0.8":
            assert policy.scenario == scenario.replace(mu=0.7, nu=0.8e5)
    runs = [rounds(policy.name, 0, [20.0], 1.0) for policy in candidates]
    special = {"LROA μ×0.7 ν×0.8": (5.0, 1.0), "LROA μ×0.5 ν×1": (1.0, 1.01)}
    special |= {"Uni-D μ×1.4 ν×0.5": (19.0, 0.9)}
    kept = tuned(candidates, frame(*runs), PENALTY)
    assert {policy.name for policy in kept} == {"LROA", "Uni-D"}  # no better
    for run in runs:
        if run["policy"][0] in special:
            run["penalty"][0], run["worst_energy_ratio"][0] = special[run["policy"][0]]
    best = {policy.name for policy in tuned(candidates, frame(*runs), PENALTY)}
    assert best == {"LROA μ×0.7 ν×0.8", "Uni-D μ×1.4 ν×0.5"}


@pytest.mark.parametrize("csi", ["full", "participants"])
def test_tuning__of_the_outcome_is_that_of_the_steps(csi):
    scenario = Scenario.digits(num_devices=5, csi=csi)
    names = [policy.name for policy in analytic_policies(scenario, "outcome")]
    assert {"LROA", OUTCOME.zero, "Opportunistic"} == set(names)
    candidates = tuning_candidates(scenario, "outcome")
    jumps = [policy._participation_step for policy in candidates]
    assert np.allclose(jumps, np.multiply(jumps[0], list(STEPS)), rtol=1e-9, atol=0)
    # The least cost is the best, whatever it takes of energy.
    costs = zip(candidates, (3.0, 2.0, 1.0, 4.0), strict=True)
    runs = [outcome(policy.name, 0, cost, 5.0 - cost) for policy, cost in costs]
    assert tuned(candidates, frame(*runs), OUTCOME) == [candidates[2]]


def test_tuning__decides_by_other_weights_but_is_judged_by_the_scenarios():
    scenario = Scenario.cifar10(num_devices=20, num_samples=400, num_rounds=300)
    candidates = {policy.name: policy for policy in tuning_candidates(scenario, "penalty")}
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
    table = table_of(made_up(), methods).reset_index()
    console = Console(width=TABLE_WIDTH, record=True)
    console.print(printed_table(table, "digits", "LROA", PENALTY))
    rows = {line.split()[0]: line for line in console.export_text().splitlines() if line.strip()}
    assert "0.25 to 0.85" in rows["A"]
    assert "0.000 [0.000, 0.000]" in rows["Uni-D"]
    assert [name for name in rows if name in methods] == ["LROA", "A", "Uni-D"]  # best first


def test_decision_time__is_that_of_a_decision():
    assert 0 < decision_time(LROA(Scenario.digits(num_devices=10)), 3) < 1

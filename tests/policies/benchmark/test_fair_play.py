"""Cheats that gain nothing where policies are compared."""

from __future__ import annotations

import pandas as pd

from fl_edge_env import Scenario
from policies import UniS, evaluate
from tests.policies.cheats import Prophet, Writer

SCENARIO = Scenario.cifar10(num_rounds=60)
SEEDS = range(3)


class Told(Prophet):
    """Is told the environment's seeds."""

    def reset(self, _):
        super().reset(SEEDS)


def total_times(*policies) -> pd.DataFrame:
    """The times [s], a row for each seed and a column for each policy."""
    runs = evaluate([*policies, UniS(SCENARIO)], SCENARIO, SEEDS, gaps=False)
    return runs.pivot(index="seed", columns="policy", values="total_time")


def test_evaluate__a_policys_seed_does_not_tell_who_will_be_drawn():
    runs = evaluate([Told(SCENARIO)], SCENARIO, SEEDS, gaps=False)
    assert runs["worst_energy_ratio"].max() < 0.6
    times = total_times(Told(SCENARIO), Prophet(SCENARIO))
    assert (times["Told"] < 0.8 * times["Uni-S"]).all()
    assert (times["Prophet"] > times["Uni-S"]).all()


def test_evaluate__who_writes_into_what_it_is_given_changes_nothing():
    runs = evaluate([Writer(SCENARIO), UniS(SCENARIO)], SCENARIO, SEEDS, gaps=False)
    wrote, honest = (one.drop(columns="policy") for _, one in runs.groupby("policy", sort=False))
    pd.testing.assert_frame_equal(wrote.reset_index(drop=True), honest.reset_index(drop=True))

"""The outcome bound: nobody is below it, on any path, whatever is spent and whoever takes part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario
from fl_edge_env.observations import available_devices
from policies import LROA, Opportunistic, Policy, evaluate, make_policy
from policies.benchmark.bounds import Prices
from policies.benchmark.run import BoundRun, Run
from policies.benchmark.runner import play_runs
from policies.outcome import DualPrices
from tests.fl_edge_env.test_round import SYSTEM_OPTIONS, random_decision, random_system
from tests.support import ANY_SEED

# The penalty is bounded elsewhere.
OPTIONS = sorted(SYSTEM_OPTIONS.keys() - {"objective"})


class RandomPolicy(Policy):
    """Any decision that is allowed for a batch."""

    def __init__(self, scenario: Scenario, *, chosen: bool, seed: int) -> None:
        super().__init__(scenario)
        self.name = f"random, chosen={chosen}"
        self.chosen = chosen
        self.rng = np.random.default_rng(seed)

    def decide(self, observation):
        there = available_devices(observation)
        if there is None:
            there = np.ones(observation["channel_gain"].shape, dtype=np.bool_)
        return random_decision(self.rng, self.scenario, there, {"first"}, self.chosen)


@pytest.mark.filterwarnings("ignore::UserWarning")  # random systems are odd
@given(st.sets(st.sampled_from(OPTIONS)), st.sampled_from([0.0, 0.1, 10.0]), ANY_SEED)
def test_outcome_bound__is_below_every_policy_in_every_round(options, scale, seed):
    rng = np.random.default_rng(seed)
    scenario = random_system(rng, options)
    number = scenario.num_devices
    outcome = DualPrices(
        scale * rng.exponential(size=number), 2000 * scale * rng.standard_normal(number)
    )
    prices = Prices(scenario, np.zeros(number), outcome)
    policies = [
        RandomPolicy(scenario, chosen=True, seed=seed),
        RandomPolicy(scenario, chosen=False, seed=seed),
        LROA(scenario),
        Opportunistic(scenario, prices=outcome, start="cold"),
    ]
    runs = [Run(policy.name, policy, scenario, (seed % 1000,), None, prices) for policy in policies]
    work = [*runs, BoundRun(scenario, seed % 1000, prices)]
    *runs, bounds = (played.rounds for played in play_runs(work))
    least = bounds["outcome_bound"].to_numpy()
    # What is added up may be far larger than the sum.
    size = outcome.energy @ scenario.energy_budget_j + np.abs(outcome.participation).sum()
    for rounds in runs:
        priced = rounds["priced_outcome"].to_numpy()
        assert np.all(priced >= least - 1e-9 * (np.abs(priced) + size)), rounds["policy"][0]


@pytest.mark.parametrize(
    "fields", [{}, {"availability": 0.4, "upload_failure": 0.3}, {"deadline_s": 30_000.0}]
)
def test_outcome_bound__is_reached_by_who_decides_at_its_prices(fields):
    scenario = Scenario.cifar10(num_devices=6, energy_budget_j=300.0, num_rounds=40, **fields)
    outcome = DualPrices(np.full(6, 0.4), np.full(6, 20_000.0))
    prices = Prices(scenario, np.zeros(6), outcome)
    policy = Opportunistic(scenario, prices=outcome, step_scale=0.0)
    work = [Run(policy.name, policy, scenario, (0,), None, prices), BoundRun(scenario, 0, prices)]
    rounds, bounds = (played.rounds for played in play_runs(work))
    above = rounds["priced_outcome"] - bounds["outcome_bound"]
    assert -1e-9 <= above.min() <= above.max() <= 2e-5 * rounds["round_time"].max()


def test_outcome_gap__is_undefined_with_own_bandwidths():
    scenario = Scenario.digits(num_devices=6, energy_budget_j=0.7, num_rounds=5)
    policies = [make_policy(f"best-channel:{r}", scenario) for r in ("dynamic", "dynamic-shared")]
    assert "outcome_gap" not in evaluate(policies, scenario, [0], gaps=False)
    table = evaluate(policies, scenario, [0, 1])
    assert table["outcome_gap"].isna().tolist() == [False, False, True, True]

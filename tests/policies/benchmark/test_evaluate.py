"""Evaluation: the numbers of a run by hand, common random numbers, and refusals."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

import fl_edge_env  # noqa: F401 - registers the environment
from fl_edge_env import Allocation, Scenario
from fl_edge_env.aggregation import in_time
from policies import Policy, UniD, evaluate, make_policy
from policies.benchmark.bounds import path_bound, penalty_prices
from policies.benchmark.records import DeviceAccounts
from policies.benchmark.runner import RunsFailedError
from policies.benchmark.status import Status
from policies.benchmark.summary import summarise, weights_until
from policies.outcome import outcome_prices


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=12, num_rounds=25)


COLUMNS = """
policy seed total_time priced_time status status_reason lack excess spent_ratio worst_spent_ratio
energy_ratio worst_energy_ratio influence aggregate_noise least_participation never_seen
gap outcome_gap mean_objective mean_reward sampling_error
"""


@pytest.mark.parametrize(
    "fields", [{}, {"availability": np.linspace(0.2, 1.0, 12)}, {"deadline_s": 7.0}], ids=str
)
@pytest.mark.parametrize("name", ["lroa", "uni-s", "round-robin:static"])
def test_evaluate__equals_a_loop_over_the_single_environment(name, fields, scenario):
    scenario = scenario.replace(**fields)
    policy = make_policy(name, scenario)
    table = evaluate([policy], scenario, [2**62, 3])
    assert list(table.columns) == COLUMNS.split()
    prices = penalty_prices(scenario)
    energy_price, worth = outcome_prices(scenario)
    rounds = scenario.num_rounds
    size = scenario.cohort_size
    w = scenario.weights
    for _, row in table.iterrows():
        env = gym.make("FLEdge-v0", scenario=scenario)
        observation, _ = env.reset(seed=row.seed)
        policy.reset(0)
        infos = []
        rewards = []
        weight = np.zeros((rounds, 12))
        asked, fair, times = np.zeros((3, 12))
        for index in range(rounds):
            decision = policy.decide(observation)
            observation, reward, *_, info = env.step(decision)
            policy.feedback(info)
            infos.append(info)
            rewards.append(reward)
            there = w * info.get("available", True)
            shares = there / there.sum()
            asked += np.minimum(size * shares, 1)
            fair += shares if decision.q is None else there
            cohort = info["cohort"][in_time(info)[info["cohort"]] & (info["cohort"] >= 0)]
            times[np.unique(cohort)] += 1
            for device in cohort:  # a draw counts w / (K q), a choice its share
                chance = (
                    w[cohort].sum()
                    if decision.q is None
                    else size * info.get("q", decision.q)[device]
                )
                weight[index, device] += w[device] / chance
        budget = scenario.energy_budget_j
        energy = np.mean([i["energy_expected"] for i in infos], axis=0) / budget
        spent = np.mean([i["energy_spent"] for i in infos], axis=0) / budget
        total_time = sum(i["round_time"] for i in infos)
        priced = rounds * (energy_price * budget) @ (spent - 1)
        priced += worth @ (rounds * size * w - times)
        share = times / np.minimum(asked, rounds * size * w)
        influence = weight.sum(axis=0) / np.minimum(fair, rounds * w)
        sampled = decision.q is not None
        expected = {
            "total_time": total_time,
            "priced_time": total_time + priced,
            "excess": np.maximum(spent - 1, 0).mean(),
            "mean_reward": np.mean(rewards),
            "energy_ratio": energy.mean(),
            "worst_energy_ratio": energy.max(),
            "spent_ratio": spent.mean(),
            "worst_spent_ratio": spent.max(),
            "never_seen": np.count_nonzero(times == 0),
            "least_participation": share.min(),
            "influence": influence.min(),
            "lack": np.maximum(1 - (influence if sampled else share), 0).mean(),
            "aggregate_noise": (weight**2).sum(axis=1).mean(),
        }
        if sampled:
            expected["mean_objective"] = np.mean([i["penalty"] for i in infos])
            expected["sampling_error"] = np.mean([i["sampling_error"] for i in infos])
        else:
            assert np.isnan([row.mean_objective, row.sampling_error]).all()
        assert row[[*expected]].to_dict() == pytest.approx(expected)
        if sampled and not fields:
            priced = row.mean_objective + prices @ (budget * (energy - 1))
            least = path_bound(scenario, row.seed, prices).mean()
            assert row.gap == pytest.approx(priced / least - 1, rel=1e-9)
        else:
            assert np.isnan(row.gap)
        assert row.outcome_gap > 0


def test_summarise__accuracy_gap_is_of_rounds_until_the_target():
    other = (
        "penalty reward energy_ratio spent_ratio worst_energy_ratio worst_spent_ratio "
        "influence aggregate_noise least_participation never_seen sampling_error "
        "mean_device_accuracy worst_tenth_accuracy priced_objective"
    )
    # Each policy reaches 0.6 in one round of each seed. Rounds take 2 s and are priced at 6 s;
    # bounds are 1, 2, 3, 4 s.
    needed = {"fast": [3, 2, 9], "slow": [4, 4, 9], "band": [3, 3, 3]}
    rounds = pd.DataFrame(
        {"policy": name, "seed": seed, "round": number, "elapsed_time": 2.0 * number}
        | {"test_accuracy": 0.6 if number == first else np.nan if number == 1 else 0.5}
        | {"priced_outcome": 6.0, "bounded": name != "band"}
        | {"weight_sum": 1.4 if name == "fast" and number < 3 else 1.0}
        for name, seeds in needed.items()
        for seed, first in enumerate(seeds)
        for number in (1, 2, 3, 4)
    ).assign(**dict.fromkeys(other.split(), 1.0))
    bounds = rounds.loc[:11, ["seed", "round"]].assign(bound=1.0, outcome_bound=[1, 2, 3, 4] * 3)
    ones = np.ones((3, 2))
    accounts = DeviceAccounts(*[ones] * 5, ones[:, 0], ones[:, 0])
    statuses = dict.fromkeys(needed, Status("ok", ""))
    table = summarise(rounds, dict.fromkeys(needed, accounts), statuses, 0.6, bounds)
    table = table.set_index("policy")
    np.testing.assert_array_equal(table.time_to_target["fast"], [6, 4, np.nan])
    np.testing.assert_array_equal(table.priced_time_to_target["fast"], [18, 12, np.nan])
    np.testing.assert_array_equal(table.final_accuracy["slow"], [0.6, 0.6, 0.5])
    np.testing.assert_allclose(table.accuracy_gap["fast"], [2, 3, np.nan])
    np.testing.assert_allclose(table.accuracy_gap["slow"], [1.4, 1.4, np.nan])
    np.testing.assert_allclose(table.outcome_gap["slow"], 1.4)
    assert table.accuracy_gap["band"].isna().all()
    assert table.outcome_gap["band"].isna().all()
    # Until the target, light rounds at the end cannot make up for heavy ones.
    assert weights_until(rounds, None) == {"fast": pytest.approx(1.2), "slow": 1.0, "band": 1.0}
    assert weights_until(rounds, 0.6)["fast"] == pytest.approx((3.8 / 3 + 1.4) / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policies": []}, "policies must be one or more"),
        ({"policies": 2 * [UniD(Scenario.digits())]}, "'Uni-D' occurs twice among the policies"),
        ({"policies": UniD(Scenario.digits())}, r"a sequence, got Uni-D: use \[policy\]"),
        ({"policies": [UniD(Scenario.digits())]}, "made for .* different num_devices.*: make it"),
        ({"policies": ["lroa"]}, "policies must be instances of Policy, got 'lroa'"),
        ({"scenario": "digits"}, r"got 'digits': use Scenario.preset\('digits'\)"),
        ({"seeds": []}, "seeds must be one or more"),
        ({"seeds": [1, 1]}, "distinct integers"),
        ({"seeds": [-1]}, r"distinct integers from 0 to 2\^63, got \[-1\]"),
        ({"seeds": 5}, r"seeds must be a sequence, got 5: use range\(5\)"),
        ({"target_accuracy": 90}, r"lie in \(0, 1\], got 90: 90 % is 0.9"),
    ],
)
def test_evaluate__wrong_input_is_named(scenario, arguments, message):
    given = {"policies": [UniD(scenario)], "scenario": scenario, "seeds": [0]} | arguments
    with pytest.raises(ValueError, match=message):
        evaluate(**given)


@pytest.mark.parametrize("name", [None, "", " ", 3, "two\nlines"])
def test_evaluate__refuses_a_name_that_is_no_line_of_text(scenario, name):
    policy = UniD(scenario)
    policy.name = name
    with pytest.raises(ValueError, match="name of a policy must be a text of one line, without"):
        evaluate([policy], scenario, [0])


def test_evaluate__refuses_environments_of_another_system(scenario):
    def run(make):
        evaluate([UniD(scenario)], scenario, [0], make_env=lambda _: make, gaps=False)

    other = scenario.replace(energy_budget_j=1.0, mu=2.0)
    with pytest.raises(ValueError, match="scenario with different energy_budget_j, mu"):
        run(gym.make("FLEdge-v0", scenario=other))
    with pytest.raises(ValueError, match="must make environments of FLEdge"):
        run(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="must make environments of FLEdge, got None"):
        run(None)
    with pytest.raises(RunsFailedError, match="have no client_updates"):
        run(gym.make("FLEdge-v0", scenario=scenario))
    with pytest.raises(RunsFailedError, match="ended after 3 of 25 rounds"):
        run(gym.make("FLEdge-v0", scenario=scenario, max_episode_steps=3))


class Middle(Policy):
    """Draws all alike, from the second round on in a system that it has made up."""

    def __init__(self, scenario, **made_up):
        super().__init__(scenario)
        self.made_up = made_up

    def decide(self, _):
        system = self.scenario
        self.scenario = system.replace(**self.made_up)
        return Allocation(system.f_mid, system.p_mid, q=1 / system.num_devices)


def test_evaluate__no_account_is_by_the_scenario_of_the_policy(scenario):
    made_up = {"energy_budget_j": 1e6, "num_samples": np.arange(1.0, 13), "cohort_size": 1}
    cheat = Middle(scenario.replace(mu=3.0, nu=1e4, num_rounds=7), **made_up)
    honest, other = (evaluate([one], scenario, [0, 1]) for one in (Middle(scenario), cheat))
    pd.testing.assert_frame_equal(honest, other, check_exact=True)

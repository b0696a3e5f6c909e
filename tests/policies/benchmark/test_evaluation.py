"""Evaluation: the numbers of a run by hand, common random numbers, processes, and refusals."""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fl_edge_env  # noqa: F401 - registers the environment
from fl_edge_env import Allocation, ExponentialChannel, Scenario
from policies import LROA, DivFL, Policy, UniD, UniS, evaluate, lower_bound, make_policy
from policies.benchmark.evaluation import summarise
from policies.benchmark.rollout import run_episode
from policies.benchmark.statistics import mean_interval


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.digits(num_devices=12, num_rounds=25)


class Record(Policy):
    """Remembers what it saw; needs nothing but `decide`."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.seen: list[np.ndarray] = []

    def decide(self, observation: Mapping[str, np.ndarray]) -> Allocation:
        self.seen.append(observation["channel_gain"])
        return UniD(self.scenario).decide(observation)


def test_evaluate__equals_a_loop_over_the_single_environment(scenario):
    table = evaluate([LROA(scenario), UniS(scenario)], scenario, seeds=[3, 8])
    assert list(table.columns) == [
        "policy",
        "seed",
        "total_time",
        "mean_objective",
        "mean_reward",
        "energy_ratio",
        "worst_energy_ratio",
        "sampling_error",
    ]
    for _, row in table.iterrows():
        policy = make_policy(row.policy.lower(), scenario)
        env = gym.make("FLEdge-v0", scenario=scenario)
        observation, _ = env.reset(seed=row.seed)
        infos, rewards, truncated = [], [], False
        while not truncated:
            observation, reward, _, truncated, info = env.step(policy.decide(observation))
            infos.append(info)
            rewards.append(reward)
        energy = np.mean([i["energy_expected"] for i in infos], axis=0) / scenario.energy_budget_j
        assert row.total_time == pytest.approx(sum(i["round_time"] for i in infos), rel=1e-12)
        assert row.mean_objective == pytest.approx(np.mean([i["penalty"] for i in infos]))
        assert row.mean_reward == pytest.approx(np.mean(rewards))
        assert row.energy_ratio == pytest.approx(energy.mean())
        assert row.worst_energy_ratio == pytest.approx(energy.max())
        assert row.sampling_error == pytest.approx(np.mean([i["sampling_error"] for i in infos]))


def test_evaluate__every_policy_meets_the_same_channel(scenario):
    class Other(Record):
        def decide(self, observation: Mapping[str, np.ndarray]) -> Allocation:
            self.seen.append(observation["channel_gain"])
            return LROA(self.scenario).decide(observation)

    first, second = Record(scenario), Other(scenario)
    evaluate([first, second], scenario, seeds=[0, 1])
    np.testing.assert_array_equal(first.seen, second.seen)
    assert not np.array_equal(first.seen[0][0], first.seen[0][1])


def test_evaluate__neither_processes_nor_company_nor_order_change_a_result(scenario):
    policies = [make_policy(name, scenario) for name in ("lroa", "uni-d", "uni-s", "divfl")]
    together = evaluate(policies, scenario, seeds=[0, 1, 2], workers=2)
    alone = evaluate([UniD(scenario)], scenario, seeds=[2])
    row = together[(together.policy == "Uni-D") & (together.seed == 2)].reset_index(drop=True)
    pd.testing.assert_frame_equal(row, alone, check_exact=True)


def test_evaluate__a_single_environment_gives_what_the_batch_gives(scenario):
    batch = evaluate([DivFL(scenario)], scenario, seeds=[0, 1])
    single = evaluate(
        [DivFL(scenario)],
        scenario,
        seeds=[0, 1],
        make_env=lambda _: gym.make("FLEdge-v0", scenario=scenario),
    )
    pd.testing.assert_frame_equal(batch, single, check_exact=True)


def test_summarise__target_is_the_first_arrival_and_missing_where_never_reached():
    rounds = pd.DataFrame(
        {
            "policy": "A",
            "seed": [0, 0, 0, 1, 1, 1],
            "round": [1, 2, 3] * 2,
            "elapsed_time": [10.0, 20.0, 30.0, 11.0, 22.0, 33.0],
            "penalty": 1.0,
            "reward": 0.0,
            "energy_ratio": 1.0,
            "worst_energy_ratio": [1.0, 1.0, 0.9, 1.0, 1.0, 1.1],
            "sampling_error": 1.0,
            "test_accuracy": [np.nan, 0.6, 0.5, 0.1, np.nan, 0.2],
        }
    )
    table = summarise(rounds, target_accuracy=0.55)
    np.testing.assert_array_equal(table.time_to_target, [20.0, np.nan])
    np.testing.assert_array_equal(table.final_accuracy, [0.5, 0.2])


def test_run_episode__worst_ratio_is_of_the_time_average_not_of_the_round(scenario):
    env = gym.make("FLEdge-v0", scenario=scenario)
    rounds = run_episode(LROA(scenario), env, scenario, [0])
    assert np.all(rounds.worst_energy_ratio >= rounds.energy_ratio.expanding().mean() - 1e-12)
    assert rounds["round"].tolist() == list(range(1, scenario.num_rounds + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policies": []}, "policies must be one or more"),
        ({"policies": "twice"}, r"distinct names, got \['Uni-D', 'Uni-D'\]"),
        ({"seeds": []}, "seeds must be one or more"),
        ({"seeds": [1, 1]}, "distinct integers"),
        ({"seeds": [-1]}, r">= 0, got \[-1\]"),
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
    ],
)
def test_evaluate__wrong_input_is_named(scenario, arguments, message):
    policies = arguments.pop("policies", [UniD(scenario)])
    if policies == "twice":
        policies = [UniD(scenario), UniD(scenario)]
    with pytest.raises(ValueError, match=message):
        evaluate(policies, scenario, **{"seeds": [0]} | arguments)


def test_make_policy__unknown_name_lists_the_known_ones(scenario):
    known = "one of lroa, uni-d, uni-s, divfl, or the folder of a trained agent, got 'lora'"
    with pytest.raises(ValueError, match=known):
        make_policy("lora", scenario)


def test_mean_interval__is_students_and_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    sample = rng.normal(3.0, 2.0, size=(2000, 5))
    expected = stats.ttest_1samp(sample[0], 0).confidence_interval(0.95)
    assert mean_interval(sample[0])[1:] == pytest.approx((expected.low, expected.high))
    covered = np.mean([low <= 3.0 <= high for _, low, high in map(mean_interval, sample)])
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_mean_interval__one_value_has_no_interval():
    mean, low, high = mean_interval([2.0])
    assert mean == 2.0
    assert np.isnan(low)
    assert np.isnan(high)


@pytest.fixture(scope="module")
def system_side() -> tuple[Scenario, pd.DataFrame]:
    scenario = Scenario.digits(num_rounds=1500)
    policies = [LROA(scenario), UniD(scenario), UniS(scenario)]
    bound = lower_bound(scenario, num_samples=2000)
    return scenario, evaluate(policies, scenario, seeds=range(4), bound=bound)


def test_lower_bound__holds_for_every_policy_at_the_energy_it_used():
    # With average energy e, weak duality gives: penalty >= bound - multiplier . (e - budget).
    scenario = Scenario.digits(num_rounds=400)
    bound = lower_bound(scenario, num_samples=4000)
    for policy in (LROA(scenario), UniD(scenario), UniS(scenario)):
        gaps = []
        for seed in range(4):
            env = gym.make("FLEdge-v0", scenario=scenario)
            observation, _ = env.reset(seed=seed)
            penalty, energy, truncated = 0.0, np.zeros(scenario.num_devices), False
            while not truncated:
                observation, _, _, truncated, info = env.step(policy.decide(observation))
                penalty += info["penalty"] / scenario.num_rounds
                energy += info["energy_expected"] / scenario.num_rounds
            excess = bound.multiplier @ (energy - scenario.energy_budget_j)
            gaps.append(penalty - (bound.value - excess))
        noise = 4 * np.hypot(bound.standard_error, np.std(gaps, ddof=1) / 2)
        assert np.mean(gaps) >= -noise


def test_evaluate__takes_the_bound_of_its_scenario_in_any_length_and_no_other():
    scenario = Scenario.digits(num_rounds=3)
    bound = lower_bound(scenario, num_samples=2)
    longer = scenario.replace(num_rounds=4)
    assert "bound_gap" in evaluate([UniS(longer)], longer, seeds=[0], bound=bound)
    for other, names in (
        (scenario.replace(mu=0.5), "mu"),
        (scenario.replace(num_devices=99), "num_devices"),
        (scenario.replace(f_max=3e9, channel=ExponentialChannel(0.2)), "f_max, channel"),
    ):
        message = f"bound must be that of this scenario, got that of one with another {names}$"
        with pytest.raises(ValueError, match=message):
            evaluate([UniS(other)], other, seeds=[0], bound=bound)
    with pytest.raises(ValueError, match=r"bound must be a LowerBound, got 3\.5"):
        evaluate([UniS(scenario)], scenario, seeds=[0], bound=3.5)


def test_lower_bound__lroa_approaches_it_and_uniform_sampling_does_not(system_side):
    _, table = system_side
    gap = table.groupby("policy").bound_gap.mean()
    assert abs(gap["LROA"]) < 0.005
    assert gap["Uni-D"] > 0.02
    assert gap["Uni-S"] > gap["Uni-D"]


def test_lower_bound__no_other_multiplier_gives_a_much_better_bound():
    # The dual function is concave and largest at the best multiplier.
    from policies.p2 import solve_p2

    scenario = Scenario.digits()
    bound = lower_bound(scenario, num_samples=500)
    gains = scenario.channel.draw(np.random.default_rng(9), 500, scenario.num_devices)

    def dual(multiplier: np.ndarray) -> float:
        queues = np.broadcast_to(scenario.V * multiplier, gains.shape)
        return float(np.mean(solve_p2(gains, queues, scenario).lower_bound)) / scenario.V

    best = dual(bound.multiplier)
    for factor in (0.0, 0.5, 0.8, 1.2, 2.0):
        assert dual(factor * bound.multiplier) < best


def test_lower_bound__within_budget_is_told_by_the_worst_device(system_side):
    _, table = system_side
    np.testing.assert_array_equal(table.within_budget, table.worst_energy_ratio <= 1 + 1e-9)

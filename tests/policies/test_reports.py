"""What reports cost: by hand, against systems that pay the same otherwise, and in a leaderboard."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, Scenario, Simulator, physics
from policies import LROA, DivFL, Opportunistic, UniD, UniS, evaluate, make_policy, with_reports
from policies.benchmark.bound import outcome_path_bound, path_bound, penalty_prices
from policies.outcome.prices import DualPrices
from policies.reports import report_costs
from train_fl import TrainingEnvFactory
from train_fl.command_line import main

REPORTS = {
    "report_passes": 1.0,
    "report_bits": 1e6,
    "first_report_passes": 6.0,
    "first_report_bits": 5e5,
}
# At a gain of 0.1, h p = N0 at 0.1 W: one bit per hertz and second, in half of a megahertz.
BY_HAND = Scenario(
    num_devices=3,
    num_rounds=4,
    model_bits=1e6,
    num_samples=[100, 100, 200],
    cycles_per_sample=1e6,
    p_min=0.1,
    f_min=1e9,
    f_max=[1e9, 1e9, 3e9],
    download_rate_bps=1e7,
)


def test_costs__by_hand():
    scenario = BY_HAND.replace(**REPORTS)
    gain, p = np.full(3, 0.1), np.full(3, 0.1)
    # Three passes over 100 samples, 2 Mbit up at 0.5 Mbit/s, and 1 Mbit down.
    time, energy = physics.time_and_energy(gain, scenario.f_min, p, scenario)
    np.testing.assert_allclose(time, np.array([0.3, 0.3, 0.6]) + 4.0 + 0.1)
    np.testing.assert_allclose(energy, np.array([0.03, 0.03, 0.06]) + 0.1 * 4.0)
    # Before the first round all pass twice as often, the third device at 2 GHz. Then the first two
    # upload for a second, then the third.
    assert scenario.mean_gain == pytest.approx(0.1)
    time, energy = scenario.first_report
    assert time == pytest.approx(0.1 + 0.6 + 1.0 + 1.0)
    np.testing.assert_allclose(energy, np.array([0.06, 0.06, 0.48]) + 0.1 * 1.0)
    slow = scenario.replace(num_samples=[300, 100, 200], p_min=0.05, p_max=[0.15, 0.15, 0.05])
    third = 1.0 / np.log2(1.5)
    assert slow.first_report[0] == pytest.approx(0.1 + 1.8 + 1.0 + third)


def test_episode__begins_with_the_time_and_the_energy_of_the_first_report():
    plain, scenario = BY_HAND, BY_HAND.replace(**REPORTS)
    first_time, first_energy = scenario.first_report
    simulator = Simulator(scenario.replace(initial_queue=2.0), 2)
    simulator.reset([0, 1])
    np.testing.assert_allclose(simulator.observe()["queue"], 2.0 + np.stack([first_energy] * 2))
    env = gym.make("FLEdge-v0", scenario=scenario)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    rounds = [env.step(env.action_space.sample())[-1] for _ in range(4)]
    times = np.cumsum([info["round_time"] for info in rounds])
    np.testing.assert_allclose([info["elapsed_time"] for info in rounds], first_time + times)

    # The accounts of a whole run, against the rounds of one that reported nothing before.
    late = scenario.replace(first_report_passes=0.0, first_report_bits=0.0)
    with_first, without, unpaid = (
        evaluate([UniS(s)], s, [0, 1], gaps=False) for s in (scenario, late, plain)
    )
    np.testing.assert_allclose(with_first.total_time - without.total_time, first_time)
    share = np.mean(first_energy / scenario.energy_budget_j) / 4
    for ratio in ("spent_ratio", "energy_ratio"):
        np.testing.assert_allclose(with_first[ratio] - without[ratio], share)
    assert (without.total_time > unpaid.total_time).all()
    assert with_first.least_participation.equals(without.least_participation)


def longer_and_larger(scenario: Scenario) -> tuple[Scenario, Scenario]:
    """One that reports in each round, and one that trains longer a larger model instead."""
    bits = scenario.model_bits
    return (
        scenario.replace(report_passes=1.0, report_bits=0.5 * bits),
        scenario.replace(local_epochs=scenario.local_epochs + 1, model_bits=1.5 * bits),
    )


@pytest.mark.parametrize("kind", [LROA, UniD, UniS, Opportunistic, DivFL])
def test_decisions__are_those_of_a_system_with_longer_training_and_a_larger_model(kind):
    scenario = Scenario.femnist(num_devices=6, cohort_size=3, lambda_=2e3, V=1e4, num_rounds=5)
    rng = np.random.default_rng(0)
    observation = {
        "channel_gain": rng.uniform(0.01, 0.5, 6),
        "queue": rng.exponential(scenario.energy_budget_j),
    }
    decisions: list[Allocation] = []
    for system in longer_and_larger(scenario):
        policy = kind(system)
        policy.reset(0)
        decisions.append(policy.decide(observation))
    np.testing.assert_equal(vars(decisions[0]), vars(decisions[1]))


def test_bounds__count_reports():
    scenario = Scenario.digits(num_devices=6, num_rounds=5, lambda_=1.0, V=0.2)
    reporting, alike = longer_and_larger(scenario)
    prices = penalty_prices(scenario)
    for bound, given in (
        (path_bound, prices),
        (outcome_path_bound, DualPrices(prices, np.ones(6))),
    ):
        np.testing.assert_array_equal(bound(reporting, 0, given), bound(alike, 0, given))
        assert bound(reporting, 0, given).mean() > bound(scenario, 0, given).mean()


def test_with_reports__each_kind_has_its_price_and_the_aims_stay():
    scenario = Scenario.digits(num_devices=10, local_epochs=3)
    model = scenario.model_bits
    for name, costs in (
        ("lroa", (0, 0, 0, 0)),
        ("divfl", (1, model, 1, model)),
        ("power-of-choice", (1 / 3, 64, 0, 0)),
        ("oort", (1 / 3, 64, 0, 0)),
        ("optimal-sampling", (0, 0, 3, 32)),
    ):
        policy = make_policy(name, scenario)
        assert tuple(report_costs(policy, scenario).values()) == pytest.approx(costs)
        paying = with_reports(scenario, policy)
        assert (paying is scenario) == (name == "lroa")
        assert (paying.lambda_, paying.V) == (scenario.lambda_, scenario.V)
        assert with_reports(paying, make_policy(name, paying)) is paying


def test_evaluate__a_policy_pays_as_in_the_scenario_that_it_was_made_with():
    factory = TrainingEnvFactory(Scenario.digits(num_devices=8, num_rounds=4), "digits").fitted()
    scenario = factory.scenario
    paying = with_reports(scenario, DivFL(scenario))
    policies = [DivFL(paying), UniS(scenario)]
    table = evaluate(policies, scenario, [0], make_env=factory, gaps=False)
    alone = TrainingEnvFactory(paying, "digits")
    expected = evaluate([DivFL(paying)], paying, [0], make_env=alone, gaps=False)
    pd.testing.assert_frame_equal(table[:1], expected)
    plain = evaluate([UniS(scenario)], scenario, [0], gaps=False)
    assert table.total_time[1] == plain.total_time[0]
    with pytest.raises(ValueError, match="made for a scenario with another report_passes"):
        evaluate([UniS(scenario)], paying, [0])
    unpaid = TrainingEnvFactory(scenario, "digits")(DivFL(scenario))
    with pytest.raises(RuntimeError, match="make_env must make an environment in which reports"):
        evaluate([DivFL(paying)], scenario, [0], make_env=lambda _: unpaid, gaps=False)


def test_leaderboard__a_row_pays_and_its_twin_does_not(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.toml").write_text(
        """
    settings = [
        { name = "digits", train = true, seeds = 1, num_devices = 8, rounds = 5, eval_every = 1 }
    ]
    schedulers = [
        "power-of-choice:static",
        { name = "power-of-choice:static", label = "paid", pay_reports = true },
    ]
        """
    )
    main(["leaderboard", "file.toml", "--workers", "1", "--out", "out"])
    summary = pd.read_csv("out/summary.csv").set_index("policy")
    twin, paid = summary.loc["Power of choice, static"], summary.loc["paid"]
    # The same devices train the same models on the same channel, but for longer.
    assert twin.final_accuracy == paid.final_accuracy
    assert twin.least_participation == paid.least_participation
    assert twin.total_time < paid.total_time
    scenario = Scenario.digits(num_devices=8, num_rounds=5, report_passes=1 / 3, report_bits=64)
    factory = TrainingEnvFactory(scenario, "digits").fitted()
    policy = make_policy("power-of-choice:static", factory.scenario)
    table = evaluate([policy], factory.scenario, [0], make_env=factory, gaps=False)
    assert table.total_time[0] == pytest.approx(paid.total_time, rel=1e-12)
    assert table.spent_ratio[0] == pytest.approx(paid.spent_ratio, rel=1e-12)
    output = " ".join(capsys.readouterr().out.split())
    assert "paid (0.33 passes and 64 bits of a participant in each round)" in output

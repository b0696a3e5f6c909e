"""The bounds: in the mean over channels, and along every path for every policy that samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_edge_env import Allocation, Scenario, Simulator
from fl_edge_env.allocation import decode_action
from policies import LROA, lower_bound
from policies.benchmark.bounds import path_bound, penalty_prices
from policies.p2 import solve_p2
from tests.support import field_values, missed


def priced_rounds(scenario: Scenario, seed: int, prices: np.ndarray, decide) -> np.ndarray:
    """The priced objective of each round of an episode."""
    simulator = Simulator(scenario)
    simulator.reset([seed])
    priced = []
    for _ in range(scenario.num_rounds):
        outcome = simulator.advance(decide(simulator.observe()))
        excess = outcome.energy_expected - scenario.energy_budget_j
        priced.append(outcome.penalty + np.sum(prices * excess))
    return np.array(priced)


@settings(max_examples=60)
@given(
    field_values(2),
    st.integers(0, 99),
    st.floats(0, 30),
    st.floats(0.1, 10),
    st.sampled_from([1, -1]),
)
def test_path_bound__no_sampled_decision_is_below_it(fields, seed, price, scale, sign):
    scenario = Scenario(**fields)
    rng = np.random.default_rng(seed)
    # Prices around those at which a budget costs as much as the rest.
    prices = (
        rng.exponential(price, scenario.num_devices)
        * scenario.lambda_
        / (1 + scenario.energy_budget_j)
    )
    bound = path_bound(scenario, seed, prices)
    policy = LROA(scenario)

    def at_random(_):
        return decode_action(rng.normal(0, scale, (3, scenario.num_devices)), scenario, 2.0)

    def best_beyond_the_ranges(observation):
        solution = solve_p2(observation["channel_gain"], scenario.V * prices, scenario, exact=True)
        return missed(Allocation(solution.f, solution.p, solution.q), scenario, sign)

    # The price of the budget is part of both sides: the larger it is, the coarser the difference.
    size = np.abs(bound) + np.sum(prices * scenario.energy_budget_j)
    for decide in (at_random, policy.decide, best_beyond_the_ranges):
        assert np.all(priced_rounds(scenario, seed, prices, decide) >= bound - 1e-9 * size)


def test_penalty_prices__do_not_depend_on_the_weight_of_time():
    scenario = Scenario.digits(num_devices=20)
    prices = penalty_prices(scenario)
    other = scenario.replace(V=1e-3, num_rounds=5)
    np.testing.assert_array_equal(penalty_prices(other), prices)
    assert (penalty_prices(scenario.replace(energy_budget_j=10.0)) == 0).all()


@pytest.mark.usefixtures("whole_searches")
def test_lower_bound__is_the_dual_at_the_best_multiplier():
    # Each round's own bound is below all decisions, and the dual function is concave.
    scenario = Scenario.digits()
    bound, rough = (lower_bound(scenario, num_samples=n) for n in (500, 50))
    assert rough.standard_error / bound.standard_error == pytest.approx(10**0.5, rel=0.5)
    gains = scenario.channel.draw(np.random.default_rng(9), 500, scenario.num_devices)

    def dual(multiplier: np.ndarray) -> float:
        solution = solve_p2(gains, scenario.V * multiplier, scenario)
        return float(np.mean(solution.lower_bound)) / scenario.V

    best = dual(bound.multiplier)
    assert best == pytest.approx(bound.value, abs=6 * bound.standard_error)
    for factor in (0.0, 0.5, 0.8, 1.2, 2.0):
        assert dual(factor * bound.multiplier) < best


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"availability": 0.6}, r"needs availability = 1 .* got 0\.6"),
        ({"deadline_s": 9.0}, r"needs rounds without a deadline, got deadline_s = 9\.0"),
    ],
)
def test_lower_bound__names_what_it_does_not_cover(field, message):
    with pytest.raises(ValueError, match=message):
        lower_bound(Scenario.digits(num_devices=6, energy_budget_j=0.7, **field))

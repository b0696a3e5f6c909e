"""The outcome problem of a round: choose a cohort to minimise its longest time."""

from policies.outcome.past import Estimate, expected_gain
from policies.outcome.prices import DualPrices, initial_prices, outcome_prices, remember_prices
from policies.outcome.solver import RoundSolution, bound_rounds, solve_round

__all__ = [
    "DualPrices",
    "Estimate",
    "RoundSolution",
    "bound_rounds",
    "expected_gain",
    "initial_prices",
    "outcome_prices",
    "remember_prices",
    "solve_round",
]

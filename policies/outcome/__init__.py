"""The problem of a round as a user counts it: the longest time in a cohort that is chosen."""

from policies.outcome.prices import DualPrices, initial_prices, outcome_prices
from policies.outcome.solver import RoundSolution, bound_rounds, solve_round

__all__ = [
    "DualPrices",
    "RoundSolution",
    "bound_rounds",
    "initial_prices",
    "outcome_prices",
    "solve_round",
]

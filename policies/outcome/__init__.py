"""The problem of a round as a user counts it: the longest time in a cohort that is chosen."""

from policies.outcome.prices import DualPrices, outcome_prices
from policies.outcome.solver import RoundSolution, bound_rounds, solve_round
from policies.outcome.start import initial_prices

__all__ = [
    "DualPrices",
    "RoundSolution",
    "bound_rounds",
    "initial_prices",
    "outcome_prices",
    "solve_round",
]

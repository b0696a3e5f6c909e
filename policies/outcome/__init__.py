"""The problem of a round as a user counts it: the longest time in a cohort that is chosen."""

from policies.outcome.blind import blind_prices
from policies.outcome.prices import OutcomePrices, settle_prices
from policies.outcome.settled import first_prices, settled_scenario
from policies.outcome.solver import RoundSolution, bound_rounds, solve_round

__all__ = [
    "OutcomePrices",
    "RoundSolution",
    "blind_prices",
    "bound_rounds",
    "first_prices",
    "settle_prices",
    "settled_scenario",
    "solve_round",
]

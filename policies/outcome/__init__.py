"""The problem of a round as a user counts it: the longest time in a cohort that is chosen."""

from policies.outcome.solver import RoundSolution, bound_rounds, solve_round

__all__ = ["RoundSolution", "bound_rounds", "solve_round"]

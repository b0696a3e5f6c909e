"""The per-round problem P2: its solver, the compiled kernels, and the cvxpy reference."""

from policies.p2.solver import P2Solution, Variant, best_resources, check_variant, solve_p2

__all__ = ["P2Solution", "Variant", "best_resources", "check_variant", "solve_p2"]

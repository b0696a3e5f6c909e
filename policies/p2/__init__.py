"""The per-round problem P2: its solver and the compiled kernels."""

from policies.p2.solver import P2Solution, Variant, best_resources, check_variant, solve_p2

__all__ = ["P2Solution", "Variant", "best_resources", "check_variant", "solve_p2"]

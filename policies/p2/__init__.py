"""The per-round problem P2: its solver, the compiled kernel, and the cvxpy reference."""

from policies.p2.solver import (
    P2Solution,
    Variant,
    as_rows,
    best_resources,
    check_gains,
    check_state,
    check_variant,
    kernel_system,
    solve_p2,
)

__all__ = [
    "P2Solution",
    "Variant",
    "as_rows",
    "best_resources",
    "check_gains",
    "check_state",
    "check_variant",
    "kernel_system",
    "solve_p2",
]

"""The per-round problem P2: its solver, the compiled kernels, and the cvxpy reference."""

from policies.p2.solver import (
    Latency,
    P2Solution,
    Variant,
    as_rows,
    best_resources,
    check_gains,
    check_latency,
    check_state,
    check_variant,
    kernel_system,
    solve_p2,
)

__all__ = [
    "Latency",
    "P2Solution",
    "Variant",
    "as_rows",
    "best_resources",
    "check_gains",
    "check_latency",
    "check_state",
    "check_variant",
    "kernel_system",
    "solve_p2",
]

"""The per-round problem P2: its solver, the compiled kernels, and the cvxpy reference."""

from policies.p2.solver import (
    Latency,
    P2Solution,
    Variant,
    best_resources,
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
    "best_resources",
    "check_latency",
    "check_state",
    "check_variant",
    "kernel_system",
    "solve_p2",
]

"""LROA: the paper's online controller."""

from __future__ import annotations

from collections.abc import Sequence

from fl_edge_env import Allocation, Scenario
from fl_edge_env.observations import gains_and_queues
from fl_edge_env.typing import Observed
from policies.base import Policy
from policies.p2 import P2Solution, Variant, check_variant, solve_p2


class LROA(Policy):
    """Lyapunov-based resource-efficient online algorithm: solves P2 in every round.

    P2's latency is the paper's proxy of the round time, for every objective of the scenario. P2
    ignores deadlines, so LROA may choose devices that will be late. LROA treats observed gains as
    current, even if the scenario delays them.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.
    variant : {"derived", "paper"}
        P2.2 as it follows from P2, or as the paper prints it, without the queue.
    exact : bool
        Search for the global optimum of P2 if it is not convex; the default is the paper's
        Algorithm 2.

    Attributes
    ----------
    solution : P2Solution or None
        The last solution, with its certificate.
    """

    def __init__(
        self, scenario: Scenario, *, variant: Variant = "derived", exact: bool = False
    ) -> None:
        super().__init__(scenario)
        check_variant(variant, exact)
        self.variant = variant
        self.exact = exact
        self.solution: P2Solution | None = None

    def reset(self, seed: int | Sequence[int]) -> None:  # noqa: ARG002 - deterministic
        """Forget the last solution; see `Policy.reset`."""
        self.solution = None

    def decide(self, observation: Observed) -> Allocation:
        """Solve P2; see `Policy.decide`."""
        self.solution = solve_p2(
            *gains_and_queues(observation), self.scenario, variant=self.variant, exact=self.exact
        )
        return Allocation(self.solution.f, self.solution.p, self.solution.q)

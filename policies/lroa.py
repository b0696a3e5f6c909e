"""LROA: the paper's online controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import observed
from fl_edge_env.typing import FloatArray
from policies.belief import BelievingPolicy, Delay
from policies.p2 import P2Solution, Variant, check_variant, solve_p2


class LROA(BelievingPolicy):
    """Lyapunov-based resource-efficient online algorithm: solves P2 in every round.

    P2 has the paper's proxy of the round time as its latency, whatever the scenario counts, and
    takes no notice of a deadline: LROA chooses devices that will be late as if they were not. Where
    the server does not know the present gains it has the expectation of that and of the energy
    over them, given those that it knows; see `policies.belief.Belief`.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.
    variant : {"derived", "paper"}
        P2.2 as it follows from P2, or as the paper prints it, without the queue.
    exact : bool
        Search for the global optimum of P2 where it is not convex; the default is the paper's
        Algorithm 2.
    delay : {"expected", "ignored"}
        What it makes of gains that are not the present ones: the expected time and energy, or
        those of the old gains, as the paper's algorithm would.

    Attributes
    ----------
    solution : P2Solution or None
        The last solution, with its certificate.

    Raises
    ------
    ValueError
        If `variant` or `delay` is unknown or `exact` neither True nor False, or if the
        channel cannot say what to expect; see `policies.belief.Belief`.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        variant: Variant = "derived",
        exact: bool = False,
        delay: Delay = "expected",
    ) -> None:
        super().__init__(scenario, delay)
        check_variant(variant, exact)
        self.variant = variant
        self.exact = exact
        self.solution: P2Solution | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The policy without its last solution, which decides nothing."""
        return vars(self) | {"solution": None}

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Solve P2; see `Policy.decide`."""
        _, queue = observed(observation)
        self.solution = solve_p2(
            self.belief.present_gain(observation),
            queue,
            self.scenario,
            variant=self.variant,
            exact=self.exact,
        )
        return Allocation(self.solution.f, self.solution.p, self.solution.q)

"""Opportunistic: chooses cohorts that are cheap now and fair in the long run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from fl_edge_env import Allocation, Scenario
from fl_edge_env.aggregation import in_time
from fl_edge_env.allocation import smallest
from fl_edge_env.checks import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    finite_or_zero,
    one_of,
    per_device,
)
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.observations import available_devices, gains_and_queues
from fl_edge_env.typing import Info, Observed
from policies.base import Policy
from policies.outcome import DualPrices, Estimate, RoundSolution, initial_prices, solve_round
from policies.solvers.inputs import check_state, like_gains

Start = Literal["settled", "cold"]

# Proven relative distance of each decision to the optimum.
_TOLERANCE = 1e-5
# Fraction of the price of participation by which prices jump; and if the server sees only
# participants' gains, as prices must then move far from their initial values, also with factors on
# the steps of energy prices: in the long run, and over the measurements so far.
_JUMP = 0.03
_PARTIAL_JUMP = 0.2
_ENERGY = 2.0
_EARLY_ENERGY = 15.0


class Opportunistic(Policy):
    """Chooses the devices whose participation costs least in the current channel.

    Each device has a price of energy m [s/J] and a price of participation z [s]. The decision
    minimises ``max T + sum (m E - z)`` over cohorts of at most K devices and their f and p, to a
    proven distance from the optimum. The prices are virtual queues: m rises with the energy that
    the device spends and falls with its budget; z falls when it participates and rises by its
    target, ``min(K w, 1)``. In the long run, devices then stay within their budgets, and their
    updates count in proportion to their data. See ``docs/outcome.md``.

    The cohort is chosen among the available devices that can meet the scenario's deadline, or among
    all available ones if none can meet it. A device that qualifies less often than its target
    cannot reach the target, and its z grows without bound.

    If the server sees only participants' gains (``csi="participants"``), the policy estimates each
    device's upload time from its own measurements (`policies.outcome.Estimate`), and decides as if
    the coming upload took that time. It raises z for devices with slow uploads, and moves prices
    faster, above all the energy price at a device's first participations.

    Parameters
    ----------
    scenario : Scenario
        The system it controls. Its number of rounds determines how fast the prices move.
    prices : DualPrices, optional
        Prices to use instead of `policies.outcome.initial_prices`.
    start : {"settled", "cold"}
        Initial prices of an episode: the dual prices, or zero.
    step_scale : float
        Factor on the price steps, at least zero.

    Attributes
    ----------
    solution : RoundSolution or None
        The last decision, with its certificate.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        prices: DualPrices | None = None,
        start: Start = "settled",
        step_scale: float = 1.0,
    ) -> None:
        super().__init__(scenario)
        self._from = one_of("start", start, get_args(Start))
        self._step_scale = finite_or_zero("step_scale", step_scale)
        if prices is not None:
            self.prices = _checked(prices, scenario.num_devices)
        self._target = participation_target(scenario)
        self._allowed = scenario.energy_budget_j / self._target  # energy of a participation
        self._estimate = Estimate(scenario) if scenario.csi == "participants" else None
        self.reset(0)

    @cached_property
    def prices(self) -> DualPrices:
        """The dual prices before the first round, whose search can take seconds."""
        return initial_prices(self.scenario)

    @cached_property
    def _jump(self) -> float:
        """The change of a device's cost through each price by a participation within the budget."""
        return self._step_scale * participation_jump(self.prices, self.scenario)

    @property
    def _own(self) -> DualPrices:
        """The prices that follow from the rounds so far."""
        if self._moved is not None:
            return self._moved
        if self._from == "cold":
            return DualPrices(*np.zeros((2, self.scenario.num_devices)))
        # The energy price jumps at a participation and falls until the next, which happens when it
        # is low: its low end, not its mean, must be the dual price.
        return self.prices._replace(energy=self.prices.energy + 0.5 * self._jump / self._allowed)

    @property
    def current_prices(self) -> DualPrices:
        """The prices of its next decision, of each system if it plays a batch."""
        energy, participation = self._own
        if self._estimate is not None:
            participation = participation + self._estimate.head_start
        return DualPrices(energy, participation)

    def reset(self, seed: int | Sequence[int]) -> None:  # noqa: ARG002 - deterministic
        """Reset the prices to their initial values; see `Policy.reset`."""
        self.solution: RoundSolution | None = None
        self._moved: DualPrices | None = None
        if self._estimate is not None:
            self._estimate.reset()

    def feedback(self, info: Info) -> None:
        """Update the prices by the round's energy and participation; see `Policy.feedback`."""
        if "energy_spent" not in info:
            return
        energy, participation = self._own
        excess = info["energy_spent"] - self.scenario.energy_budget_j
        step = self._jump / self._allowed**2  # [s/J^2]
        if self._estimate is not None:
            step = step * (_ENERGY + _EARLY_ENERGY / self._estimate.count)
        missing = self._target - in_time(info)
        self._moved = DualPrices(
            np.maximum(energy + step * excess, 0.0), participation + self._jump * missing
        )

    def decide(self, observation: Observed) -> Allocation:
        """Minimise the cost of the round; see `Policy.decide`.

        The policy's own prices replace the observation's queues, which are ignored.
        """
        gain, queue = gains_and_queues(observation)
        if self._estimate is not None:
            gain, _ = check_state(gain, queue, self.scenario)
            age = like_gains("age", observation.get("age", np.nan), gain.shape, POSITIVE)
            self._estimate.measure(gain, age)
            gain = self._estimate.expected_gain(gain, age)
        self.solution = solve_round(
            gain,
            *self.current_prices,
            self.scenario,
            V=1.0,
            tolerance=_TOLERANCE,
            available=available_devices(observation),
        )
        chosen = self.solution.participates
        cohort = smallest(np.zeros(chosen.shape), chosen, self.scenario.cohort_size)
        # A device that participates in a fraction rho of the rounds gets the weight w / rho.
        weights = (self.scenario.weights / self._target)[cohort]
        return Allocation(self.solution.f, self.solution.p, cohort=cohort, weights=weights)


def participation_jump(prices: DualPrices, scenario: Scenario) -> float:
    """Time [s] by which a participation within the budget raises the cost of the device's next one.

    The jump is a fraction of the mean price of participation, divided by the square root of a
    device's participations in an episode. Larger steps lengthen a run. With smaller ones, devices
    lack nearly as much as in a lottery.
    """
    participations = scenario.num_rounds * np.mean(participation_target(scenario))
    price = float(np.mean(np.abs(prices.participation)))
    fraction = _PARTIAL_JUMP if scenario.csi == "participants" else _JUMP
    return fraction * price / math.sqrt(participations)


def _checked(prices: object, num_devices: int) -> DualPrices:
    """Checked prices, with a value for each device."""
    if not isinstance(prices, DualPrices):
        raise ValueError(f"prices must be DualPrices, got {prices!r}")
    energy = per_device("prices.energy", prices.energy, num_devices, NOT_NEGATIVE)
    participation = per_device("prices.participation", prices.participation, num_devices, FINITE)
    return DualPrices(energy, participation)

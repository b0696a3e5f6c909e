"""Opportunistic: a cohort is chosen that is cheap now, and fair in the long run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import (
    available,
    finite_number,
    integer_at_least,
    observed,
    real_array,
    saved_array,
)
from fl_edge_env.contributions import in_time
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.belief import BelievingPolicy, Delay
from policies.estimate import GainEstimator
from policies.outcome import DualPrices, RoundSolution, law_prices, solve_round
from policies.outcome.start import energy_start, initial_prices, participation_jump

Start = Literal["settled", "cold"]

# Proven relative distance of each decision to the optimum.
_TOLERANCE = 1e-5
# Largest dual price of energy over the initial one, for devices too far to keep within budget.
_MOST_OVER_FIRST = 10.0


class Opportunistic(BelievingPolicy):
    """Chooses the devices that can take part at the least cost in the present channel.

    A round costs its time, the energy of its devices at a price m of each, and what their
    participation is worth, z. The decision minimises ``max T + sum (m E - z)`` over cohorts of at
    most K devices and their f and p, to a proven distance from the optimum. The prices are virtual
    queues in seconds: m of a device rises by the energy it spends and falls by its budget, and z
    falls when it takes part and rises by its target, ``min(K w, 1)``. In the long run devices then
    keep within their budgets, and their data count their weight w. See ``docs/opportunistic.md``.

    Where devices drop out, the choice is among the available ones. A device that is available less
    often than its target cannot reach it, and its price of participation then rises for ever. So
    does that of a device that the scenario's deadline leaves too few rounds: the cohort is chosen
    among those that can meet the deadline, or among all in rounds in which nobody can.

    Where the server knows the gains of participants alone (``csi="participants"``), decisions count
    the times and energies that are expected by what is believed of the gains (see
    `policies.belief.Belief`), and dual prices are those for a server that knows no more
    (`policies.outcome.law_prices`): at first for devices that all have the channel's common mean
    gain, then anew for each device whose gain was measured. No device's own mean gain is read, nor
    a gain that nobody measured. The steps of the prices follow the same rule as elsewhere, with the
    time of a round at the initial prices.

    Parameters
    ----------
    scenario : Scenario
        The system it controls. Its horizon decides how fast the prices move.
    seed : int
        Seed of the rounds from which the dual prices before the first episode and the time of a
        round are found. A server that knows laws of the gains alone needs none.
    prices : DualPrices, optional
        In place of those of `policies.outcome.initial_prices`. They stay when gains are measured.
    follow : bool
        Whether the dual prices of a device are found anew when its gain was measured, where the
        gains are those of participants; elsewhere it does not matter.
    start : {"settled", "cold"}
        Prices at which an episode begins: the dual ones, or zero.
    participation : bool
        Whether prices of participation move; without it they stay as they start.
    step_scale : float
        Factor on the steps of the prices, at least zero.
    delay : {"expected", "ignored"}
        What it makes of gains that are not the present ones: it counts the longest expected time
        and expected energies given the old gains, or takes these for the present ones. The former
        is below the expected longest time; ``docs/opportunistic.md`` has what either takes.

    Attributes
    ----------
    prices : DualPrices
        The dual prices before the first round.
    solution : RoundSolution or None
        The last decision, with its certificate.

    Raises
    ------
    ValueError
        If an argument is wrong, or the channel cannot say what to expect; see
        `policies.belief.Belief`.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        prices: DualPrices | None = None,
        follow: bool = True,
        start: Start = "settled",
        participation: bool = True,
        step_scale: float = 1.0,
        delay: Delay = "expected",
    ) -> None:
        super().__init__(scenario, delay)
        integer_at_least(0, "seed", seed)
        if start not in get_args(Start):
            raise ValueError(f"start must be 'settled' or 'cold', got {start!r}")
        for name, value in (("follow", follow), ("participation", participation)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be True or False, got {value!r}")
        step_scale = finite_number("step_scale", step_scale, zero_allowed=True)
        self._learns = self.belief.estimator if follow and prices is None else None
        self.prices = initial_prices(scenario, seed=seed) if prices is None else prices
        _check_prices(self.prices, scenario)
        self._target = participation_target(scenario)
        # A participation at the energy that the budget allows moves the device's cost by `jump`,
        # through either price.
        jump = step_scale * participation_jump(self.prices, scenario, seed=seed)
        self._energy_step = jump / (scenario.energy_budget_j / self._target) ** 2  # [s/J^2]
        self._participation_step = jump if participation else 0.0  # [s]
        self._start = DualPrices(*np.zeros((2, scenario.num_devices)))
        if start == "settled":
            energy = energy_start(self.prices, jump, scenario)
            self._start = DualPrices(energy, self.prices.participation)
        self.solution: RoundSolution | None = None
        self.reset(0)

    def __getstate__(self) -> dict[str, Any]:
        """The policy without its last solution, which decides nothing."""
        return vars(self) | {"solution": None}

    def reset(self, seed: int | Sequence[int]) -> None:
        """Start at the prices of the start, in each system of a batch; see `Policy.reset`."""
        super().reset(seed)
        shape = (*np.shape(seed), self.scenario.num_devices)
        self._duals = DualPrices(*(np.broadcast_to(p, shape) for p in self.prices))
        self._energy, self._participation = (np.broadcast_to(p, shape) for p in self._start)

    def feedback(self, info: Mapping[str, Any]) -> None:
        """Move the prices by the energy that the round took; see `Policy.feedback`."""
        if "energy_spent" not in info:
            return
        spent = info["energy_spent"]
        excess = spent - self.scenario.energy_budget_j
        self._energy = np.maximum(self._energy + self._energy_step * excess, 0.0)
        missing = self._target - in_time(info)
        self._participation = self._participation + self._participation_step * missing

    def state(self) -> dict[str, NDArray[Any]]:
        """The prices; see `Policy.state`."""
        prices = {"energy": self._energy.copy(), "participation": self._participation.copy()}
        return prices | super().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up saved prices; see `Policy.restore`."""
        super().restore(state)
        if self._learns is not None:
            # As they were: a device that nobody measured has the initial ones.
            self._duals = self._measured(self._learns, np.isfinite(self._learns.age), self.prices)
        energy = saved_array(state, "energy", self._energy)
        participation = saved_array(state, "participation", self._energy, any_sign=True)
        self._energy, self._participation = energy.astype(float), participation.astype(float)

    def _follow(self) -> None:
        """Move the prices with the dual ones of the devices that the last round has measured."""
        if self._learns is None or not np.any(self._learns.age == 1.0):
            return
        old = self._duals
        self._duals = self._measured(self._learns, self._learns.age == 1.0, old)
        self._energy = np.maximum(self._energy + self._duals.energy - old.energy, 0.0)
        moved = self._duals.participation - old.participation
        self._participation = self._participation + moved

    def _measured(
        self, estimator: GainEstimator, devices: BoolArray, others: DualPrices
    ) -> DualPrices:
        """Dual prices of some devices by what is believed of them now, and those of the others."""
        first = self.prices.energy
        found = law_prices(
            estimator.long_run_law(),
            self.scenario,
            persistence=estimator.persistence,
            most=np.where(first > 0, _MOST_OVER_FIRST * first, np.inf),
            only=devices,
        )
        return DualPrices(
            *(np.where(devices, new, old) for new, old in zip(found, others, strict=True))
        )

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """Minimise the cost of the round; see `Policy.decide`."""
        present = self.belief.present_gain(observation)
        self._follow()
        shape = np.shape(observed(observation)[0])
        energy, participation = (
            np.broadcast_to(price, shape) if price.ndim < len(shape) else price
            for price in (self._energy, self._participation)
        )
        self.solution = solve_round(
            present,
            energy,
            participation,
            self.scenario,
            V=1.0,
            tolerance=_TOLERANCE,
            available=available(observation),
        )
        cohort = _cohorts(self.solution, min(self.scenario.cohort_size, shape[-1]))
        # A device that takes part in a share rho of the rounds counts w / rho each time.
        weights = (self.scenario.weights / self._target)[cohort]
        return Allocation(self.solution.f, self.solution.p, cohort=cohort, weights=weights)


def _check_prices(prices: object, scenario: Scenario) -> None:
    if not isinstance(prices, DualPrices):
        raise ValueError(f"prices must be DualPrices, got {prices!r}")
    for name, values in prices._asdict().items():
        given = real_array(f"prices.{name}", values)
        if given.shape != (scenario.num_devices,) or not np.isfinite(given).all():
            raise ValueError(
                f"prices.{name} must hold {scenario.num_devices} finite numbers, one for each "
                f"device, got {values!r}"
            )
    if np.min(prices.energy) < 0:
        raise ValueError(f"prices.energy must be at least zero, got {np.min(prices.energy)}")


def _cohorts(solution: RoundSolution, size: int) -> IntArray:
    """The devices that take part, ascending, filled up with -1 to shape (..., size)."""
    # Stable: devices that take part come first, in their order.
    order = np.argsort(~solution.participates, axis=-1, kind="stable")[..., :size]
    taking = np.take_along_axis(solution.participates, order, axis=-1)
    cohort: IntArray = np.where(taking, order, -1)
    return cohort

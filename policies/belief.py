"""Belief about the gains of the coming round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario
from fl_edge_env.channels import GainLaw, conditional_law
from fl_edge_env.channels.protocol import conditional_law_after, has_conditional
from fl_edge_env.checks import observed
from fl_edge_env.spaces import NEVER_MEASURED
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.estimate import GainEstimator

# What a policy makes of gains that are not those of the coming round: the law of these given them,
# with which times and energies are expected ones, or the gains of the coming round themselves.
Delay = Literal["expected", "ignored"]

# Sets what is learnt of the gains apart from what else a policy saves.
_PREFIX = "belief_"


class Belief:
    """Knowledge of the present gains, from the observation and the scenario.

    Where the observed gains are the present ones, these. Where they are those of the round before
    (``csi="delayed"``), the law of the present ones given them. Where they are each device's at
    its last participation (``csi="participants"``), the law given these and their ages, if the
    channel tells it because all devices are alike to it; else that of a
    `policies.estimate.GainEstimator`, which learns each device's mean from its measurements. What
    it has learnt is its state: `present_gain` is then to be called once in every round.

    Parameters
    ----------
    scenario : Scenario
        The system.
    delay : {"expected", "ignored"}
        Whether old gains lead to a law, or are taken for the present ones.

    Attributes
    ----------
    estimator : policies.estimate.GainEstimator or None
        What learns, if there is anything to learn.

    Raises
    ------
    ValueError
        If `delay` is neither, or the channel state is delayed and the channel cannot tell the law
        of its gains (see `fl_edge_env.channels.conditional_law`).
    """

    def __init__(self, scenario: Scenario, delay: Delay = "expected") -> None:
        if not isinstance(delay, str) or delay not in get_args(Delay):
            raise ValueError(f"delay must be 'expected' or 'ignored', got {delay!r}")
        self._channel = scenario.channel
        self._csi = scenario.csi if delay == "expected" else "full"
        self.estimator: GainEstimator | None = None
        if self._csi == "participants" and not hasattr(scenario.channel, "conditional_after"):
            self.estimator = GainEstimator(scenario)
        if self._csi == "delayed" and not has_conditional(scenario.channel):
            raise ValueError(
                "the observed gains are those of the round before, and "
                f"{type(scenario.channel).__name__} does not say how likely each gain is after "
                "them: give the channel a method conditional(previous) that returns a GainLaw, "
                "or take the old gains for the present ones with delay='ignored'"
            )

    def present_gain(self, observation: Mapping[str, FloatArray]) -> FloatArray | GainLaw:
        """The gains of the coming round, (N,) or (B, N), or the law of them."""
        gain, _ = observed(observation)
        if self._csi == "full":
            return gain
        if self._csi == "delayed":
            return conditional_law(self._channel, gain)
        age = observation["age"]
        if self.estimator is None:
            # A gain that was not measured yet says nothing.
            known = np.where(age >= NEVER_MEASURED, np.inf, age)
            return conditional_law_after(self._channel, gain, known)
        self.estimator.update(gain, age == 1.0)
        return self.estimator.law()

    def reset(self, batch: tuple[int, ...]) -> None:
        """Forget what was learnt; see `GainEstimator.reset`."""
        if self.estimator is not None:
            self.estimator.reset(batch)

    def state(self) -> dict[str, NDArray[Any]]:
        """The estimator's state, by name; see `Policy.state`."""
        if self.estimator is None:
            return {}
        return {f"{_PREFIX}{name}": value for name, value in self.estimator.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` gave, among what else a policy has saved; see `Policy.restore`."""
        if self.estimator is not None:
            own = (name for name in state if name.startswith(_PREFIX))
            self.estimator.restore({name.removeprefix(_PREFIX): state[name] for name in own})


class BelievingPolicy(Policy):
    """A policy that decides on a `Belief`, which is part of its state."""

    def __init__(self, scenario: Scenario, delay: Delay = "expected") -> None:
        super().__init__(scenario)
        self.belief = Belief(scenario, delay)

    def reset(self, seed: int | Sequence[int]) -> None:
        """Forget the last episode; see `Policy.reset`."""
        self.belief.reset(np.shape(seed))

    def state(self) -> dict[str, NDArray[Any]]:
        """The state of the belief; see `Policy.state`."""
        return self.belief.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` gave; see `Policy.restore`."""
        self.belief.restore(state)


def best_delay(scenario: Scenario) -> Delay:
    """The `delay` of a policy that others are compared with.

    It is ``"ignored"`` only where the channel cannot tell the law of its gains.
    """
    cannot = scenario.csi == "delayed" and not has_conditional(scenario.channel)
    return "ignored" if cannot else "expected"

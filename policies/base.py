"""The base class of all policies."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fl_edge_env import Allocation, Scenario
from fl_edge_env.channels.recorded import RecordedChannel
from fl_edge_env.typing import Info, Observed


def check_scenario(scenario: object) -> None:
    """Raise `ValueError` if this is not a `Scenario`, such as the name of a preset."""
    if not isinstance(scenario, Scenario):
        instead = f": use Scenario.preset({scenario!r})" if isinstance(scenario, str) else ""
        raise ValueError(f"scenario must be a Scenario, got {scenario!r}{instead}")


def without_future(scenario: Scenario) -> Scenario:
    """The scenario that policies may see, without the order of recorded gains: the future."""
    check_scenario(scenario)
    if not isinstance(scenario.channel, RecordedChannel):
        return scenario
    with warnings.catch_warnings(action="ignore"):  # the original scenario has warned already
        return scenario.replace(channel=scenario.channel.unordered())


def checked_decision(policy: Policy, decision: object) -> Allocation:
    """Return what a policy has decided; `ValueError` if this is not an `Allocation`."""
    # A tuple would pass as a point of the box, and a subclass may misreport its fields.
    if type(decision) is not Allocation:
        kind = type(decision).__name__
        raise ValueError(f"decide of {policy.name} must return an Allocation, got {kind}")
    return decision


class Named(ABC):
    """Base of policies and selectors: a scenario and a name, by default the class's."""

    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, scenario: Scenario) -> None:
        check_scenario(scenario)
        self.scenario = scenario


class Policy(Named):
    """Decides each round, using only the observation and the scenario.

    A new policy needs only the method `decide`. An interrupted training run can resume if its
    policy can be pickled.

    Parameters
    ----------
    scenario : Scenario
        The system it controls.

    Attributes
    ----------
    name : str
        Name in tables and plots; the class name by default.
    uses_gradients : bool
        True if `feedback` needs `gradient_distance`, see `train_fl.TrainingWrapper`.
    uses_losses : bool
        True if `feedback` needs `local_losses` and `local_loss_rms`.
    uses_update_norms : bool
        True if `feedback` needs the `update_norms` of all devices before the first round.
    needs_training : bool
        True if the policy cannot decide without such reports; it then runs only with training.
    """

    uses_gradients: bool = False
    uses_losses: bool = False
    uses_update_norms: bool = False
    needs_training: bool = False

    @abstractmethod
    def decide(self, observation: Observed) -> Allocation:
        """Decide the coming round.

        Parameters
        ----------
        observation : mapping
            ``channel_gain`` and ``queue`` [J], read-only arrays of shape (N,) or, for a batch of
            independent systems, (B, N).

        Returns
        -------
        Allocation
            A decision whose fields have the observation's shape or broadcast to it.
        """

    def reset(self, seed: int | Sequence[int]) -> None:
        """Start an episode; a batch has one seed for each system.

        Parameters
        ----------
        seed : int or sequence of int
            For policies that draw random numbers. It does not reveal the environment's seed; see
            `fl_edge_env.streams.policy_seed`.
        """

    def feedback(self, info: Info) -> None:
        """Learn from the info of a reset or a round.

        Parameters
        ----------
        info : mapping
            The environment's info, whose arrays are read-only.
        """

"""What a policy takes the gains of the coming round to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from fl_edge_env import Scenario
from fl_edge_env.channels import GainLaw, conditional_law
from fl_edge_env.channels.protocol import has_conditional
from fl_edge_env.checks import observed
from fl_edge_env.typing import FloatArray

# What a policy makes of gains that are those of the round before: the law of the present ones given
# them, with which times and energies are expected ones, or the present gains themselves.
Delay = Literal["expected", "ignored"]


class Belief:
    """What is known of the present gains, from the observation and the scenario.

    Where the observed gains are the present ones, these; where they are those of the round before
    (``delayed_csi=True``), the law of the present ones given them.

    Parameters
    ----------
    scenario : Scenario
        The system.
    delay : {"expected", "ignored"}
        Whether old gains lead to a law, or are taken for the present ones.

    Raises
    ------
    ValueError
        If `delay` is neither, or the channel state is delayed and the channel cannot tell the law
        of its gains (see `fl_edge_env.channels.conditional_law`).
    """

    def __init__(self, scenario: Scenario, delay: Delay = "expected") -> None:
        if not isinstance(delay, str) or delay not in get_args(Delay):
            raise ValueError(f"delay must be 'expected' or 'ignored', got {delay!r}")
        self._channel = None
        if scenario.delayed_csi and delay == "expected":
            self._channel = scenario.channel
            if not has_conditional(scenario.channel):
                raise ValueError(
                    "the observed gains are those of the round before, and "
                    f"{type(scenario.channel).__name__} does not say how likely each gain is after "
                    "them: give the channel a method conditional(previous) that returns a GainLaw, "
                    "or take the old gains for the present ones with delay='ignored'"
                )

    def present_gain(self, observation: Mapping[str, FloatArray]) -> FloatArray | GainLaw:
        """The gains of the coming round, or the law of them.

        Parameters
        ----------
        observation : mapping
            With ``channel_gain`` and ``queue``, of shape (N,) or (B, N).

        Returns
        -------
        ndarray, shape (N,) or (B, N), or GainLaw, shape (N, J) or (B, N, J)
        """
        gain, _ = observed(observation)
        return gain if self._channel is None else conditional_law(self._channel, gain)


def best_delay(scenario: Scenario) -> Delay:
    """What a policy that is there to be compared with makes of old gains: all that it can.

    Parameters
    ----------
    scenario : Scenario
        The system.

    Returns
    -------
    {"expected", "ignored"}
        The latter only where the channel cannot tell the law of its gains.
    """
    cannot = scenario.delayed_csi and not has_conditional(scenario.channel)
    return "ignored" if cannot else "expected"

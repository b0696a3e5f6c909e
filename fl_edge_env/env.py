"""The single environment: the simulator with Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import one_of
from fl_edge_env.core import EnvCore, ScenarioSource, check_softmax_scale, resolve_scenario
from fl_edge_env.round import Round
from fl_edge_env.simulator import Simulator
from fl_edge_env.spaces import action_space, observation_space
from fl_edge_env.typing import FloatArray

Observation = dict[str, FloatArray]


class FLEdgeEnv(EnvCore, gym.Env[Any, Any]):
    """Client scheduling and resource allocation for federated learning at the wireless edge.

    ## Description
    N devices share the uplink of a server. In each round the server observes the channel gains,
    sets the CPU frequency, transmission power and sampling probability of every device, draws K
    devices with replacement, and waits for the slowest of them. The aim is to minimise the
    time-average round time and the sampling error while each device's time-average energy stays
    within its budget. Virtual queues track how far each device is over its budget.

    ## Action Space
    ``Box(-1, 1, (3, N), float32)`` with rows f, p and q. The rows f and p map linearly to the
    ranges of the scenario; a softmax turns the scores in row q into sampling probabilities. The
    zero action is the middle of both ranges with uniform sampling. Entries outside the box are
    clipped; NaN raises `ValueError`. `step` also accepts an `Allocation` in SI units, which may
    name the cohort. With ``objective="outcome"`` the third row ranks the devices, and the K devices
    with the highest scores form the cohort.

    ## Observation Space
    ``Dict(channel_gain, queue)``, both float64 of shape (N,): the gains of the coming round and the
    energy queues [J]. With ``csi="delayed"`` the gains are one round old. With
    ``csi="participants"`` each gain is from the device's last participation, and ``age`` counts the
    rounds since; before the first participation the gain is the channel's mean and the age is
    `fl_edge_env.spaces.NEVER_MEASURED`, 2^31. ``objective="outcome"`` adds ``participation_queue``
    [rounds]. If devices can drop out (``availability`` below 1), ``available`` is 1 for available
    devices and 0 for the others, float64 of shape (N,).

    ## Rewards
    The negative drift-plus-penalty, ``-(V (sum q T + lambda sum w^2/q) + sum Q a)`` [J^2], with its
    terms in ``info``. With ``latency="round_time"`` the expected longest time in the cohort
    replaces ``sum q T``. A decision that names its cohort has no sampling error; its reward is
    ``-(V max T + sum Q a)`` with the longest time in the cohort.

    With ``objective="outcome"`` the problem is a constrained Markov decision process (CMDP). The
    reward is minus the round time, divided by the scenario's mean time. The info has ``costs``,
    shape (2 N,): each device's ratio of energy to budget, then its missing participation,
    ``2 - x / rho`` (see `fl_edge_env.round.Round`). In the long run the mean of each must be at
    most `cost_limit`, 1; over R rounds, 1 + 1 / (R rho) allows for one participation. ``cost`` is
    the mean of the N energy ratios. ``gym.make("FLEdgeCMDP-v0")``
    is this problem with the observations and actions of `FlatEnv`.

    ## Starting State
    Empty queues and the first draw of the channel.

    ## Episode End
    An episode is truncated after ``num_rounds`` rounds; it never terminates.

    ## Info
    The fields of `fl_edge_env.round.Round` for this system: times [s], energies [J], the cohort and
    the terms of the reward. Undefined fields, and those the server cannot know, are left out.
    ``available`` and ``q`` are present if devices can drop out, ``failed`` if uploads can fail, and
    ``late`` if the server does not wait for the whole cohort.

    ## Arguments
    ``gym.make("FLEdge-v0", scenario="cifar10", softmax_scale=2.0, **fields)``. Every field of
    `Scenario` is a keyword, for example ``cohort_size=4`` or ``channel="markov:0.8"``, as are
    ``tiers`` and ``work`` of `fl_edge_env.scenario.tiers.with_named_devices`.

    ## Rendering
    With ``render_mode="rgb_array"``, `render` draws the last round. Gymnasium's ``HumanRendering``
    wrapper shows it in a window; ``RecordVideo`` records a video.

    ## Version History
    * v0: initial version

    Parameters
    ----------
    scenario : Scenario, str or dict
        The system, the name of a preset, a TOML file of `Scenario.save`, or its values.
    softmax_scale : float
        Factor on the scores in the q row of an action.
    render_mode : {"rgb_array"}, optional
        Required for `render`; it does not slow down steps.
    **fields
        Fields of the scenario to change.

    Raises
    ------
    ValueError
        If a field or the render mode is invalid, or the preset does not exist.
    TypeError
        If a keyword is not a field of `Scenario`.
    """

    metadata = {  # noqa: RUF012 - Gymnasium requires this attribute
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        scenario: ScenarioSource = "cifar10",
        *,
        softmax_scale: float = 2.0,
        render_mode: str | None = None,
        **fields: Any,
    ) -> None:
        if render_mode is not None:
            one_of("render_mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self._scenario = resolve_scenario(scenario, **fields)
        self._softmax_scale = check_softmax_scale(softmax_scale)
        self._simulator = Simulator(self.scenario)
        self.observation_space = observation_space(self.scenario)
        self.action_space = action_space(self.scenario)
        self._started = False

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; a seed also determines the unseeded episodes that follow.

        Returns the observation and an empty info. No `options` are supported.
        """
        if options:
            raise ValueError(f"reset takes no options, got {options!r}")
        super().reset(seed=seed)
        self.simulator.reset([seed])
        self._started = True
        self._last_round = self.last_decision = None
        self._observation = self._decided_on = self.simulator.observe()
        return dict(self._observation), {}

    def _check_under_way(self) -> None:
        if not self._started or self.simulator.done:
            raise gym.error.ResetNeeded("no episode is under way: call reset() before step()")

    def _observe(self) -> Observation:
        self._decided_on = self._observation
        self._observation = super()._observe()
        return dict(self._observation)

    def _reward(self, outcome: Round) -> float:
        return float(outcome.reward)

    def _end(self) -> tuple[bool, bool]:
        return False, bool(self.simulator.done)

    def render(self) -> NDArray[np.uint8]:
        """Draw the last round: every device, the cohort, time and energy.

        Returns a uint8 picture of shape (800, 1200, 3). Raises `gymnasium.error.ResetNeeded` before
        the first reset, and `gymnasium.error.Error` without a render mode.
        """
        if self.render_mode is None:
            raise gym.error.Error(
                'render needs a render_mode: gym.make("FLEdge-v0", render_mode="rgb_array")'
            )
        if not self._started:
            raise gym.error.ResetNeeded("no episode is under way: call reset() before render()")
        from fl_edge_env.rendering import draw  # only rendering needs matplotlib

        return draw(
            self.scenario,
            int(self.simulator.round_index),
            self._decided_on,
            self.last_decision,
            self._last_round,
        )

    @property
    def training_seed(self) -> np.random.SeedSequence:
        """Seed of the training stream in the current episode; `ResetNeeded` before the first."""
        if not self._started:
            raise gym.error.ResetNeeded("no episode is under way: call reset() first")
        return self.simulator.training_seed()

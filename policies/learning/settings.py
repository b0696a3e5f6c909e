"""The settings of a learning agent: what it sees, how it is rewarded, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number, is_real, positive_integer
from fl_edge_env.env import check_softmax_scale
from policies.learning.credit import Credit
from policies.learning.views import (
    DeviceView,
    check_credit,
    check_empty_starts,
    check_training_seed,
)

# Initial logarithm of the standard deviation of actions; 0 would fill their box.
_LOG_STD = -1.5
# Steps between updates, minibatches in an epoch, and epochs.
_STEPS, _MINIBATCHES, _EPOCHS = 8, 8, 5


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """A PPO agent that decides for each device on its own, and its training.

    Attributes
    ----------
    credit : {"difference", "team"}
        Reward of a device; see `policies.learning.views.DeviceView`.
    num_envs : int
        Systems played at a time.
    episode_rounds : int
        Length of a training episode [rounds].
    gamma : float
        Discount factor. The reward of a round holds the price of its energy, so 0 fits it.
    learning_rate : float
        At the start; it falls linearly to zero.
    width : int
        Size of the two hidden layers.
    nu_factor : float
        Factor on the scenario's nu in training. Below one it makes energy dearer, a margin for
        what the agent misses of the optimum.
    softmax_scale : float
        As in `FLEdgeEnv`.
    empty_starts : float
        Share of the training episodes that start with empty queues, the others with random ones.
    seed : int
        Training seed.

    Raises
    ------
    ValueError
        If a value is wrong.
    """

    credit: Credit = "difference"
    num_envs: int = 8
    episode_rounds: int = 200
    gamma: float = 0.0
    learning_rate: float = 1e-3
    width: int = 64
    nu_factor: float = 0.97
    softmax_scale: float = 2.0
    empty_starts: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_credit(self.credit)
        check_training_seed(self.seed)
        for name in ("num_envs", "episode_rounds", "width"):
            positive_integer(name, getattr(self, name))
        for name in ("learning_rate", "nu_factor"):
            finite_number(name, getattr(self, name))
        if not (is_real(self.gamma) and 0 <= self.gamma < 1):
            raise ValueError(f"gamma must lie in [0, 1), got {self.gamma!r}")
        check_softmax_scale(self.softmax_scale)
        check_empty_starts(self.empty_starts)
        kinds = {"int": int, "float": float}
        for field in fields(self):  # also from NumPy's numbers
            if (kind := kinds.get(str(field.type))) is not None:
                object.__setattr__(self, field.name, kind(getattr(self, field.name)))

    @property
    def label(self) -> str:
        """Name of the agent for all training seeds, such as "PPO privileged".

        It is *privileged* if its rewards use the model of the system.
        """
        return "PPO privileged" if self.credit == "difference" else "PPO team"

    def training_scenario(self, scenario: Scenario) -> Scenario:
        """The scenario with the nu that the agent is trained with."""
        return scenario.reweighted(nu=self.nu_factor)

    def make_view(self, scenario: Scenario) -> DeviceView:
        """The rows of training episodes in the scenario in which the agent is to act."""
        return DeviceView(
            self.training_scenario(scenario).replace(num_rounds=self.episode_rounds),
            self.num_envs,
            seed=self.seed,
            credit=self.credit,
            softmax_scale=self.softmax_scale,
            empty_starts=self.empty_starts,
        )

    def make_model(self, rows: VecEnv, learning_rate: Callable[[float], float]) -> PPO:
        """The untrained agent, with a learning rate over the remaining progress."""
        return PPO(
            "MlpPolicy",
            rows,
            learning_rate=learning_rate,
            n_steps=_STEPS,
            batch_size=rows.num_envs * _STEPS // _MINIBATCHES,
            n_epochs=_EPOCHS,
            gamma=self.gamma,
            gae_lambda=1.0,
            target_kl=0.05,
            policy_kwargs=self._policy_options,
            seed=self.seed,
            device="cpu",
        )

    def make_network(self, scenario: Scenario) -> ActorCriticPolicy:
        """The network alone, to be filled with trained weights."""
        view = replace(self, num_envs=1).make_view(scenario)
        return ActorCriticPolicy(
            view.observation_space, view.action_space, lambda _: 0.0, **self._policy_options
        )

    @property
    def _policy_options(self) -> dict[str, Any]:
        return {"log_std_init": _LOG_STD, "net_arch": [self.width, self.width]}

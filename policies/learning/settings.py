"""What a learning agent is: its algorithm, what it sees, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import BasePolicy

from fl_edge_env import Scenario
from fl_edge_env.checks import finite_number, integer_at_least, is_real, positive_integer
from fl_edge_env.env import check_softmax_scale
from policies.learning.credit import CREDITS, Credit
from policies.learning.networks import SharedNetworkPolicy
from policies.learning.views import (
    AgentView,
    DeviceView,
    JointView,
    check_empty_starts,
    check_training_seed,
)
from policies.outcome import settled_scenario

Algorithm = Literal["ppo", "sac", "td3"]
View = Literal["devices", "joint"]
Network = Literal["mlp", "shared"]

_ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"ppo": PPO, "sac": SAC, "td3": TD3}


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """An agent and its training; the defaults are those of the README's first agent.

    Attributes
    ----------
    algorithm : {"ppo", "sac", "td3"}
        Algorithm of Stable-Baselines3.
    view : {"devices", "joint"}
        Whether the agent decides for each device on its own, or for all together.
    network : {"mlp", "shared"}
        In the joint view a plain network of a fixed number of devices, or one that is shared by
        the devices (PPO only). The device view shares a plain network anyway.
    credit : {"difference", "local", "team"}
        Reward of a device in the device view; see `DeviceView`. In the joint view the default
        is the only one.
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
        what the agent misses of the optimum. Where the objective is the outcome it is a factor on
        the V of the settled scenario: below one the prices take larger steps.
    softmax_scale : float
        As in `FLEdgeEnv`.
    empty_starts : float
        Share of the training episodes that start with empty queues, the others with random ones.
        Where the objective is the outcome, settled queues are in the place of empty ones.
    imitation_rounds : int
        Rounds of all systems together in which the agent first learns to decide as one who knows
        all gains, see `policies.learning.imitation`; 0 for none. For PPO in the view of devices,
        where the objective is the outcome.
    seed : int
        Training seed.

    Raises
    ------
    ValueError
        If a value is wrong, or a network does not fit the algorithm or the view.
    """

    algorithm: Algorithm = "ppo"
    view: View = "devices"
    network: Network = "mlp"
    credit: Credit = "difference"
    num_envs: int = 8
    episode_rounds: int = 200
    gamma: float = 0.0
    learning_rate: float = 1e-3
    width: int = 64
    nu_factor: float = 0.97
    softmax_scale: float = 2.0
    empty_starts: float = 0.0
    imitation_rounds: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in _ALGORITHMS:
            raise ValueError(
                f"algorithm must be one of {', '.join(_ALGORITHMS)}, which act in continuous "
                f"spaces, got {self.algorithm!r}"
            )
        for name, allowed in (("view", get_args(View)), ("credit", CREDITS)):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if self.network not in get_args(Network):
            raise ValueError(
                "network must be mlp or shared, as observations are arrays and not dictionaries, "
                f"got {self.network!r}"
            )
        if self.network == "shared" and (self.view, self.algorithm) != ("joint", "ppo"):
            raise ValueError(
                "network 'shared' is for the view 'joint' and the algorithm 'ppo': use 'mlp', "
                f"got view {self.view!r} and algorithm {self.algorithm!r}"
            )
        check_training_seed(self.seed)
        if self.view == "joint" and self.credit != "difference":
            raise ValueError(f"credit is for the view 'devices', got {self.credit!r} in 'joint'")
        integer_at_least(0, "imitation_rounds", self.imitation_rounds)
        if self.imitation_rounds and (self.view, self.algorithm) != ("devices", "ppo"):
            raise ValueError(
                "imitation_rounds are for the view 'devices' and the algorithm 'ppo', "
                f"got view {self.view!r} and algorithm {self.algorithm!r}"
            )
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
        """Name of the agent, whatever its training seed.

        The algorithm with, in the device view, ``team``, ``local`` or, for difference rewards,
        which use the system's model, ``privileged``; in the joint view ``shared`` or ``plain``.
        ``taught`` comes before it where the agent began with a teacher.
        """
        kind = self.network if self.view == "joint" else self.credit
        names = {"difference": "privileged", "mlp": "plain"}
        taught = "taught " if self.imitation_rounds else ""
        return f"{self.algorithm.upper()} {taught}{names.get(kind, kind)}"

    @property
    def needs_number_of_devices(self) -> bool:
        """Whether the network is for one number of devices only."""
        return self.view == "joint" and self.network == "mlp"

    @property
    def algorithm_class(self) -> type[BaseAlgorithm]:
        """The algorithm's class in Stable-Baselines3."""
        return _ALGORITHMS[self.algorithm]

    def training_scenario(self, scenario: Scenario) -> Scenario:
        """The scenario with the nu that the agent is trained with.

        Where the objective is the outcome, it is a settled one; see
        `policies.outcome.settled_scenario`.
        """
        if scenario.objective == "outcome":
            return settled_scenario(scenario, step_scale=1.0 / self.nu_factor)
        return scenario.reweighted(nu=self.nu_factor)

    def make_view(self, scenario: Scenario) -> AgentView:
        """The rows of training episodes in a scenario.

        Parameters
        ----------
        scenario : Scenario
            The system in which the agent is to act.
        """
        system = self.training_scenario(scenario).replace(num_rounds=self.episode_rounds)
        options: dict[str, Any] = {
            "seed": self.seed,
            "softmax_scale": self.softmax_scale,
            "empty_starts": self.empty_starts,
        }
        if self.view == "joint":
            return JointView(system, self.num_envs, **options)
        return DeviceView(system, self.num_envs, credit=self.credit, **options)

    def make_model(self, view: AgentView, learning_rate: Callable[[float], float]) -> BaseAlgorithm:
        """The untrained agent.

        Parameters
        ----------
        view : AgentView
            The rows that it is trained on.
        learning_rate : callable
            Learning rate over the remaining progress.
        """
        options: dict[str, Any]
        if self.algorithm == "ppo":
            steps, minibatches, epochs = _ON_POLICY[self.view]
            size = view.num_envs * steps // minibatches
            options = {
                "n_steps": steps,
                "n_epochs": epochs,
                "batch_size": size,
                "gae_lambda": 1.0,
                "target_kl": 0.05,
            }
        else:
            first, capacity = _OFF_POLICY[self.view]
            options = {
                "learning_starts": first,
                "buffer_size": capacity,
                "batch_size": 1024,
                "train_freq": 1,
                "gradient_steps": 8,
            }
        if self.algorithm == "td3":
            assert view.action_space.shape is not None
            noise = np.full(view.action_space.shape, 0.1)
            options["action_noise"] = NormalActionNoise(np.zeros_like(noise), noise)
        kind: Any = self.algorithm_class
        model: BaseAlgorithm = kind(
            self._policy_class,
            view,
            learning_rate=learning_rate,
            gamma=self.gamma,
            policy_kwargs=self._policy_options,
            seed=self.seed,
            device="cpu",
            **options,
        )
        return model

    def make_network(self, scenario: Scenario) -> BasePolicy:
        """The network alone, to be filled with trained weights.

        Parameters
        ----------
        scenario : Scenario
            The system in which the agent is to act.
        """
        view = replace(self, num_envs=1).make_view(scenario)
        kind: Any = self._policy_class
        network: BasePolicy = kind(
            view.observation_space, view.action_space, lambda _: 0.0, **self._policy_options
        )
        return network

    @property
    def _policy_class(self) -> type[BasePolicy]:
        if self.network == "shared":
            return SharedNetworkPolicy
        return self.algorithm_class.policy_aliases["MlpPolicy"]

    @property
    def _policy_options(self) -> dict[str, Any]:
        first = _TAUGHT_LOG_STD if self.imitation_rounds else _LOG_STD
        noise = {"log_std_init": first} if self.algorithm == "ppo" else {}
        if self.network == "shared":
            return noise | {"width": self.width}
        return noise | {"net_arch": [self.width, self.width]}


# Initial logarithm of PPO's standard deviation; 0 would fill the box of actions.
_LOG_STD = -1.5
# After a teacher, whose scores tell small differences.
_TAUGHT_LOG_STD = -2.5
# Of PPO: steps between updates, minibatches in an epoch, epochs.
_ON_POLICY = {"devices": (8, 8, 5), "joint": (32, 4, 4)}
# Of SAC and TD3: rows before learning starts, and capacity of the replay buffer.
_OFF_POLICY = {"devices": (5_000, 300_000), "joint": (500, 20_000)}

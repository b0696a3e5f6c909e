"""PPO of TorchRL on the native batch of flat environments, with its info reader.

python examples/train_torchrl.py

It trains for about a minute on one core, and prints the mean reward of a round before and after,
beside that of Uni-D. The extra `torchrl` installs the library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import tyro
from small_system import SYSTEM, make_batch, mean_reward, uni_d_reward
from tensordict import TensorDict
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch import nn
from torchrl.envs import EnvBase, GymWrapper
from torchrl.envs.utils import ExplorationType
from torchrl.modules import IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


@dataclass
class Settings:
    """What can be set from the command line."""

    seed: int = 0
    num_envs: int = 10
    updates: int = 100
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3


def make_env(num_envs: int) -> EnvBase:
    """The batch, whose rollouts hold the info of each round under its names.

    TorchRL starts the episodes itself, so that the batch must not.
    """
    batch = make_batch(num_envs, autoreset_mode="Disabled")
    return GymWrapper(batch).auto_register_info_dict()


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers; the outputs start near 0."""
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, 0.01)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), last)


def make_agent(env: EnvBase) -> tuple[ProbabilisticActor, ValueOperator]:
    """Actor and critic; what leaves [-1, 1] is clipped by the environment."""
    inputs, actions = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    spread = AddStateIndependentNormalScale(actions, init_value=-1.0)
    module = nn.Sequential(network(inputs, actions), spread)
    actor = ProbabilisticActor(
        TensorDictModule(module, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal,
        default_interaction_type=ExplorationType.RANDOM,  # without it rollouts do not explore
        return_log_prob=True,
    )
    return actor, ValueOperator(network(inputs, 1), in_keys=["observation"])


def train(
    env: EnvBase, actor: ProbabilisticActor, critic: ValueOperator, settings: Settings
) -> float:
    """Improve the agent; gives the mean length of a round in the last episodes [s]."""
    # Discount factor 0: the reward of a round already weighs its energy by the queues.
    advantage = GAE(gamma=0.0, lmbda=0.0, value_network=critic)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0, normalize_advantage=True)
    optimizer = torch.optim.Adam(loss.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, settings.updates)
    for _ in range(settings.updates):
        with torch.no_grad():
            played = env.rollout(SYSTEM["num_rounds"], actor)
            advantage(played)
        rounds = played.reshape(-1)
        for _ in range(settings.epochs):
            for part in torch.randperm(len(rounds)).chunk(settings.minibatches):
                parts = loss(rounds[part])
                optimizer.zero_grad()
                (parts["loss_objective"] + parts["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        schedule.step()
    return float(played["next", "round_time"].mean())


def main(settings: Settings) -> None:
    """Train, and compare with Uni-D."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    env = make_env(settings.num_envs)
    env.set_seed(1000 + 1000 * settings.seed)
    actor, critic = make_agent(env)

    def decide(observation: np.ndarray) -> np.ndarray:
        batch = TensorDict({"observation": torch.as_tensor(observation)}, [len(observation)])
        with torch.no_grad():
            return actor.get_dist(batch).mean.numpy()

    print(f"Uni-D           {uni_d_reward():6.2f}")
    print(f"before training {mean_reward(decide):6.2f}")
    round_time = train(env, actor, critic, settings)
    print(f"after training  {mean_reward(decide):6.2f}")
    print(f"A round took {round_time:.0f} s in the last episodes of the training.")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

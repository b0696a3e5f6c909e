"""PPO of RLlib with its default networks, on the flat environment.

python examples/train_rllib.py

It trains for one or two minutes on one core, and prints the mean reward of a round before and
after, beside that of Uni-D. The extra `rllib` installs the library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import ray
import torch
import tyro
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from small_system import SYSTEM, mean_reward, uni_d_reward


@dataclass
class Settings:
    """What can be set from the command line."""

    seed: int = 0
    num_envs: int = 10
    updates: int = 20
    rounds: int = 1000  # of all environments together, between two updates


def make_config(settings: Settings) -> PPOConfig:
    """PPO in this process alone, with separate networks for policy and value.

    With the module's name before the colon, RLlib's workers know the environment, too.
    """
    return (
        PPOConfig()
        .environment("fl_edge_env:FLEdgeFlat-v0", env_config=SYSTEM)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=settings.num_envs)
        .training(
            gamma=0.0,  # the reward of a round already weighs its energy by the queues
            lambda_=0.0,
            lr=1e-3,
            vf_clip_param=1e3,
            train_batch_size_per_learner=settings.rounds,
            minibatch_size=settings.rounds // 4,
            num_epochs=4,
            grad_clip=0.5,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64, 64],
                fcnet_activation="tanh",
                vf_share_layers=False,
                free_log_std=True,
            )
        )
        .debugging(seed=settings.seed, log_level="ERROR")
    )


def main(settings: Settings) -> None:
    """Train, and compare with Uni-D."""
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    algorithm = make_config(settings).build_algo()
    module = algorithm.get_module()

    def decide(observation: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = module.forward_inference({"obs": torch.as_tensor(observation)})
        mean, _ = out["action_dist_inputs"].chunk(2, dim=-1)
        return mean.numpy()

    print(f"Uni-D           {uni_d_reward():6.2f}")
    print(f"before training {mean_reward(decide):6.2f}")
    for _ in range(settings.updates):
        algorithm.train()
    print(f"after training  {mean_reward(decide):6.2f}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

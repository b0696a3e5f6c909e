"""PPO in one file, in the style of CleanRL, on the native batch of flat environments.

python examples/train_ppo.py

It trains for about a minute on one core, and prints the mean reward of a round before and after,
beside that of Uni-D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import tyro
from small_system import make_batch, mean_reward, uni_d_reward
from torch import nn
from torch.distributions import Normal


@dataclass
class Settings:
    """What can be set from the command line."""

    seed: int = 0
    num_envs: int = 32
    rollout: int = 32  # rounds of each environment between two updates
    updates: int = 300
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    clip: float = 0.2


class Agent(nn.Module):
    """A network for the mean of the action, one for the value, and a spread that both share."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.actor = _network(observations, actions, gain=0.01)
        self.critic = _network(observations, 1, gain=1.0)
        self.log_std = nn.Parameter(torch.full((actions,), -1.0))

    def distribution(self, observation: torch.Tensor) -> Normal:
        """Of the action; what leaves [-1, 1] is clipped by the environment."""
        return Normal(self.actor(observation), self.log_std.exp())

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """The expected reward."""
        return self.critic(observation).squeeze(-1)


def _network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, gain)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), last)


def train(agent: Agent, settings: Settings) -> None:
    """Improve the agent.

    The discount factor is 0: the reward of a round already weighs its energy by the queues, so that
    it need not look ahead.
    """
    envs = make_batch(settings.num_envs)
    observation, _ = envs.reset(seed=1000 + 1000 * settings.seed)
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.learning_rate, eps=1e-5)
    ended = np.zeros(settings.num_envs, dtype=bool)
    for update in range(settings.updates):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - update / settings.updates)
        seen, acted, rewarded = [], [], []
        for _ in range(settings.rollout):
            state = torch.as_tensor(observation)
            with torch.no_grad():
                action = agent.distribution(state).sample()
            observation, reward, _, truncated, _ = envs.step(action.numpy())
            played = ~ended  # the step after an episode's end only starts the next one
            seen.append(state[played])
            acted.append(action[played])
            rewarded.append(torch.as_tensor(reward[played], dtype=torch.float32))
            ended = truncated
        states, actions, rewards = torch.cat(seen), torch.cat(acted), torch.cat(rewarded)
        with torch.no_grad():
            before = agent.distribution(states).log_prob(actions).sum(-1)
            advantages = rewards - agent.value(states)
        for _ in range(settings.epochs):
            for part in torch.randperm(len(states)).chunk(settings.minibatches):
                ratio = agent.distribution(states[part]).log_prob(actions[part]).sum(-1)
                ratio = (ratio - before[part]).exp()
                advantage = advantages[part]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                gain = torch.min(ratio * advantage, clipped * advantage).mean()
                error = nn.functional.smooth_l1_loss(agent.value(states[part]), rewards[part])
                optimizer.zero_grad()
                (error - gain).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()


def main(settings: Settings) -> None:
    """Train, and compare with Uni-D."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    batch = make_batch(1)
    agent = Agent(batch.observation_space.shape[1], batch.action_space.shape[1])

    def decide(observation: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return agent.actor(torch.as_tensor(observation)).numpy()

    print(f"Uni-D           {uni_d_reward():6.2f}")
    print(f"before training {mean_reward(decide):6.2f}")
    train(agent, settings)
    print(f"after training  {mean_reward(decide):6.2f}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

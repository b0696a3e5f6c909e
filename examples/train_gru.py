"""PPO with memory, for a server that knows only the gains of participants.

python examples/train_gru.py

Every device has a GRU, all with the same weights, which remembers what the server has observed of
the device. It differs from train_ppo.py in four ways. The cohort is drawn by Gumbel noise, so its
probability is known (Plackett-Luce), and only the members' f and p count. Prices of costs grow with
each device's accumulated excess in the episode. Advantages look ahead. An update backpropagates
through whole sequences of rounds, from the memory at their start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import train_ppo
import tyro
from torch import Tensor, nn
from torch.distributions import Normal


@dataclass
class Settings:
    """Settings of the training."""

    env: str = "FLEdgeBlind-v0"
    seed: int = 0
    num_envs: int = 32
    rollout: int = 16  # rounds of each system between two updates
    updates: int = 300
    epochs: int = 3
    minibatches: int = 4
    learning_rate: float = 3e-3
    discount: float = 0.5
    trace: float = 0.9  # the lambda of generalised advantage estimation
    clip: float = 0.2
    first_std: float = 0.25  # of f and p
    last_std: float = 0.05
    sharpness: float = 6.0  # of the cohort's distribution
    price_rate: float = 0.01  # step of the common price of energy in each update
    energy_price: float = 0.05  # of a device's energy above its budget
    participation_price: float = 0.15  # of a device's missing participation
    width: int = 32


class Agent(nn.Module):
    """A network with memory for each device's part of the action and of the value."""

    def __init__(self, features: int, width: int, sharpness: float) -> None:
        super().__init__()
        self.features = features
        self.width = width
        self.sharpness = sharpness
        self.memory = nn.GRUCell(3 * features, width)
        self.actor = self._network(3, gain=0.01)
        self.critic = self._network(1, gain=1.0)

    def _network(self, outputs: int, gain: float) -> nn.Sequential:
        width = self.width
        last = nn.Linear(self.width, outputs)
        nn.init.orthogonal_(last.weight, gain)
        nn.init.zeros_(last.bias)
        first = nn.Linear(3 * self.features + width, width)
        return nn.Sequential(first, nn.Tanh(), nn.Linear(width, width), nn.Tanh(), last)

    def rows(self, observation: Any) -> Tensor:
        """Inputs of the network for each device, shape (..., N, 3 F)."""
        own = torch.as_tensor(observation).unflatten(-1, (-1, self.features))
        mean = own.mean(-2, keepdim=True)
        spread = own.std(-2, keepdim=True)
        return torch.cat([own, mean.expand_as(own), spread.expand_as(own)], dim=-1)

    def forward(self, rows: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means of the actions, shape (..., N, 3), the value, and the memory after the round."""
        flat = self.memory(rows.flatten(0, -2), memory.flatten(0, -2))
        memory = flat.view(memory.shape)
        seen = torch.cat([rows, memory], dim=-1)
        means = self.actor(seen)
        means = torch.cat([means[..., :2], self.sharpness * means[..., 2:]], dim=-1)
        return means, self.critic(seen).mean(-2).squeeze(-1), memory

    def predict(self, observation: np.ndarray, state: Any = None) -> tuple[np.ndarray, Tensor]:
        """The likeliest action and the memory, as `policies.agents.PredictPolicy` expects them."""
        with torch.no_grad():
            rows = self.rows(observation)
            means, _, memory = self(
                rows, torch.zeros(len(rows), self.width) if state is None else state
            )
            means[:, 2] = torch.tanh(means[:, 2] / 100.0)  # into [-1, 1], in the same order
            return means.T.flatten().numpy(), memory


def log_probability(means: Tensor, cohort: Tensor, acted: Tensor, std: float) -> Tensor:
    """Return log-probabilities of each member's choice and of its f and p, shape (..., K, 2)."""
    scores = means[..., 2]
    choices = []
    for member in cohort.split(1, dim=-1):
        choices.append(scores.gather(-1, member).squeeze(-1) - scores.logsumexp(-1))
        scores = scores.scatter(-1, member, -1e9)
    resources = Normal(of_members(means, cohort)[..., :2], std).log_prob(acted).sum(-1)
    return torch.stack([torch.stack(choices, dim=-1), resources], dim=-1)


def of_members(values: Tensor, cohort: Tensor) -> Tensor:
    """Select the entries of the devices in a cohort, shape (..., K, values)."""
    index = cohort.unsqueeze(-1).expand(*cohort.shape, values.shape[-1])
    return values.gather(-2, index)


def as_action(cohort: Tensor, acted: Tensor, devices: int) -> np.ndarray:
    """Make the action that chooses a cohort with f and p, shape (B, 3 N)."""
    action = torch.zeros(len(cohort), devices, 3)
    action[..., 2] = -1.0
    members = torch.cat([acted, torch.ones_like(acted[..., :1])], dim=-1)
    action.scatter_(-2, cohort.unsqueeze(-1).expand_as(members), members)
    return action.transpose(-1, -2).flatten(-2).numpy()


def train(settings: Settings) -> Agent:
    """Train an agent."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)  # more threads slow down so small a network
    envs = gym.make_vec(
        settings.env,
        num_envs=settings.num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode="SameStep",
    )
    scenario = envs.unwrapped.scenario
    count = scenario.num_devices
    size = scenario.cohort_size
    features = envs.observation_space.shape[1] // count
    agent = Agent(features, settings.width, settings.sharpness)
    optimizer = torch.optim.Adam(agent.parameters(), eps=1e-5)
    observation, _ = envs.reset(seed=10_000 + 1000 * settings.seed)
    memory = torch.zeros(settings.num_envs, count, settings.width)
    debts = np.zeros((settings.num_envs, 2, count))  # accumulated costs above their limit
    slopes = np.array([[settings.energy_price], [settings.participation_price]]) * size / count
    common = np.array([[0.5], [0.0]])  # prices of all devices' costs
    for update in range(settings.updates):
        share = update / settings.updates
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - share)
        std = settings.first_std * (settings.last_std / settings.first_std) ** share
        first = memory
        played = []
        energies = []
        with torch.no_grad():
            for _ in range(settings.rollout):
                rows = agent.rows(observation)
                means, value, memory = agent(rows, memory)
                noise = -torch.empty_like(means[..., 2]).exponential_().log()
                cohort = (means[..., 2] + noise).topk(size).indices
                acted = Normal(of_members(means, cohort)[..., :2], std).sample()
                prices = common + slopes * debts
                observation, reward, _, ended, info = envs.step(as_action(cohort, acted, count))
                costs = info["costs"].reshape(debts.shape)
                reward = reward - size / count * (prices * costs).sum((1, 2))
                debts += costs - envs.unwrapped.cost_limit
                debts[:, 0] = np.maximum(debts[:, 0], 0.0)
                debts[ended] = 0.0
                going = torch.as_tensor(~ended)
                memory = memory * going[:, None, None]
                before = log_probability(means, cohort, acted, std)
                reward = torch.as_tensor(reward, dtype=torch.float32)
                played.append((rows, cohort, acted, before, going, value, reward))
                energies.append(info["cost"].mean())
            _, following, _ = agent(agent.rows(observation), memory)
            advantages = []
            advantage = torch.zeros(settings.num_envs)
            for *_, going, value, reward in reversed(played):
                error = reward + settings.discount * following * going - value
                advantage = error + settings.discount * settings.trace * advantage * going
                following = value
                advantages.insert(0, advantage)
        common[0] = max(common[0, 0] + settings.price_rate * (np.mean(energies) - 1.0), 0.0)
        rows, cohort, acted, before, going, value, _ = map(torch.stack, zip(*played, strict=True))
        advantages = torch.stack(advantages)
        returns = advantages + value
        advantages = ((advantages - advantages.mean()) / advantages.std())[..., None, None]
        for _ in range(settings.epochs):
            for part in torch.randperm(settings.num_envs).chunk(settings.minibatches):
                kept = first[part]
                outputs = []
                for step in range(settings.rollout):
                    *output, kept = agent(rows[step, part], kept)
                    kept = kept * going[step, part, None, None]
                    outputs.append(output)
                means, values = map(torch.stack, zip(*outputs, strict=True))
                now = log_probability(means, cohort[:, part], acted[:, part], std)
                ratio = (now - before[:, part]).exp()
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                gain = torch.min(ratio * advantages[:, part], clipped * advantages[:, part])
                error = nn.functional.smooth_l1_loss(values, returns[:, part])
                optimizer.zero_grad()
                (error - 2.0 * gain.mean()).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    return agent


def main(settings: Settings) -> None:
    """Train, and compare with model-based policies."""
    train_ppo.report(settings.env, train(settings), "lroa", "opportunistic")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

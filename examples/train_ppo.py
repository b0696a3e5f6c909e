"""PPO in one file, in the style of CleanRL, on the paper's system of 120 devices.

python examples/train_ppo.py
python examples/train_ppo.py --env FLEdgeCMDP-v0 --out runs/agents/cmdp.zip

It trains for 1.5 minutes on one core, and compares the agent with other policies on new seeds.

All devices share one network, which decides for each device from the device's features and from
their mean and spread over all devices. Each device has its own probability ratio, as the ratio of
the whole action of 360 numbers would be clipped at once. In a constrained problem each cost has a
price (a Lagrange multiplier), which rises while the mean cost is above its limit.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import train_sb3
import tyro
from stable_baselines3 import PPO
from torch import nn
from torch.distributions import Normal

from fl_edge_env import Scenario
from fl_edge_env.tasks import TASKS, normalized_score
from policies import evaluate, make_policy
from policies.learning.vec_env import BatchVecEnv


@dataclass
class Settings:
    """Settings of the training."""

    env: str = "FLEdgePaper-v0"
    seed: int = 0
    num_envs: int = 32
    rollout: int = 8  # rounds of each system between two updates
    updates: int = 450
    epochs: int = 3
    minibatches: int = 8
    learning_rate: float = 5e-3
    clip: float = 0.2
    # Standard deviation of actions, on a schedule, as PPO would shrink it too early.
    first_std: float = 0.25
    last_std: float = 0.15  # at the end
    price_rate: float = 0.05  # step of the prices of costs in each update
    out: Path | None = None
    """A file for the agent, which `fl-edge compare` plays."""


class Agent(nn.Module):
    """A network for a device's part of the action, and one for its part of the value."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.actor = _network(3 * features, 3, gain=0.01)
        self.critic = _network(3 * features, 1, gain=1.0)

    def rows(self, observation: torch.Tensor) -> torch.Tensor:
        """Inputs of the network for each device, shape (..., N, 3 F)."""
        own = observation.unflatten(-1, (-1, self.features))
        mean = own.mean(-2, keepdim=True)
        spread = own.std(-2, keepdim=True)
        return torch.cat([own, mean.expand_as(own), spread.expand_as(own)], dim=-1)

    def value(self, rows: torch.Tensor) -> torch.Tensor:
        """The expected reward of a round, shape (...)."""
        return self.critic(rows).mean(-2).squeeze(-1)

    def predict(self, observation: np.ndarray) -> np.ndarray:
        """The mean action, as `policies.agents.PredictPolicy` expects it."""
        with torch.no_grad():
            return flat(self.actor(self.rows(torch.as_tensor(observation))))


def flat(actions: torch.Tensor) -> np.ndarray:
    """Flatten actions of devices, shape (..., N, 3), for the environment, shape (..., 3 N)."""
    return actions.transpose(-1, -2).flatten(-2).numpy()


def _network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    last = nn.Linear(32, outputs)
    nn.init.orthogonal_(last.weight, gain)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), last)


def train(settings: Settings) -> Agent:
    """Train an agent, with a discount factor of 0, as the reward already prices energy."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)  # more threads slow down so small a network
    envs = gym.make_vec(
        settings.env, num_envs=settings.num_envs, vectorization_mode="vector_entry_point"
    )
    agent = Agent(envs.observation_space.shape[1] // envs.unwrapped.scenario.num_devices)
    optimizer = torch.optim.Adam(agent.parameters(), eps=1e-5)
    prices = 1.0
    observation, _ = envs.reset(seed=10_000 + 1000 * settings.seed)
    for update in range(settings.updates):
        share = update / settings.updates
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - share)
        std = settings.first_std * (settings.last_std / settings.first_std) ** share

        def log_probability(rows, actions, std=std):
            return Normal(agent.actor(rows), std).log_prob(actions).sum(-1)

        seen = []
        acted = []
        rewarded = []
        costs = []
        with torch.no_grad():
            for _ in range(settings.rollout):
                rows = agent.rows(torch.as_tensor(observation))
                actions = Normal(agent.actor(rows), std).sample()
                # One step in 1001 only starts the next episode; it is not excluded.
                observation, reward, *_, info = envs.step(flat(actions))
                if "costs" in info:
                    reward = reward - np.mean(prices * info["costs"], axis=-1)
                    costs.append(info["costs"].mean(axis=0))
                seen.append(rows)
                acted.append(actions)
                rewarded.append(torch.as_tensor(reward, dtype=torch.float32))
            rows = torch.cat(seen)
            actions = torch.cat(acted)
            rewards = torch.cat(rewarded)
            before = log_probability(rows, actions)  # of each device: (rounds, N)
            advantages = rewards - agent.value(rows)
            advantages = ((advantages - advantages.mean()) / advantages.std()).unsqueeze(-1)
        if costs:
            excess = np.mean(costs, axis=0) - envs.unwrapped.cost_limit
            prices = np.maximum(prices + settings.price_rate * excess, 0.0)
        for _ in range(settings.epochs):
            for part in torch.randperm(len(rows)).chunk(settings.minibatches):
                ratio = (log_probability(rows[part], actions[part]) - before[part]).exp()
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                gain = torch.min(ratio * advantages[part], clipped * advantages[part]).mean()
                error = nn.functional.smooth_l1_loss(agent.value(rows[part]), rewards[part])
                optimizer.zero_grad()
                (error - gain).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    return agent


def save(agent: Agent, scenario: Scenario, file: Path) -> None:
    """Save the actor as an agent of Stable-Baselines3 that plays the same."""
    rows = BatchVecEnv(1, scenario)
    shape = {"pi": [32, 32], "vf": []}
    model = PPO("MlpPolicy", rows, policy_kwargs={"net_arch": shape}, device="cpu")
    actor = copy.deepcopy(agent.actor)
    # The rows of `BatchVecEnv` have the spread divided by N, and those of the agent by N - 1.
    actor[0].weight.data[:, 2 * agent.features :] *= (1 - 1 / scenario.num_devices) ** -0.5
    model.policy.mlp_extractor.policy_net.load_state_dict(actor[:-1].state_dict())
    model.policy.action_net.load_state_dict(actor[-1].state_dict())
    train_sb3.save(model, file)


def report(env: str, agent: Any, *names: str) -> None:
    """Compare an agent with model-based policies on seeds that it has not seen."""
    scenario = gym.make(env).unwrapped.scenario
    known = (make_policy(name, scenario) for name in names)
    policies = [*known, make_policy("predict", scenario, model=agent)]
    table = evaluate(policies, scenario, seeds=range(5)).groupby("policy", sort=False)
    result = table[["total_time", "spent_ratio", "gap", "outcome_gap"]].mean()
    if env in TASKS:
        result["score"] = normalized_score(env, result[TASKS[env].measure])
    print(result.assign(status=table["status"].first()).round(4).to_string())


def main(settings: Settings) -> None:
    """Train, save if a file is given, and compare."""
    agent = train(settings)
    if settings.out is not None:
        save(agent, gym.make(settings.env).unwrapped.scenario, settings.out)
    report(settings.env, agent, "lroa", "uni-d", "opportunistic")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

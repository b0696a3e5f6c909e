"""Agents of Stable-Baselines3, saved again and again: files that play like any policy.

python examples/train_sb3.py --scenario digits --agents rule flat rows sac --seeds 0 1 2
python examples/train_sb3.py --scenario FLEdgeLongest-v0 --agents rows

- rule: PPO with its defaults on FLEdgeRule-v0, one rule for all devices
- flat: PPO with its defaults on FLEdgeFlat-v0, all devices' f, p and q at once
- rows: PPO with a row for each device, so that one network decides for every device, which learns
  from its own contribution to the reward (this needs the system's model, but only in training)
- sac: SAC with its defaults on FLEdgeRule-v0

All play the same number of rounds. Their files in the folder play like any policy:

    fl-edge compare --scenario cifar10 --no-train --policies lroa uni-d runs/agents/rule-0.zip
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.spaces import Box
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback

from fl_edge_env import Scenario
from fl_edge_env.tasks import TASKS
from policies.learning.vec_env import BatchVecEnv

# Only training needs these. They are large, or other versions of Python or SB3 may not read them.
LEFT_OUT = (
    "_last_obs",
    "_last_episode_starts",
    "rollout_buffer_class",
    "replay_buffer_class",
    "learning_rate",
    "lr_schedule",
    "clip_range",
)
SYSTEMS = 8  # that rows play at once


@dataclass
class Settings:
    """Settings of the trainings."""

    scenario: str = "cifar10"
    """A preset or a frozen task."""
    agents: tuple[Literal["rule", "flat", "rows", "sac"], ...] = ("rule",)
    seeds: tuple[int, ...] = (0,)
    rounds: int = 53_248
    """26 updates of PPO with its defaults."""
    every: int = 53_248
    """Rounds between two files."""
    out: Path = Path("runs/agents")


def make(agent: str, scenario: Scenario, seed: int) -> Any:
    """Make an untrained agent with its environment."""
    if agent != "rows":
        kind = SAC if agent == "sac" else PPO
        env = gym.make(f"FLEdge{'Flat' if agent == 'flat' else 'Rule'}-v0", scenario=scenario)
        return kind("MlpPolicy", env, seed=seed, device="cpu")
    rows = BatchVecEnv(SYSTEMS, scenario, credit="difference")
    return PPO(
        "MlpPolicy",
        rows,
        learning_rate=lambda left: 1e-3 * left,
        n_steps=8,
        batch_size=rows.num_envs,
        n_epochs=5,
        gamma=0.0,  # the queues already price energy in the reward
        gae_lambda=1.0,
        target_kl=0.05,
        policy_kwargs={"log_std_init": -1.5, "net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )


def train(agent: str, scenario: Scenario, seed: int, rounds: int, callback: Any = None) -> Any:
    """Train an agent for so many rounds, those of all systems together."""
    torch.set_num_threads(1)  # more threads slow down so small a network
    steps = scenario.num_devices if agent == "rows" else 1
    return make(agent, scenario, seed).learn(rounds * steps, callback)


def save(model: Any, file: Path) -> None:
    """Save a small file that plays the same: without what only training needs."""
    if isinstance(model, PPO):
        model.policy.optimizer.state.clear()
    # New spaces have no random generator, which other versions of NumPy may not read.
    for name in ("observation_space", "action_space"):
        space = getattr(model, name)
        setattr(model, name, Box(space.low, space.high, dtype=np.float32))
    file.parent.mkdir(parents=True, exist_ok=True)
    model.save(file, exclude=LEFT_OUT)


def main(settings: Settings) -> None:
    """Train and save each agent with each seed."""
    system = settings.scenario
    scenario = TASKS[system].scenario if system in TASKS else Scenario.preset(system)
    for agent in settings.agents:
        for seed in settings.seeds:
            name = f"{agent}-{seed}"
            every = settings.every // (SYSTEMS if agent == "rows" else 1)
            checkpoints = CheckpointCallback(every, settings.out, name)
            begun = process_time()
            model = train(agent, scenario, seed, settings.rounds, checkpoints)
            print(f"{name}: {process_time() - begun:.0f} s of processor time")
            save(model, settings.out / f"{name}.zip")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

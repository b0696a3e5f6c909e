"""Agents of Stable-Baselines3: learning curves, and files that play like any policy.

python examples/train_sb3.py --scenario digits --agents rule flat rows sac --seeds 0 1 2
python examples/train_sb3.py --scenario FLEdgeLongest-v0 --agents rows

- rule: PPO with its defaults on FLEdgeRule-v0, one rule for all devices
- flat: PPO with its defaults on FLEdgeFlat-v0, all devices' f, p and q at once
- rows: PPO with a row for each device, so that one network decides for every device, which learns
  from its own contribution to the reward (this needs the system's model, but only in training)
- sac: SAC with its defaults on FLEdgeRule-v0

All see the same number of rounds. The folder has curve.csv and a file for each agent, for example

    fl-edge compare --scenario cifar10 --no-train --policies lroa uni-d runs/agents/rule-0.zip
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pandas as pd
import torch
import tyro
from gymnasium.spaces import Box
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback

from fl_edge_env import Scenario
from fl_edge_env.tasks import TASKS
from policies import Policy, evaluate, make_policy
from policies.learning.vec_env import BatchVecEnv

# Only training needs these. They are large, or other versions of Python or SB3 may not read them.
LEFT_OUT = (
    *("_last_obs", "_last_episode_starts", "rollout_buffer_class", "replay_buffer_class"),
    *("learning_rate", "lr_schedule", "clip_range"),
)
SEEDS = range(5)  # of the evaluation; no agent learns from their episodes


@dataclass
class Settings:
    """Settings of the trainings."""

    scenario: str = "cifar10"
    """A preset or a frozen task."""
    agents: tuple[Literal["rule", "flat", "rows", "sac"], ...] = ("rule",)
    seeds: tuple[int, ...] = (0,)
    rounds: int = 53_248  # 26 updates of PPO with its defaults
    every: int = 53_248
    """Rounds between two points of the learning curve."""
    out: Path = Path("runs/agents")


def make(agent: str, scenario: Scenario, seed: int) -> Any:
    """Make an untrained agent with its environment."""
    if agent != "rows":
        kind = SAC if agent == "sac" else PPO
        env = gym.make(f"FLEdge{'Flat' if agent == 'flat' else 'Rule'}-v0", scenario=scenario)
        return kind("MlpPolicy", env, seed=seed, device="cpu")
    rows = BatchVecEnv(8, scenario, credit="difference")
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


class Curve(BaseCallback):
    """Plays the agent every so many rounds; its clock stands still meanwhile."""

    def __init__(self, scenario: Scenario, systems: int, every: int) -> None:
        super().__init__()
        self.scenario = scenario
        self.systems = systems  # of which a step plays a round each
        self.every = every
        self.points: list[dict[str, Any]] = []
        self.begun = time.process_time()

    def _on_step(self) -> bool:
        rounds = (self.n_calls - 1) * self.systems
        if rounds % self.every == 0:
            self.play(rounds, gaps=False)
        return True

    def play(self, rounds: int, *, gaps: bool) -> None:
        """Add a point to the curve."""
        point = {"rounds": rounds, "seconds": time.process_time() - self.begun}
        agent = make_policy("predict", self.scenario, model=self.model)
        self.points.append(point | played(agent, gaps=gaps))
        self.begun = time.process_time() - point["seconds"]


def played(policy: Policy, *, gaps: bool) -> dict[str, Any]:
    """Means over the seeds, and the status."""
    table = evaluate([policy], policy.scenario, SEEDS, gaps=gaps, progress=False)
    means = table[["total_time", "gap"] if gaps else ["total_time"]].mean()
    return {**means, "status": table["status"][0]}


def train(
    agent: str, scenario: Scenario, seed: int, rounds: int, every: int = 0
) -> tuple[Any, list[dict[str, Any]]]:
    """Train an agent; returns its model and the points of its learning curve, if `every` is set."""
    torch.set_num_threads(1)  # more threads slow down so small a network
    model = make(agent, scenario, seed)
    steps = scenario.num_devices if agent == "rows" else 1  # of a round of a system
    curve = Curve(scenario, model.env.num_envs // steps, every)
    model.learn(rounds * steps, callback=curve if every else None)
    if every:
        curve.play(rounds, gaps=True)
    return model, curve.points


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
    """Train and save, and compare with LROA and Uni-D on seeds that no agent has seen."""
    name = settings.scenario
    scenario = TASKS[name].scenario if name in TASKS else Scenario.preset(name)
    known = [make_policy(name, scenario) for name in ("lroa", "uni-d")]
    rows = [{"agent": policy.name} | played(policy, gaps=True) for policy in known]
    for agent in settings.agents:
        for seed in settings.seeds:
            model, points = train(agent, scenario, seed, settings.rounds, settings.every)
            save(model, settings.out / f"{agent}-{seed}.zip")
            rows += [{"agent": agent, "seed": seed} | point for point in points]
            pd.DataFrame(rows).to_csv(settings.out / "curve.csv", index=False)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

"""PPO of Stable-Baselines3 on the paper's system of 120 devices.

python examples/train_sb3.py
python examples/train_sb3.py --scenario FLEdgeLongest-v0

Each device is a row of the batch, so one small network decides for every device. A device learns
from its own contribution to the reward (credit "difference", which needs the system's model, but
only in training) or from the common reward ("team"). The script saves the agent, which then is a
policy like any other:

    fl-edge compare --scenario cifar10 --no-train --policies lroa uni-d runs/agents/cifar10.zip
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from stable_baselines3 import PPO

from fl_edge_env import Scenario
from fl_edge_env.tasks import TASKS, normalized_score
from policies import evaluate, make_policy
from policies.agents import device_spaces
from policies.learning.vec_env import BatchVecEnv

# Only training needs these. They are large, or other versions of Python or SB3 may not read them.
LEFT_OUT = (
    *("_last_obs", "_last_episode_starts", "rollout_buffer_class"),
    *("learning_rate", "lr_schedule", "clip_range"),
)


@dataclass
class Settings:
    """Settings of the training."""

    scenario: str = "cifar10"
    """A preset or a frozen task."""
    credit: Literal["difference", "team"] = "difference"
    seed: int = 0
    rounds: int = 20_000  # of all systems together
    num_envs: int = 8
    out: Path | None = None
    """The agent's file, by default runs/agents/<scenario>.zip."""


def train(scenario: Scenario, settings: Settings) -> PPO:
    """Train an agent."""
    torch.set_num_threads(1)  # more threads slow down so small a network
    rows = BatchVecEnv(settings.num_envs, scenario, credit=settings.credit)
    model = PPO(
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
        seed=settings.seed,
        device="cpu",
    )
    return model.learn(settings.rounds * scenario.num_devices)


def save(model: PPO, file: Path) -> None:
    """Save a small file that plays the same: without what only training needs."""
    model.policy.optimizer.state.clear()
    # New spaces have no random generator, which other versions of NumPy may not read.
    model.observation_space, model.action_space = device_spaces(model.env.scaling)
    model.save(file, exclude=LEFT_OUT)


def main(settings: Settings) -> None:
    """Train, save, and compare with LROA and Uni-D on seeds that the agent has not seen."""
    task = "FLEdgePaper-v0" if settings.scenario == "cifar10" else settings.scenario
    scenario = TASKS[task].scenario if task in TASKS else Scenario.preset(task)
    file = settings.out or Path("runs/agents") / f"{settings.scenario}.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(train(scenario, settings), file)
    policies = [make_policy(name, scenario) for name in ("lroa", "uni-d", str(file))]
    table = evaluate(policies, scenario, seeds=range(5)).groupby("policy", sort=False)
    result = table[["total_time", "worst_energy_ratio", "gap"]].mean()
    if task in TASKS:
        result["score"] = normalized_score(task, result[TASKS[task].measure])
    print(result.assign(status=table["status"].first()).round(4).to_string())


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

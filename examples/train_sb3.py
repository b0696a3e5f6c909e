"""PPO of Stable-Baselines3 on the paper's system of 120 devices.

python examples/train_sb3.py

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
from fl_edge_env.tasks import normalized_score
from policies import evaluate, make_policy
from policies.learning.vec_env import BatchVecEnv


@dataclass
class Settings:
    """Settings of the training."""

    scenario: str = "cifar10"
    credit: Literal["difference", "team"] = "difference"
    seed: int = 0
    rounds: int = 20_000  # of all systems together
    num_envs: int = 8
    out: Path = Path("runs/agents")


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


def main(settings: Settings) -> None:
    """Train, save, and compare with LROA and Uni-D on seeds that the agent has not seen."""
    scenario = Scenario.preset(settings.scenario)
    file = settings.out / f"{settings.scenario}.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    train(scenario, settings).save(file)
    policies = [make_policy(name, scenario) for name in ("lroa", "uni-d", str(file))]
    table = evaluate(policies, scenario, seeds=range(5)).groupby("policy", sort=False)
    result = table[["total_time", "worst_energy_ratio", "gap"]].mean()
    if settings.scenario == "cifar10":
        result["score"] = normalized_score("FLEdgePaper-v0", result["gap"])
    print(result.assign(status=table["status"].first()).round(4).to_string())


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))

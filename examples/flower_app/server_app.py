"""The server: a policy decides each round, and the emulated system says what it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from system import make_system

from fl_edge_env.files import atomic_path
from policies import make_policy
from train_fl.federation import PolicyStrategy, evaluation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation, print a table of its rounds, and write the last model if asked to."""
    config = context.run_config
    scenario, task = make_system(context)
    policy = make_policy(str(config["policy"]), scenario)
    strategy = PolicyStrategy(policy, scenario, seed=int(config["seed"]), server=task.server)
    result = strategy.start(
        grid,
        strategy.initial_arrays(task),
        num_rounds=scenario.num_rounds,
        evaluate_fn=evaluation(task),
    )
    print(f"{policy.name}\nround  time [s]  energy [J]  accuracy  participants")
    for number, took in result.train_metrics_clientapp.items():
        accuracy = result.evaluate_metrics_serverapp[number]["test-accuracy"]
        print(
            f"{number:5}  {took['elapsed-time']:8.3f}  {took['energy-spent']:10.3f}  "
            f"{accuracy:8.3f}  {took['participants']}"
        )
    if config["out"]:
        with atomic_path(Path(str(config["out"]))) as path, path.open("wb") as file:
            np.savez(file, **{name: array.numpy() for name, array in result.arrays.items()})

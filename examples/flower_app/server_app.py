"""The server: a policy as the strategy, or Flower's FedAvg with the clock of a scenario."""

from __future__ import annotations

from client_app import make_digits
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fl_edge_env import Scenario
from policies import make_policy
from train_fl.federation import Clocked, PolicyStrategy, evaluation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation, and print the simulated times and energies."""
    config = context.run_config
    name = str(config["strategy"])
    devices = int(config["devices"])
    seed = int(config["seed"])
    task = make_digits(devices)
    scenario = task.fit(Scenario.digits(num_devices=devices, num_rounds=int(config["rounds"])))
    if name == "fedavg":
        fedavg = FedAvg(fraction_train=scenario.cohort_size / devices, fraction_evaluate=0.0)
        strategy = Clocked(fedavg, scenario, seed=seed)
    else:
        strategy = PolicyStrategy(make_policy(name, scenario), scenario, seed=seed)
    result = strategy.start(
        grid,
        strategy.initial_arrays(task),
        num_rounds=scenario.num_rounds,
        train_config=strategy.train_config,
        evaluate_fn=evaluation(task),
    )
    print("round  time [s]  energy [J]  accuracy  participants")
    for number, took in result.train_metrics_clientapp.items():
        accuracy = result.evaluate_metrics_serverapp[number]["test-accuracy"]
        print(
            f"{number:5}  {took['elapsed-time']:8.3f}  {took['energy-spent']:10.3f}  "
            f"{accuracy:8.3f}  {took['participants']}"
        )
    print(strategy.result.T.to_string(header=False, na_rep="–"))

"""The server: a policy decides each round, and the clock says what it takes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from hardware import rates
from system import make_digits, make_system

from fl_edge_env.channels.uplink import gain_of_rate
from fl_edge_env.files import atomic_path
from policies import make_policy
from train_fl.federation import PolicyStrategy, evaluation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation, and write what each round took and how good its model is."""
    config = context.run_config
    task = make_digits(float(config["learning-rate"]))
    scenario = make_system(config, task)
    channel, told = scenario.channel, []

    def gains(*_: object) -> np.ndarray:
        """Gains by which uplinks have their rates in the coming round, as after a test of each."""
        told.append(int(config["first-round"]) + len(told))
        gain = gain_of_rate(
            rates(told[-1] + 1)[-1],
            share_hz=channel.share_hz,
            power_w=channel.reference_power_w,
            noise_power_w=channel.noise_power_w,
        )
        return np.clip(gain, channel.gain_min, channel.gain_max)

    strategy = PolicyStrategy(
        make_policy(str(config["policy"]), scenario),
        scenario,
        seed=int(config["seed"]),
        server=task.server,
        measure_gains=gains if config["system"] else None,
        log=str(config["log"]),
    )
    ended, evaluate = [], evaluation(task)

    def timed(number: int, arrays: ArrayRecord) -> MetricRecord:
        ended.append(time.time())
        return evaluate(number, arrays)

    result = strategy.start(
        grid, strategy.initial_arrays(task), num_rounds=scenario.num_rounds, evaluate_fn=timed
    )
    started = result.train_metrics_clientapp[1]["start_s"][0]
    report = {
        "end_s": [end - started for end in ended[1:]],
        "accuracy": [
            result.evaluate_metrics_serverapp[number]["test-accuracy"]
            for number in result.train_metrics_clientapp
        ],
    }
    with atomic_path(Path(str(config["report"]))) as path:
        path.write_text(json.dumps(report))

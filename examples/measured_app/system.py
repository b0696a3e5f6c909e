"""What server and clients agree on: the data, the network, and the system that is assumed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hardware import NUM_DEVICES
from network import Network

from fl_edge_env import Scenario
from train_fl import Task, make_task


@lru_cache(maxsize=1)
def make_digits(learning_rate: float) -> Task:
    """The digits, split over the devices."""
    options = {"learning_rate": learning_rate} if learning_rate else {}
    return make_task("digits", num_devices=NUM_DEVICES, model=Network, **options)


def make_system(config: Any, task: Task) -> Scenario:
    """The system that was calibrated, or one of the package, with what the run is to change."""
    if config["system"]:
        scenario = Scenario.load(config["system"])
    else:
        scenario = Scenario.digits(num_devices=NUM_DEVICES)
    changes = {"num_rounds": int(config["rounds"]), "compression": config["compression"]}
    if config["local-epochs"]:
        changes["local_epochs"] = float(config["local-epochs"])
    return task.fit(scenario).replace(**changes)

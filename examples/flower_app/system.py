"""The task and the system that server and clients agree on."""

from __future__ import annotations

from functools import lru_cache

from flwr.app import Context

from fl_edge_env import Scenario
from train_fl import Task, make_task


@lru_cache(maxsize=1)
def task_for(num_devices: int) -> Task:
    """The digits, split over the devices; each process makes it once."""
    return make_task("digits", num_devices=num_devices)


def make_system(context: Context) -> tuple[Scenario, Task]:
    """What the run's configuration names."""
    config = context.run_config
    num_devices, num_rounds = int(config["devices"]), int(config["rounds"])
    task = task_for(num_devices)
    return task.fit(Scenario.digits(num_devices=num_devices, num_rounds=num_rounds)), task

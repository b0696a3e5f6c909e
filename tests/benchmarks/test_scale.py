"""Very many devices: what saves memory, against what it takes the place of."""

from __future__ import annotations

import pytest

from fl_edge_env import Scenario, Simulator
from fl_edge_env.canvas import BarCanvas, CountCanvas
from fl_edge_env.rendering import Dashboard
from policies import UniS

pytestmark = pytest.mark.benchmark


def test_pictures__of_counts_against_a_bar_for_each_device(report, seconds, monkeypatch):
    scenario = Scenario.cifar10(num_devices=100_000, num_rounds=5)
    simulator, policy = Simulator(scenario), UniS(scenario)
    simulator.reset([0])
    observation = simulator.observe()
    allocation = policy.decide(observation)
    outcome = simulator.advance(allocation)
    times = {}
    for kind in (BarCanvas, CountCanvas):
        monkeypatch.setattr("fl_edge_env.rendering.CountCanvas", kind)
        dashboard = Dashboard(scenario)
        dashboard.begin(observation)
        dashboard.record(observation, allocation, outcome)
        times[kind] = seconds(dashboard.draw, 3, 3)
    bars, counts = times.values()
    report(
        f"a picture of 100,000 devices: with a bar for each {bars * 1e3:.0f} ms, with counts "
        f"{counts * 1e3:.0f} ms ({1 / counts:.0f} pictures a second)"
    )

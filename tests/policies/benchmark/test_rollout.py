"""What is kept of an episode: a number for each round, seed and column, whatever the devices."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies import UniS
from policies.benchmark.rollout import _Records, run_episode


@pytest.mark.parametrize("devices", [3, 50])
def test_records__take_eight_bytes_a_number_and_no_objects(devices, monkeypatch):
    kept = []
    monkeypatch.setattr(_Records, "table", lambda self, *_: kept.append(self))
    scenario = Scenario.digits(num_devices=devices, num_rounds=40)
    run_episode(UniS(scenario), FLEdgeVectorEnv(2, scenario), scenario, [0, 1])
    (records,) = kept
    assert len(records._columns) > 10
    for column in records._columns.values():
        assert isinstance(column, np.ndarray)
        assert (column.shape, column.dtype) == ((40, 2), np.float64)
    assert {sums.shape for sums in records._sums.values()} == {(2, devices)}

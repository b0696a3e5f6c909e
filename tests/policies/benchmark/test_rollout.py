"""What is kept of an episode: a number for each round, seed and column, whatever the devices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies import UniS
from policies.benchmark.figures import thinned
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


@pytest.mark.parametrize("rounds", [1, 1999, 2000, 2001, 100_000])
def test_thinned__keeps_the_ends_and_no_more_points_than_a_picture_shows(rounds):
    values = pd.DataFrame({0: np.arange(rounds) ** 2.0}, index=np.arange(1, rounds + 1))
    few = thinned(values)
    assert len(few) == min(rounds, 2000)
    assert few.index[[0, -1]].tolist() == [1, rounds]
    assert np.diff(few.index).max(initial=1) <= rounds // 2000 + 1
    pd.testing.assert_frame_equal(few, values.loc[few.index])

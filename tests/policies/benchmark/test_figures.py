"""The figures of a comparison."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from policies.benchmark.figures import draw_accuracy_over_time, thinned


def test_lines__of_many_policies_are_told_apart():
    names = [f"policy {number}" for number in range(24)]
    rounds = pd.DataFrame(
        [
            {"policy": name, "seed": 0, "round": n, "status": "ok", "test_accuracy": 0.5}
            for name in names
            for n in (1, 2)
        ]
    )
    axes = Figure().add_subplot()
    draw_accuracy_over_time(axes, rounds.assign(elapsed_time=rounds["round"]))
    looks = {
        line.get_label(): (line.get_color(), str(line.get_linestyle()), str(line._dash_pattern))
        for line in axes.get_lines()
        if line.get_label() in names
    }
    assert len(set(looks.values())) == len(looks) == len(names)


@pytest.mark.parametrize("rounds", [1, 1999, 2000, 2001, 100_000])
def test_thinned__keeps_the_ends_and_no_more_points_than_a_picture_shows(rounds):
    values = pd.DataFrame({0: np.arange(rounds) ** 2.0}, index=np.arange(1, rounds + 1))
    few = thinned(values)
    assert len(few) == min(rounds, 2000)
    assert few.index[[0, -1]].tolist() == [1, rounds]
    assert np.diff(few.index).max(initial=1) <= rounds // 2000 + 1
    pd.testing.assert_frame_equal(few, values.loc[few.index])

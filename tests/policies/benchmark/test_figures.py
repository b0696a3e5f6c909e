"""The figures of a comparison."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from policies.benchmark.figures import draw_accuracy_over_time


def test_lines__of_many_policies_are_told_apart():
    names = [f"policy {number}" for number in range(24)]
    rounds = pd.DataFrame(
        [
            {"policy": name, "seed": 0, "round": n, "feasible": True, "test_accuracy": 0.5}
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

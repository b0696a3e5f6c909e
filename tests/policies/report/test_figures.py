"""The figures of a comparison."""

from __future__ import annotations

import math
from functools import partial

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console

from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.comparison import Comparison, compare_settings
from policies.benchmark.intervals import mean_interval
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting
from policies.report.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_column,
    draw_energy,
    draw_ranking,
    log_ticks,
    save_figure,
    save_plots,
)

KINDS = ("png", "pdf")


@pytest.fixture(scope="module")
def played() -> Comparison:
    """Three policies under two seeds."""
    scenario = Scenario.digits(num_devices=6, num_rounds=30)
    policies = [make_policy(name, scenario) for name in ("lroa", "uni-s", "best-channel:static")]
    runs = tuple(Run(policy.name, policy, scenario) for policy in policies)
    setting = Setting("", runs, [3, 4], bounded=False)
    (results,) = compare_settings([setting], None, Console(quiet=True))
    return results


def trained(name: str, accuracies: list[float], status: str = "ok") -> pd.DataFrame:
    """A run with these accuracies, whose n-th round ends at n^2 seconds."""
    rows = [
        {"policy": name, "seed": 0, "round": n, "elapsed_time": n**2, "test_accuracy": value}
        for n, value in enumerate(accuracies, 1)
    ]
    return pd.DataFrame(rows).assign(status=status)


def test_lines__have_a_band_of_the_interval_over_several_seeds():
    rounds = pd.DataFrame({"seed": range(5), "elapsed_time": [1.0, 2.0, 3.0, 4.0, 9.0]})
    axes = Figure().add_subplot()
    draw_column(axes, rounds.assign(policy="it", status="ok", round=1), "elapsed_time")
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    # No time is below zero, where the interval begins.
    high = mean_interval(rounds["elapsed_time"]).high
    np.testing.assert_allclose([heights.min(), heights.max()], [0.0, high])


@pytest.mark.parametrize(("target", "end"), [(0.55, 1.2 * 9), (0.9, 36), (None, 36)])
def test_accuracy_over_time__ends_soon_after_the_last_target(target, end):
    fast = trained("fast", [0.1, 0.5, 0.9, 0.95, 0.96, 0.97], status="over budget")
    slow = trained("slow", [0.1, 0.3, 0.6, 0.7, 0.8, 0.85])
    axes = Figure().add_subplot()
    draw_accuracy_over_time(axes, pd.concat([slow, fast]), target)
    assert axes.get_xlim() == pytest.approx((0, end))
    curve, *others = axes.get_lines()
    np.testing.assert_allclose(np.interp([4, 25, 36], *curve.get_data()), [30, 80, 85], atol=0.5)
    assert [text.get_text() for text in axes.texts] == ["fast", "slow"]
    dots = [line for line in others if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [True, False]


def test_accuracy_over_rounds__has_measured_rounds_and_target():
    axes = Figure().add_subplot()
    draw_accuracy_over_rounds(axes, trained("one", [0.1, math.nan, 0.9]), 0.6)
    curve, target = axes.get_lines()
    np.testing.assert_allclose(curve.get_xydata(), [[1, 10], [3, 90]])
    np.testing.assert_allclose(target.get_ydata(), 60)


def test_ranking__has_dots_in_the_order_of_the_table():
    runs = {
        "two $x$": [10.0, 20.0, 30.0],
        "one": [30.0, 40.0, 50.0],
        "bad": [1.0, 2.0, 3.0],
        "late": [5.0, math.nan, 9.0],
    }
    table = pd.DataFrame(runs).melt(var_name="policy", value_name="time_to_target")
    table = table.assign(seed=[0, 1, 2] * 4, total_time=99.0, priced_time=99.0)
    table["priced_time_to_target"] = 60 - table["time_to_target"]
    table["status"] = table["policy"].map({"bad": "over budget"}).fillna("ok")
    axes = Figure().add_subplot()
    draw_ranking(axes, Comparison(table, 0.9))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["one", "two $x$", "late", "bad (over\xa0budget)"]
    assert [text.get_text() for text in axes.texts] == ["target missed in 1 of 3 runs"]
    # Each has an interval, a dot and its priced time.
    ends, means, priced = (axes.get_lines()[start:9:3] for start in range(3))
    np.testing.assert_allclose(ends[0].get_xdata(), mean_interval(runs["one"])[1:])
    assert np.ravel([dot.get_xydata() for dot in means]).tolist() == [40, 0, 20, 1, 2, 3]
    assert np.ravel([line.get_xydata() for line in priced]).tolist() == [
        20,
        0.25,
        40,
        1.25,
        58,
        3.25,
    ]
    assert [dot.get_markerfacecolor() == "white" for dot in means] == [False, False, True]
    never = table.assign(time_to_target=math.nan, priced_time_to_target=math.nan)
    draw_ranking(axes, Comparison(never, 0.9))
    assert axes.get_title() == "Total time"


def test_legend__has_each_name_once_and_policies_first(drawn, tmp_path, played):
    rounds = played.rounds.replace(
        {"policy": {"LROA": "cost $x$"}, "status": {"ok": "overweights"}}
    )
    panel = partial(draw_energy, rounds=rounds)
    save_figure([[panel, panel]], [tmp_path / "panels.png"])
    (legend,) = drawn[0].legends
    names = [text.get_text().partition(" (")[0] for text in legend.get_texts()]
    assert names[:3] == ["cost $x$", "Uni-S", "Best channel, static"]
    assert sorted(names[3:]) == ["budget", "single runs", "worst device"]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    save_figure([[panel], [panel]], [tmp_path / "rows.png"], rows_apart=True)
    assert [len(part.legends) for part in drawn[1].subfigs] == [1, 1]


def test_plots__repeat_to_the_byte_with_truetype_fonts(tmp_path, played):
    save_plots(played, tmp_path, formats=KINDS)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {f"{name}.{kind}" for name in ("energy", "overview") for kind in KINDS}
    again = [tmp_path / f"again.{kind}" for kind in KINDS]
    # LaTeX is not installed, and a user's configuration has no influence.
    with mpl.rc_context({"text.usetex": True, "font.size": 20, "figure.facecolor": "red"}):
        save_figure([[partial(draw_energy, rounds=played.rounds)]], again)
    assert all(path.read_bytes() == path.with_stem("energy").read_bytes() for path in again)
    content = again[1].read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


@pytest.mark.parametrize("name", ["font.family: DejaVu Sans,", "font.sans-serif:"])
def test_figures__have_the_fonts_of_a_matplotlibrc(tmp_path, name):
    def panel(axes):
        axes.set_title("の")

    with pytest.warns(UserWarning, match="LETTER NO.* missing from"):
        save_figure([[panel]], [tmp_path / "default.png"])
    (tmp_path / "matplotlibrc").write_text(f"{name} STIXGeneral\n")
    with mpl.rc_context(fname=tmp_path / "matplotlibrc"):
        save_figure([[panel]], [tmp_path / "fonts.png"])  # no warning, which would be an error


@given(st.floats(-6, 6), st.floats(0.01, 8))
@example(-0.12, 0.25)
def test_log_ticks__are_a_few_of_any_range(low, decades):
    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(10**low, 10 ** (low + decades)))
    log_ticks(axes.xaxis)
    first, last = axes.get_xlim()
    assert 2 <= sum(first <= tick <= last for tick in axes.get_xticks()) <= 9

"""The figures of a comparison."""

from __future__ import annotations

from functools import partial

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, UniS, make_policy
from policies.benchmark.comparison import Comparison, compare_settings
from policies.benchmark.intervals import mean_interval
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting
from policies.report.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_energy,
    draw_ranking,
    log_ticks,
    save_figure,
    save_plots,
)


@pytest.fixture(scope="module")
def played() -> Comparison:
    """Three policies under two seeds."""
    scenario = Scenario.digits(num_devices=6, num_rounds=30)
    policies = [LROA(scenario), UniS(scenario), make_policy("best-channel:static", scenario)]
    runs = tuple(Run(policy.name, policy, scenario) for policy in policies)
    setting = Setting("", runs, [3, 4], bounded=False)
    (results,) = compare_settings([setting], None, Console(quiet=True))
    return results


def trained(**curves: list[float]) -> pd.DataFrame:
    """A run of each policy with these accuracies, whose n-th round ends at n^2 seconds."""
    rows = [
        {"policy": name, "seed": 0, "round": n, "elapsed_time": n**2, "test_accuracy": value}
        for name, values in curves.items()
        for n, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows).assign(status="ok")


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """The points of each line that has a name."""
    return {
        str(line.get_label()): line.get_xydata()
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def test_energy__has_a_band_of_the_interval_over_several_seeds(played):
    rounds = pd.concat(played.rounds.assign(seed=seed, policy="it") for seed in range(5))
    rounds = rounds.drop_duplicates(["seed", "round"])
    rounds["spent_ratio"] *= 1 + rounds["seed"] / 10
    axes = Figure().add_subplot()
    draw_energy(axes, rounds)
    _, low, high = mean_interval(rounds[rounds["round"] == 1]["spent_ratio"])
    corners = axes.collections[0].get_paths()[0].vertices
    edges = np.unique(corners[corners[:, 0] == 1][:, 1])
    np.testing.assert_allclose(edges, [max(low, 0.0), high])


def test_accuracy__is_shown_until_all_runs_reach_the_target():
    curves = {"fast": [0.1, 0.5, 0.9, 0.95, 0.96, 0.97], "slow": [0.1, 0.3, 0.6, 0.7, 0.8, 0.85]}
    for target, end in ((0.55, 1.2 * 9), (0.9, 36), (None, 36)):
        axes = Figure().add_subplot()
        rounds = trained(**curves)
        rounds.loc[rounds["policy"] == "fast", "status"] = "over budget"
        draw_accuracy_over_time(axes, rounds, target)
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx((0, end, 0, 100))
        assert axes.get_xscale() == "linear"
        long = [line.get_xydata() for line in axes.get_lines() if len(line.get_xdata()) > 3]
        slow = min(long, key=lambda points: points[-1, 1])
        np.testing.assert_allclose(np.interp([4, 25, 36], *slow.T), [30, 80, 85], atol=0.5)
        np.testing.assert_allclose(slow[-1], [36, 85])
        names = {text.get_text(): text.get_position()[1] for text in axes.texts}
        assert [*names] == ["fast", "slow"]
        dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [dot.get_ydata()[0] for dot in dots] == [*names.values()]
        assert [dot.get_markerfacecolor() == "white" for dot in dots] == [True, False]
    axes = Figure().add_subplot()
    rounds = trained(**curves, other=curves["slow"], third=curves["slow"])
    rounds.loc[rounds.index[-1], "test_accuracy"] = 0.86
    draw_accuracy_over_rounds(axes, rounds, 0.9)
    np.testing.assert_allclose(lines(axes)["fast"][:, 1], 100 * np.array(curves["fast"]))
    assert lines(axes)["target: 90 %"][:, 1].tolist() == [90, 90]
    assert "slow and other are the same." in axes.get_xlabel()


def test_ranking__has_dots_in_the_order_of_the_table():
    runs = {
        "two $x$": ([10.0, 20.0, 30.0], "ok"),
        "one": ([30.0, 40.0, 50.0], "ok"),
        "bad": ([1.0, 2.0, 3.0], "over budget"),
        "late": ([5.0, np.nan, 9.0], "ok"),
    }
    rows = [
        {"policy": name, "seed": seed, "time_to_target": time, "total_time": 99.0, "status": status}
        | {"priced_time_to_target": 60 - time, "priced_time": 99.0}
        for name, (times, status) in runs.items()
        for seed, time in enumerate(times)
    ]
    board = Comparison(pd.DataFrame(rows), 0.9)
    axes = Figure().add_subplot()
    draw_ranking(axes, board)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["one", "two $x$", "late", "bad (over\xa0budget)"]
    assert [text.get_text() for text in axes.texts] == ["target missed in 1 of 3 runs"]
    # Each has an interval, a dot and its priced time.
    shown = [line.get_xydata().tolist() for line in axes.get_lines()]
    assert shown[1:9:3] == [[[40, 0]], [[20, 1]], [[2, 3]]]
    assert shown[2:9:3] == [[[20, 0]], [[40, 1]], [[58, 3]]]
    hollow = [dot.get_markerfacecolor() == "white" for dot in axes.get_lines()[1:9:3]]
    assert hollow == [False, False, True]
    _, low, high = mean_interval(runs["one"][0])
    np.testing.assert_allclose(shown[0], [[low, 0], [high, 0]])
    never = board.summary.assign(time_to_target=np.nan, priced_time_to_target=np.nan)
    draw_ranking(axes, Comparison(never, 0.9))
    assert axes.get_title() == "Total time"


def test_legend__has_each_name_once_and_policies_first(drawn, tmp_path, played):
    rounds = played.rounds.assign(status="ok")
    rounds = rounds.replace({"policy": {"LROA": "cost $x$", "Best channel, static": "no $"}})
    rounds.loc[rounds.policy == "Uni-S", "status"] = "over budget"
    panel = partial(draw_energy, rounds=rounds)
    save_figure([[panel, panel]], [tmp_path / "panels.png"])
    (legend,) = drawn[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:3] == ["cost $x$", "Uni-S (over\xa0budget)", "no $"]
    assert sorted(names[3:]) == ["budget", "single runs", "worst device"]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    rows = [[partial(draw_energy, rounds=rounds[rounds.policy == n])] for n in ("no $", "cost $x$")]
    save_figure(rows, [tmp_path / "rows.png"], rows_apart=True)
    first = [part.legends[0].get_texts()[0].get_text() for part in drawn[1].subfigs]
    assert first == ["no $", "cost $x$"]


def test_plots__repeat_to_the_byte_with_truetype_fonts(tmp_path, played):
    save_plots(played, tmp_path, formats=("png", "pdf"))
    files = {path.name for path in tmp_path.iterdir()}
    plots = ("energy", "overview", "time")
    assert files == {f"{name}.{kind}" for name in plots for kind in ("png", "pdf")}
    again = [tmp_path / "again.png", tmp_path / "again.pdf"]
    # LaTeX is not installed, and a user's configuration has no influence.
    with mpl.rc_context({"text.usetex": True, "font.size": 20, "figure.facecolor": "red"}):
        save_figure([[partial(draw_energy, rounds=played.rounds)]], again)
    for path in again:
        assert path.read_bytes() == path.with_stem("energy").read_bytes()
    for name in plots:
        content = (tmp_path / f"{name}.pdf").read_bytes()
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

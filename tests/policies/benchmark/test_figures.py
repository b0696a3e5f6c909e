"""The figures of a comparison."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from fl_edge_env import Scenario
from policies import LROA, DivFL, UniS
from policies.benchmark.experiment import Entrant, Setting, run_settings
from policies.benchmark.figures import (
    draw_accuracy_over_rounds,
    draw_accuracy_over_time,
    draw_distance,
    draw_energy,
    log_ticks,
    save_figure,
    save_plots,
)
from policies.benchmark.intervals import mean_interval
from policies.benchmark.options import RunOptions
from policies.benchmark.summary import summarise


@pytest.fixture(scope="module")
def played() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rounds of three policies under two seeds, and the bounds along their paths."""
    scenario = Scenario.digits(num_devices=6, num_rounds=30)
    policies = [LROA(scenario), UniS(scenario), DivFL(scenario)]
    entrants = tuple(Entrant(policy.name, policy, scenario) for policy in policies)
    setting = Setting("", entrants, [3, 4])
    (results,) = run_settings([setting], None, RunOptions(workers=1), Console(quiet=True))
    return results.rounds.assign(status="ok"), results.bounds


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


def test_outcome__its_lines_end_at_the_gaps_of_the_summary(played):
    rounds, bounds = played
    axes = Figure().add_subplot()
    draw_distance(axes, rounds, bounds, "outcome")
    gaps = summarise(rounds, bounds=bounds).groupby("policy")["outcome_gap"].mean()
    assert set(lines(axes)) == {*gaps.index, "cannot be beaten", "single runs"}
    for name, gap in gaps.items():
        assert lines(axes)[name][-1] == pytest.approx((30, 100 * gap), rel=1e-12)
    # Another way to the value after ten rounds.
    half, least = (table[table["round"] <= 10] for table in (rounds, bounds))
    ratios = half[half.policy == "DivFL"].groupby("seed")["priced_outcome"].sum()
    ratios /= least.groupby("seed")["outcome_bound"].sum()
    assert lines(axes)["DivFL"][9] == pytest.approx((10, 100 * (ratios.mean() - 1)))


def test_outcome__where_a_bound_is_not_positive_or_not_known_there_is_no_line(played):
    rounds, bounds = played
    other = rounds["priced_outcome"].where(rounds["policy"] != "LROA")  # as with other uploads
    axes = Figure().add_subplot()
    draw_distance(axes, rounds.assign(priced_outcome=other), bounds, "outcome")
    assert set(lines(axes)) & {"LROA", "Uni-S", "DivFL"} == {"Uni-S", "DivFL"}
    negative = bounds.assign(outcome_bound=bounds["outcome_bound"].where(bounds["seed"] == 3, -1.0))
    axes = Figure().add_subplot()
    draw_distance(axes, rounds, negative, "outcome")
    assert set(lines(axes)) == {"cannot be beaten"}


def test_energy__has_a_band_of_the_interval_over_several_seeds(played):
    rounds = pd.concat(played[0].assign(seed=seed, policy="it") for seed in range(5))
    rounds = rounds.drop_duplicates(["seed", "round"])
    rounds["spent_ratio"] *= 1 + rounds["seed"] / 10
    axes = Figure().add_subplot()
    draw_energy(axes, rounds)
    _, low, high = mean_interval(rounds[rounds["round"] == 1]["spent_ratio"])
    corners = axes.collections[0].get_paths()[0].vertices
    edges = np.unique(corners[corners[:, 0] == 1][:, 1])
    np.testing.assert_allclose(edges, [max(low, 0.0), high])


def test_accuracy__is_shown_from_where_it_is_interesting_with_all_ends_and_the_target():
    rises = [0.1, 0.3, 0.6, 0.9, 0.95, 0.96, 0.97, 0.98, 0.98, 0.98]
    falls = [*rises[:-1], 0.42]
    for draw in (draw_accuracy_over_rounds, draw_accuracy_over_time):
        axes = Figure().add_subplot()
        draw(axes, trained(rises=rises, steady=rises))
        low, high = axes.get_ylim()
        assert 50 <= low < 90
        assert 98 <= high <= 100
        for target, shown in ((None, 42), (0.25, 25)):
            axes = Figure().add_subplot()
            draw(axes, trained(rises=rises, falls=falls), target)
            assert 5 < axes.get_ylim()[0] < shown
            assert lines(axes)["falls"][-1][1] == pytest.approx(42)
        assert lines(axes)["target: 25 %"][:, 1].tolist() == [25, 25]
    # Time begins where the first line comes into the picture, and is logarithmic.
    assert axes.get_xscale() == "log"
    assert 1 < axes.get_xlim()[0] <= 9


def test_names__stand_once_below_the_panels_or_rows_and_policies_first(
    monkeypatch, tmp_path, played
):
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    rounds = played[0].replace({"policy": {"LROA": "cost $x$", "DivFL": "no $"}})
    rounds.loc[rounds.policy == "Uni-S", "status"] = "over budget"
    panel = partial(draw_energy, rounds=rounds)
    save_figure([[panel, panel]], [tmp_path / "panels.png"])
    (legend,) = drawn[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:3] == ["cost $x$", "Uni-S (over\xa0budget)", "no $"]
    assert sorted(names[3:]) == ["budget", "device that spends most", "single runs"]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    rows = [[partial(draw_energy, rounds=rounds[rounds.policy == n])] for n in ("no $", "cost $x$")]
    save_figure(rows, [tmp_path / "rows.png"], rows_apart=True)
    first = [part.legends[0].get_texts()[0].get_text() for part in drawn[1].subfigs]
    assert first == ["no $", "cost $x$"]


def test_plots__are_the_same_bytes_and_have_fonts_that_publishers_take(tmp_path, played):
    rounds, bounds = played
    save_plots(rounds, bounds, tmp_path, formats=("png", "pdf"))
    files = {path.name for path in tmp_path.iterdir()}
    plots = ("energy", "objective", "outcome", "overview", "time")
    assert files == {f"{name}.{kind}" for name in plots for kind in ("png", "pdf")}
    again = [tmp_path / "again.png", tmp_path / "again.pdf"]
    save_figure([[partial(draw_energy, rounds=rounds)]], again)
    for path in again:
        assert path.read_bytes() == path.with_stem("energy").read_bytes()
    for name in plots:
        content = (tmp_path / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in content
        assert b"/Type3" not in content


@given(st.floats(-6, 6), st.floats(0.01, 8))
@example(-0.12, 0.25)
def test_log_ticks__are_a_few_of_any_range(low, decades):
    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(10**low, 10 ** (low + decades)))
    log_ticks(axes.xaxis)
    first, last = axes.get_xlim()
    assert 2 <= sum(first <= tick <= last for tick in axes.get_xticks()) <= 9

"""The figure of Flower's results: each run where it has numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

pytest.importorskip("flwr")

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from policies.report import figures
from train_fl.federation import save_accuracy


def result(accuracies, times=(), of="server"):
    """The result of a run with these accuracies from round 0, and the times [s] of some rounds."""
    found = Result()
    found.train_metrics_clientapp = {k: MetricRecord({"elapsed-time": t}) for k, t in times}
    metrics = {k: MetricRecord({"acc": value}) for k, value in enumerate(accuracies)}
    setattr(found, f"evaluate_metrics_{of}app", metrics)
    return found


# Nobody took part in the second round.
CLOCKED = result([0.1, 0.4, 0.4, 0.8], [(1, 2.0), (3, 6.5)])
BY_CLIENTS = result([0.2, 0.5], [(1, 100.0)], "client")
PLAIN = result([0.1, 0.3, 0.5])
RUNS = {"FedAvg": CLOCKED, "lroa": BY_CLIENTS, "no clock": PLAIN}


def test_save_accuracy__draws_each_run_over_what_it_has(monkeypatch, tmp_path):
    drawn = []

    def save_figure(grid, paths):
        (panels,) = grid
        axes = [Figure().add_subplot() for _ in panels]
        for panel, one in zip(panels, axes, strict=True):
            panel(one)
        drawn.extend(axes)
        assert paths == [tmp_path / "a.png"]

    monkeypatch.setattr(figures, "save_figure", save_figure)
    save_accuracy(RUNS, tmp_path / "a.png", metric="acc", target=0.9)
    assert [axes.get_xlabel() for axes in drawn] == ["time [s]", "round"]
    curves = [line.get_xydata() for line in drawn[0].lines if len(line.get_xdata()) > 3]
    over_time = dict(zip(RUNS, curves, strict=True))
    assert {text.get_text() for text in drawn[0].texts} == {"FedAvg", "lroa"}
    assert np.isfinite([text.get_position() for text in drawn[0].texts]).all()
    over_rounds = {line.get_label(): line.get_xydata() for line in drawn[1].lines}
    assert list(over_rounds) == [*RUNS, "target: 90 %"]
    assert np.isnan(over_time["no clock"][:, 0]).all()
    curve = np.interp([0, 1, 2, 6.5], *over_time["FedAvg"].T)
    np.testing.assert_allclose(curve, [10, 25, 40, 80], atol=0.3)
    np.testing.assert_allclose(over_time["lroa"][[0, -1]], [[0, 20], [100, 50]])
    np.testing.assert_allclose(over_rounds["no clock"], [[0, 10], [1, 30], [2, 50]])


@pytest.mark.parametrize("name", ["accuracy.png", "accuracy.pdf"])
def test_save_accuracy__writes_a_file_of_its_suffix(tmp_path, name):
    save_accuracy(RUNS, str(tmp_path / name), metric="acc")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes()[1:4] in (b"PNG", b"PDF")


def test_federation__loads_no_matplotlib():
    program = "import sys, train_fl.federation; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("results", "metric", "message"),
    [
        ({}, "acc", r"one run with a clock, got \[\]"),
        ({"plain": PLAIN}, "acc", r"got \['plain'\]: run Clocked\(strategy, scenario\)"),
        ({"it": CLOCKED}, "akk", "evaluations of it report, got 'akk': they report acc"),
        ({"it": Result()}, "acc", "got 'acc': they report nothing"),
        ({"it": result([0.5, 80.0], [(1, 1.0)])}, "acc", r"in \[0, 1\], got 80.0 in it"),
        ({"it": 3}, "acc", "what start returns, got 3 for 'it'"),
    ],
)
def test_save_accuracy__refuses_wrong_results(results, metric, message):
    with pytest.raises(ValueError, match=message):
        save_accuracy(results, "not-written.png", metric=metric)

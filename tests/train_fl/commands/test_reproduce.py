"""The paper's experiments in miniature: figures, data, tables and refusals."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from policies.benchmark.bounds import Prices
from train_fl.commands import paper, reproduce
from train_fl.commands.settings import make_training

SMALL = "--scenarios digits --rounds 4 --seeds 2 --workers 1"


@pytest.mark.parametrize(
    ("arguments", "stem", "curves"),
    [
        ("baselines", "baselines", {"LROA", "Uni-D", "Uni-S"}),
        ("baselines --train --eval-every 2", "baselines", {"LROA", "Uni-D", "Uni-S", "DivFL"}),
        ("lambda-sweep --mu 1 5", "lambda", {"μ = 1", "μ = 5"}),
        ("v-sweep --nu 1.1e5 1.4e5", "v", {"ν = 1.1e+05", "ν = 1.4e+05"}),
        (
            "k-sweep --mu 1 10 --nu 1e5",
            "k",
            {f"{p}, K = {k}" for p in ("LROA", "Uni-D") for k in (2, 4, 6)},
        ),
    ],
)
def test_reproduce__leaves_its_figure_and_the_data_of_it(call, tmp_path, arguments, stem, curves):
    printed = call(f"reproduce {arguments} {SMALL} --out {tmp_path}")
    assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
    data = pd.read_csv(tmp_path / f"{stem}.csv")
    # In the sweep of K a curve has its tuning in its name.
    assert {re.sub(", μ = .*", "", name) for name in data.policy} == curves
    assert data.groupby("policy")["round"].apply(list).map(lambda r: r == [*range(1, 5)]).all()
    # A policy that chooses its cohort has no penalty and no sampling error.
    sampled = data[data.policy != "DivFL"].filter(regex="^(?!test_).*_half_width")
    assert np.isfinite(sampled).all().all()
    last = data[data["round"] == 4].set_index("policy")
    if stem == "baselines":
        order = last.elapsed_time.drop("DivFL", errors="ignore").sort_values().index
        assert f"digits, fastest first: {', '.join(order)}." in printed
    elif stem == "v":
        order = data.groupby("policy").penalty.mean().sort_values().index
        order = ", ".join(order).replace("e+05", "·10⁵")
        assert f"digits, smallest objective first: {order}." in printed
    if "--train" in arguments:
        assert data.groupby("policy").test_accuracy.count().tolist() == [2] * 4


def test_bound__has_gap_queue_and_energy_for_each_nu(call, tmp_path):
    call(f"reproduce bound --nu 1e4 1e5 {SMALL} --out {tmp_path}")
    data = pd.read_csv(tmp_path / "bound.csv")
    assert data.nu.tolist() == [1e4, 1e5]
    assert data["queue"].is_monotonic_increasing
    # The bounds, which know no V, are those of every nu.
    assert (data["gap"] > 0).all()


@pytest.mark.usefixtures("plain_pictures")
def test_k_sweep__with_training_selects_by_accuracy(call, tmp_path):
    command = f"reproduce k-sweep --train {SMALL} --mu 1 --nu 1e5 --out {tmp_path}"
    assert "final accuracy" in call(command.replace("rounds 4", "rounds 2"))


def test_k_sweep__selects_the_fastest_run_that_is_good_enough():
    def run(time: float, accuracy: float) -> pd.DataFrame:
        row = {"total_time": [time], "final_accuracy": accuracy, "worst_energy_ratio": 1.0}
        return pd.DataFrame(row)

    runs = {"slow": run(3.0, 0.9), "good": run(2.0, 0.6), "fast": run(1.0, 0.5)}
    assert paper.select(runs, 60.0) == ("good", pytest.approx(60.0), True)
    assert paper.select(runs) == ("fast", 1.0, True)  # by energy
    del runs["slow"], runs["good"]
    runs["bad"] = run(0.5, 0.4)
    assert paper.select(runs, 60.0) == ("fast", pytest.approx(50.0), False)


def test_bound__with_training_is_that_of_the_system_that_is_run(monkeypatch):
    made = []
    seen = []

    def other(*args):
        training = make_training(*args)
        made.append(training.scenario.replace(num_rounds=8))
        return training.in_system(made[0])

    def prices(scenario, **_):
        seen.append(scenario)
        return Prices(None, None)

    monkeypatch.setattr("policies.benchmark.setting.find_prices", prices)
    monkeypatch.setattr(reproduce, "make_training", other)
    options = reproduce.Options(figure="bound", train=True)
    reproduce.setting(options, paper.bound(options, "digits"), "digits").seeded_runs()
    assert seen == made[:1]


def test_order_found__is_the_papers_only_if_it_is():
    time = {"Uni-S": 3.0, "DivFL": 0.5, "LROA": 2.0, "Uni-D": 1.0}
    stated = ("LROA", "Uni-D")
    found = "it, fastest first: Uni-D, LROA"
    assert paper.order_found("it", "fastest", time, stated) == f"{found}."
    found = "cifar10" + found.removeprefix("it")
    assert paper.order_found("cifar10", "fastest", time, stated) == (
        f"{found}; in the paper LROA, Uni-D."
    )
    assert paper.order_found("cifar10", "fastest", time, stated[::-1]) == (
        f"{found}; as in the paper."
    )


def test_matching_mu__is_where_lroa_saves_what_the_paper_states(monkeypatch):
    monkeypatch.setattr(paper, "PAPER_SAVINGS", {"it": {"Uni-D": 65.0, "Uni-S": 99.0}})
    time = {"LROA": 1.0, "Uni-D": 2.0, "Uni-S": 1.0}
    for mu in paper.MU_GRID:
        time |= {f"LROA {mu:g}": mu, f"Uni-D {mu:g}": 2.0}
    # Against Uni-D it saves 65 % where mu = 0.7, against Uni-S nowhere 99 %.
    assert paper.matching_mu("it", time) == {"Uni-D": "0.70", "Uni-S": "–"}


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("v-sweep --scenarios", "scenarios must be one or more, got none"),
        ("v-sweep --nu 1e5 1.0001e5", "'ν = 1e+05' occurs twice among the policies"),
        ("v-sweep --mu 2", "v-sweep has no option --mu"),
        ("v-sweep --download", "--download needs training: add --train"),
    ],
)
def test_reproduce__a_wrong_option_ends_with_one_line(
    refused, monkeypatch, tmp_path, arguments, fragment
):
    monkeypatch.chdir(tmp_path)
    assert fragment in refused(f"reproduce {arguments}")
